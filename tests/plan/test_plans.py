"""Plans: what is shipped loads, and what follows from a plan's words; mistakes: test_plan_mistakes.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from small_plan import PLAN

from capsbench.errors import PlanError
from capsbench.plan import House, config_folder, load_variants
from capsbench.plan.done import run_digests
from capsbench.plan.routings import ROUTINGS
from capsbench.plan.runs import results_root
from capsbench.plan.task import Reduction
from capsbench.provenance import digest_of
from capsbench.training.schedule import rate_at

NO_PLANS = ("claims", "published", "variants")


@pytest.mark.parametrize("name", sorted({path.stem for path in config_folder().glob("*.yaml")} - {*NO_PLANS}))
def test_the_shipped_plans_load(name: str) -> None:
    house = House.load(config_folder() / f"{name}.yaml")
    assert house.name == name
    assert house.cells


def test_paper_s_plan_is_the_paper_s() -> None:
    house = House.load(config_folder() / "paper.yaml")
    table_1 = [cell for cell in house.cells if cell.task == "mnist"]
    assert [c.variant for c in table_1] == ["cnn", "capsnet-r1", "capsnet-r1-recon", "capsnet-r3", "capsnet-r3-recon"]
    shipped = load_variants()
    for cell in table_1:
        assert cell.spec == shipped[cell.variant]
        assert cell.seeds == (0, 1, 2, 3, 4)
        assert cell.steps() == 46_875
        assert house.reduced(cell) == [Reduction("budget", "46,875 steps instead of the authors' 300,000")]
    assert house.reductions(house.cell("two_digit", "two-digit-kmeans")) == []


def test_the_plan_of_the_suite_s_routings_has_each_of_them_trained_alike_and_judges_no_claim() -> None:
    """Which is what its head says, as is that every row but the paper's has a reference."""
    house = House.load(config_folder() / "routings.yaml")
    assert {cell.spec.routing for cell in house.cells} == set(ROUTINGS)
    assert len({str(cell.training) for cell in house.cells}) == 1
    assert all("experiment" in {found.kind for found in house.reduced(cell)} for cell in house.cells)
    compared = house.describe({})["comparisons"]["ablation"]["mnist"]
    assert len(compared) == len(house.cells) - 1 == 17


def test_rows_that_see_resized_pairs_are_named_under_their_table() -> None:
    found = House.load(config_folder() / "paper.yaml").describe({})["notes"]
    assert found == {
        "two_digit": [
            "Pairs are resized to 28x28 for rows whose model takes images of one size alone; these keep the loss "
            "that they have on MNIST: CapsNet r=3, reconstruction (lambda 0.5, reconstruction).",
            "Rows that are trained on pairs see them one above the other: side by side they meet for the first time.",
        ]
    }
    assert House.load(config_folder() / "quick.yaml").describe({})["notes"] == {}


def test_where_every_row_s_pairs_are_squeezed_a_reduction_says_so_and_no_row_is_named(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "budget: reduced\nseeds: [0]\ntraining: {steps: 1}\ntasks:\n"
        "  two_digit: {variants: [two-digit-kmeans, capsnet-r3-recon], squeezed: true}\n"
    )
    house = House.load(plan)
    assert house.describe({})["notes"] == {}
    assert all("pairs squeezed to 28x28" in house.reductions(cell) for cell in house.cells)


def test_every_task_decays_to_where_its_published_period_would() -> None:
    """Section 6: MultiMNIST's rate falls a tenth as fast; a tenth of its 60 million pairs ends where all of them do."""
    house = House.load(config_folder() / "paper.yaml")
    found = {cell.task: cell.training.decay_period for cell in house.cells}
    assert found == {"mnist": "scaled", "affnist": "scaled", "multimnist": 2000, "two_digit": "scaled"}
    assert {cell.training.decay for cell in house.cells if cell.task == "two_digit"} == {1.0}  # the source's Adam
    steps = {cell.task: cell.steps(house.epoch_images(cell.options)) for cell in house.cells}
    assert steps == {"mnist": 46_875, "affnist": 19_532, "multimnist": 46_875, "two_digit": 9_375}
    (cell, *_) = (cell for cell in house.cells if cell.task == "multimnist")
    whole = House.load(config_folder() / "paper-authors.yaml").cell("multimnist", "capsnet-r3-recon")
    assert whole.training.decay_period == 20_000
    ends = [rate_at(one.steps(), one.steps(), one.training) for one in (cell, whole)]
    assert ends == pytest.approx([1e-3 * 0.96 ** (468_750 / 20_000)] * 2, rel=1e-3)
    assert house.reduced(cell)[0] == Reduction("training", "6,000,000 training pairs seen, of the paper's 60,000,000")


def test_the_authors_budget_is_300k_steps_of_the_published_decay() -> None:
    house = House.load(config_folder() / "paper-authors.yaml")
    found = {(cell.task, cell.steps(), cell.training.decay_period) for cell in house.cells}
    assert found == {("mnist", 300_000, 2000), ("multimnist", 468_750, 20_000)}
    # every one of the paper's 60 million pairs once, so that its values can be judged
    assert {found.kind for cell in house.cells if cell.task == "multimnist" for found in house.reduced(cell)} == {
        "measuring"
    }


def test_quick_names_its_reductions() -> None:
    house = House.load(config_folder() / "quick.yaml")
    for cell in house.cells:
        words = house.reductions(cell)
        assert "2 of 5 seeds" in words
        assert any(word.startswith("width 1/") for word in words)
        kinds = {found.kind for found in house.reduced(cell)}
        assert kinds - {"digits"} == {"experiment", "training", "measuring"}  # so it judges no claim
    paper = House.load(config_folder() / "paper.yaml")
    for task, words in (
        ("affnist", "single factors on 100 of 10,000 digits"),
        ("multimnist", "segmentation on 300 of 10,000 pairs"),
        ("two_digit", "the last 2 epochs instead of 5"),
    ):
        cells = [cell for cell in house.cells if cell.task == task]
        kind = "digits" if task == "multimnist" else "measuring"
        assert all((kind, words) in [found[:2] for found in house.reduced(cell)] for cell in cells)
        assert words.split()[0] not in {said.split()[0] for said in paper.task_reductions(task)}


SHORT = "budget: short\nseeds: [0, 1]\ntraining: {epochs: 100}\n"
AUTHORS = "budget: authors\nseeds: [0, 1]\ntraining: {steps: 300_000, decay_period: published}\n"


@pytest.mark.parametrize(
    ("head", "task", "words"),
    [
        (SHORT, "mnist: {variants: [cnn], training: {epochs: 1}}", "469 steps instead of the authors' 300,000"),
        (SHORT, "two_digit: {variants: [two-digit-kmeans], training: {epochs: 1}}", "469 steps, less than the"),
        (SHORT, "two_digit: {variants: [two-digit-max-mlp], training: {epochs: 10}}", "4,688 steps, less than the"),
        (AUTHORS, "mnist: {variants: [cnn], training: {steps: 500}}", "500 steps instead of the authors'"),
        (
            SHORT,
            "mnist: {variants: [cnn], axes: {per_class: [9]}, training: {epochs: 9}}",
            "4,219 steps instead of",
        ),
        (AUTHORS, "multimnist: {variants: [capsnet-r1-recon]}", "38,400,000 training pairs seen, of the paper's"),
    ],
)
def test_a_task_that_cuts_its_budget_judges_no_published_value(tmp_path: Path, head, task, words) -> None:
    path = tmp_path / "cut.yaml"
    path.write_text(f"name: cut\n{head}tasks:\n  {task}\n")
    for cell in (house := House.load(path)).cells:
        kind, said, _ = house.reduced(cell)[0]
        assert kind == "training"
        assert said.startswith(words)


def test_who_holds_out_most_digits_trains_on_few(tmp_path: Path) -> None:
    path = tmp_path / "held.yaml"
    path.write_text(f"name: held\n{SHORT}tasks:\n  affnist: {{variants: [cnn-pool], held_out: 50_000}}\n")
    house = House.load(path)
    assert Reduction("experiment", "10,000 training digits") in house.reduced(house.cells[0])


def test_an_epoch_of_few_digits_a_class_is_short(plan) -> None:
    cell = House.load(path := plan(("test_images: 100", "train_per_class: 32"))).cells[0]
    assert cell.steps(House.load(path).epoch_images(cell.options)) == 2 * 320 / 64
    said = [sentence for sentences in House.load(path).describe({})["notes"].values() for sentence in sentences]
    assert not any("as many steps as on all" in sentence for sentence in said)  # those are an axis's rows


def test_a_missing_plan_names_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text("{}")
    with pytest.raises(PlanError, match=r"did you mean 'quick\.yaml'"):
        House.load(tmp_path / "quik.yaml")


def test_a_copy_of_a_plan_does_not_write_into_the_results_of_its_model(plan, tmp_path: Path) -> None:
    path = plan(("name: small", "name: other"))
    beside = path.with_name("other.yaml")
    for text in ("", "tasks: {}\nname: 'third'  # its own\n"):  # no plan; a plan of another name
        beside.write_text(text)
        assert House.load(path).name == "other"
    for name, text in (("other.yaml", "tasks: {}\n"), ("copy.yml", "name: other\ntasks: {}\n")):
        beside.unlink()
        beside = path.with_name(name)
        beside.write_text(text)
        with pytest.raises(
            PlanError, match=rf"name: 'other' is also the name of {name} next to it, whose results this"
        ):
            House.load(path)


def test_shipped_plans_are_called_as_their_files() -> None:
    for path in sorted(config_folder().glob("*.yaml")):
        if path.stem not in ("variants", "claims", "published"):
            assert House.load(path).name == path.stem
            assert "\nname:" not in path.read_text()  # a copy of it would write into the same results


def test_a_name_that_would_leave_the_folder_is_refused(plan) -> None:
    for bad in ("../x; rm", "a/b", "..", ".hidden", "$(id)", "a b", "x..y"):
        with pytest.raises(PlanError):
            House.load(plan(text=PLAN.replace("mine", f"'{bad}'")))


def test_numbers_such_as_1e_3_are_numbers(plan) -> None:
    house = House.load(plan(("batch: 64", "batch: 64\n  rate: 1e-3")))
    assert house.cells[0].training.rate == 1e-3


def test_a_merge_key_puts_in_what_its_anchor_stands_for(plan) -> None:
    own = "variants:\n  a: &a {base: cnn, dropout: 0.1}\n  b: {<<: *a, dropout: 0.2, title: B}\n"
    text = f"{own}budget: reduced\nseeds: [0]\ntraining: {{steps: 4}}\ntasks: {{mnist: {{variants: [a, b]}}}}\n"
    first, second = (cell.spec.model_dump() for cell in House.load(plan(text=text)).cells)
    assert (first["dropout"], second["dropout"]) == (0.1, 0.2)
    twice = text.replace("<<: *a, dropout: 0.2", "<<: *a, dropout: 0.2, dropout: 0.3")
    with pytest.raises(PlanError, match="key 'dropout' appears twice"):
        House.load(plan(text=twice))


def test_a_home_in_the_results_folder_s_name_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSBENCH_RESULTS", "~/results")  # in quotes, as in many a job's script
    assert results_root() == Path.home() / "results"


def test_the_nearer_word_on_training_wins(plan) -> None:
    text = PLAN.replace("test_images: 100", "training: {steps: 7, batch: 8}").replace(
        "squash: half", "squash: half, training: {epochs: 1}"
    )
    cnn, mine = House.load(plan(text=text)).cells
    assert (cnn.steps(), cnn.training.batch) == (7, 8)
    assert (mine.training.epochs, mine.training.steps, mine.training.batch) == (1, None, 8)


def test_a_variant_trains_as_its_base_does_where_it_says_nothing_else(plan) -> None:
    chain = """
  long: {base: cnn, training: {epochs: 7, rate: 0.01}}
  same: {base: long, title: The same}
  short: {base: same, training: {steps: 9, batch: 8}}
"""
    path = plan(("\n  mine: {base: capsnet-r3, squash: half}\n", chain), ("[cnn, mine]", "[cnn, same, short]"))
    cells = {cell.variant: cell.training for cell in House.load(path).cells}
    assert (cells["cnn"].epochs, cells["cnn"].rate) == (2, 0.001)
    assert (cells["same"].epochs, cells["same"].rate, cells["same"].batch) == (7, 0.01, 64)
    short = cells["short"]
    assert (short.epochs, short.steps, short.rate, short.batch) == (None, 9, 0.01, 8)


def test_a_variant_is_called_by_its_own_name_and_not_as_its_base(plan) -> None:
    own = "\n  mine: {base: capsnet-r3, squash: half}\n  other: {base: mine, title: The other}\n"
    house = House.load(plan(("\n  mine: {base: capsnet-r3, squash: half}\n", own), ("[cnn, mine]", "[mine, other]")))
    assert house.describe({})["titles"] == {"mine": "mine", "other": "The other"}


def test_width_scales_every_model(plan) -> None:
    cnn, mine = House.load(plan()).cells
    assert cnn.spec.channels == [32, 32, 16]
    assert (mine.spec.channels, mine.spec.primary_types) == (32, 4)


def test_a_digest_changes_with_what_decides_the_weights_and_with_nothing_else(plan) -> None:
    def digests(*replacements: tuple[str, str]) -> list[str]:
        house = House.load(plan(*replacements))
        return [run_digests(house, cell, 0, "data")["run"] for cell in house.cells]

    base = digests()
    assert base[0] != base[1]
    assert digests(("test_images: 100", "test_images: 200")) == base
    assert digests(("seeds: [0, 1]", "seeds: [0, 1, 2]")) == base
    assert digests(("squash: half", "squash: tanh"))[0] == base[0]
    assert digests(("squash: half", "squash: tanh"))[1] != base[1]
    assert digests(("epochs: 2", "epochs: 3"))[0] != base[0]
    assert digests(("test_images: 100", "train_images: 100"))[0] != base[0]


def test_a_plan_that_compares_or_measures_otherwise_has_another_digest(plan) -> None:
    """By it a copy is told from the plan whose results it would replace."""

    def digest(*words: str) -> str:
        return House.load(plan(("test_images: 100", "\n    ".join(("test_images: 100", *words))))).digest

    compared = (
        "reference: cnn",
        "reference: mine",
        "references: {mine: cnn}",
        "ladder: [cnn, mine]",
        "ladder: [mine, cnn]",
    )
    others = [digest(said) for said in compared]
    measured = [House.load(plan(("tasks:", f"cost: {said}\ntasks:"))).digest for said in ("false", "{batch: 7}")]
    assert len({digest(), *others, *measured}) == 1 + len(others) + len(measured)
    assert digest("references: {}", "ladder: []") == digest()
    assert House.load(plan(("tasks:", "cost: {batch: 128}\ntasks:"))).digest == digest()


def test_the_plan_of_published_results_is_known_by_its_digest() -> None:
    """Their manifests name it too: what becomes part of a plan's digest may not change theirs."""
    house = House.load(config_folder() / "paper.yaml")
    cells = [
        [cell.label, list(cell.seeds), cell.promise(), cell.options.evaluation_options(), cell.spec.title]
        for cell in house.cells
    ]
    assert house.digest == digest_of([house.plan.name, house.plan.budget, house.plan.about, cells])


def test_epochs_become_steps_without_losing_a_digit(plan) -> None:
    cell = House.load(plan(("batch: 64", "batch: 7"))).cells[0]
    assert cell.steps(60_000) == 17_143  # 17,142 batches of 7 leave six digits of the two epochs


def test_every_variant_of_the_suite_has_a_source_and_a_name() -> None:
    raw = yaml.safe_load((config_folder() / "variants.yaml").read_text())
    for name, spec in load_variants().items():
        assert spec.source, name
        assert spec.title, name
        assert name in raw


def test_variants_in_no_plan_of_the_suite_are_those_that_the_file_names() -> None:
    text = (config_folder() / "variants.yaml").read_text().replace("\n# ", " ")
    plans = [path for path in config_folder().glob("*.yaml") if path.stem not in NO_PLANS]
    trained = {cell.base or cell.variant for path in plans for cell in House.load(path).cells}
    said = re.search(r"work\. (.*?) are in no plan of config/: they are here for plans of one's own", text)
    assert said is not None
    assert set(re.split(r", | and ", said[1])) == load_variants().keys() - trained
