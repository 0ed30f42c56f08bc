"""Rows that axes and tuning make of variants: their names, configs and comparisons, and what a plan may not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from capsbench.data.batch import DigitSet
from capsbench.errors import PlanError
from capsbench.pipeline import with_current_choice
from capsbench.plan import Cell, House, config_folder
from capsbench.plan.done import run_digests, tuning_digest
from capsbench.plan.tuning import DECAYS, GRID, RATES
from capsbench.training.digits import training_digits

PLAN = """
name: rows
budget: reduced
seeds: [0, 1]
width: 0.0625
training: {epochs: 2, batch: 100}
tuning: {steps: 7, seeds: [1000, 1001], held_out: 40}
tasks:
  mnist:
    variants: [capsnet-r3-recon, cnn, capsnet-kmeans]
    tuned: [cnn]
    axes:
      per_class: {values: [2, 5], variants: [cnn, capsnet-r3-recon]}
      iterations: {values: [1, 3], variants: [capsnet-r3-recon]}
    reference: capsnet-r3-recon
    references: {cnn+n2: capsnet-r3-recon+n2}
    ladder: [cnn, capsnet-r3-recon+r1, capsnet-r3-recon]
"""
ROWS = [
    *("capsnet-r3-recon", "capsnet-r3-recon+n2", "capsnet-r3-recon+n5", "capsnet-r3-recon+r1"),
    *("cnn", "cnn+tuned", "cnn+n2", "cnn+n5", "capsnet-kmeans"),
]


@pytest.fixture(autouse=True)
def _own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path / "scratch"))


def house(tmp_path: Path, *replaced: tuple[str, str]) -> House:
    text = PLAN
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "rows.yaml").write_text(text)
    return House.load(tmp_path / "rows.yaml")


def labelled(count: int) -> DigitSet:
    """Images that say their own number."""
    images = torch.arange(count)[:, None, None].expand(count, 28, 28).to(torch.uint8)
    return DigitSet(images, torch.arange(count) % 10)


def test_a_row_in_bf16_differs_from_its_variant_in_nothing_else(tmp_path: Path) -> None:
    full = "    training: {precision: float32}\n    tuned: [cnn]"
    plan = house(tmp_path, ("    tuned: [cnn]", f"{full}\n    bf16: [cnn]"))
    low, cell = plan.cell("mnist", "cnn+bf16"), plan.cell("mnist", "cnn")
    assert (low.training.precision, cell.training.precision) == ("bf16", "float32")
    assert low.training.model_copy(update={"precision": "float32"}) == cell.training
    assert low.spec.model_copy(update={"title": cell.spec.title}) == cell.spec
    assert low.spec.title == "CNN (Table 1), bf16"
    assert [c.variant for c in plan.cells if c.variant not in ROWS] == ["cnn+bf16"]
    with pytest.raises(PlanError, match=r"tasks.mnist.bf16: 'cn' is not among the variants"):
        house(tmp_path, ("    tuned: [cnn]", "    tuned: [cnn]\n    bf16: [cn]")).cells  # noqa: B018


def test_axes_and_tuning_make_rows_of_variants(tmp_path: Path) -> None:
    rows = house(tmp_path)
    assert [cell.variant for cell in rows.cells] == ROWS
    few = rows.cell("mnist", "cnn+n2")
    assert (few.base, few.options.train_per_class, few.seeds) == ("cnn", 2, (0, 1))
    assert few.spec.model_dump(exclude={"title"}) == rows.cell("mnist", "cnn").spec.model_dump(exclude={"title"})
    assert few.spec.title == "CNN (Table 1), 2 digits a class"
    assert few.steps(20) == rows.cell("mnist", "cnn").steps() == 1200  # of as many steps as on all digits
    one = rows.cell("mnist", "capsnet-r3-recon+r1")
    assert (one.spec.iterations, one.spec.title) == (1, "CapsNet r=1, reconstruction")
    described = rows.describe({})
    assert described["tasks"]["mnist"] == ROWS
    assert not any("a class" in words for words in described["reductions"]["mnist"])
    digests = {run_digests(rows, cell, 0, "data")["run"] for cell in rows.cells}
    assert len(digests) == len(ROWS)


def test_few_digits_keep_the_decay_period_of_their_task(tmp_path: Path) -> None:
    """MultiMNIST's period is ten times MNIST's; a row on few digits trains as long as its base, so it has the same."""
    pairs = "{multimnist: {variants: [multimnist-cnn], train_pairs: 100_000, axes: {per_class: [40]}}}"
    (tmp_path / "few.yaml").write_text(
        f"budget: reduced\nseeds: [0]\ntraining: {{epochs: 2, batch: 100}}\ntasks: {pairs}\n"
    )
    base, few = House.load(tmp_path / "few.yaml").cells
    assert few.variant == "multimnist-cnn+n40"
    assert base.training.decay_period == few.training.decay_period == round(20_000 * 2_000 / 468_750)


def test_few_digits_are_balanced_nested_and_the_same_for_every_variant(tmp_path: Path) -> None:
    rows, digits = house(tmp_path), labelled(200)

    def numbers(variant: str, seed: int) -> set[int]:
        chosen = training_digits(rows.cell("mnist", variant), digits, seed)
        assert chosen.labels.bincount().tolist() == [len(chosen.labels) // 10] * 10
        return set(chosen.images[:, 0, 0].tolist())

    assert len(numbers("cnn+n2", 0)) == 20
    assert numbers("cnn+n2", 0) == numbers("capsnet-r3-recon+n2", 0) != numbers("cnn+n2", 1)
    assert numbers("cnn+n2", 0) < numbers("cnn+n5", 0)


def test_every_variant_is_tuned_on_the_same_grid_with_seeds_and_digits_of_its_own(tmp_path: Path) -> None:
    rows = house(tmp_path)
    cell = rows.cell("mnist", "cnn+tuned")
    trials = rows.trials(cell)
    assert len(GRID) == len(RATES) * len(DECAYS) == len(trials) == 9
    assert {trial.seeds for trial in trials} == {(1000, 1001)}
    assert [(t.training.rate, t.training.decay) for t in trials] == list(GRID)
    assert {(t.training.steps, t.training.epochs, t.training.decay_period) for t in trials} == {(7, None, "scaled")}
    for trial in trials:
        numbers = set(training_digits(trial, labelled(200), 1000).images[:, 0, 0].tolist())
        assert numbers == set(range(40, 200))
    folders = {rows.run_folder(trial, 1000) for trial in trials}
    assert len(folders) == 9
    assert all(folder.is_relative_to(rows.folder / "tuning" / "mnist" / "cnn") for folder in folders)


def choose(cell: Cell, **changes: object) -> None:
    assert cell.tuned is not None
    choice = {"recipe": cell.tuned.recipe, "chosen": GRID[3].training_keys()} | changes
    cell.tuned.path.parent.mkdir(parents=True, exist_ok=True)
    cell.tuned.path.write_text(json.dumps(choice))


def test_a_tuned_row_trains_as_its_stored_choice_says(tmp_path: Path) -> None:
    before = house(tmp_path)
    cell = before.cell("mnist", "cnn+tuned")
    assert cell.waits
    choose(cell)
    after = house(tmp_path)
    tuned, untuned = after.cell("mnist", "cnn+tuned"), after.cell("mnist", "cnn")
    assert not tuned.waits
    assert (tuned.training.rate, tuned.training.decay) == GRID[3]
    assert (untuned.training.rate, tuned.training.epochs) == (1e-3, 2)
    promises = [run_digests(h, h.promised.cell("mnist", "cnn+tuned"), 0, "data") for h in (before, after)]
    assert promises[0] == promises[1]  # what Snakemake compares does not change by tuning itself
    assert before.digest == after.digest
    assert before.promised.describe({}) == after.promised.describe({})
    assert run_digests(after, tuned, 0, "data")["run"] != run_digests(before, cell, 0, "data")["run"]
    assert any(
        f"Chosen: cnn+tuned {GRID[3].rate:g} and {GRID[3].decay:g}" in words
        for words in after.describe({})["notes"]["mnist"]
    )


def test_what_is_promised_knows_no_choice_of_a_reference_either(tmp_path: Path) -> None:
    """Else tuning itself would change what Snakemake's jobs depend on, and the report would be drawn twice."""
    swap = ("reference: capsnet-r3-recon", "reference: cnn+tuned")
    before = house(tmp_path, swap)
    choose(before.cell("mnist", "cnn+tuned"))
    after = house(tmp_path, swap)
    assert before.describe({})["comparisons"] != after.describe({})["comparisons"]
    assert before.promised.describe({}) == after.promised.describe({})


@pytest.mark.parametrize(
    "changes",
    [{"recipe": "another"}, {"chosen": None}, {"chosen": {"rate": 7.0, "decay": 0.96}}, {"chosen": {"rate": "x"}}],
)
def test_a_choice_of_another_tuning_or_off_the_grid_is_none(tmp_path: Path, changes: dict[str, object]) -> None:
    choose(house(tmp_path).cell("mnist", "cnn+tuned"), **changes)
    assert house(tmp_path).cell("mnist", "cnn+tuned").waits


def test_another_budget_of_tuning_asks_for_another_choice(tmp_path: Path) -> None:
    choose(house(tmp_path).cell("mnist", "cnn+tuned"))
    assert not house(tmp_path).cell("mnist", "cnn+tuned").waits
    assert house(tmp_path, ("steps: 7", "steps: 8")).cell("mnist", "cnn+tuned").waits
    assert house(tmp_path, ("seeds: [1000, 1001]", "seeds: [1000]")).cell("mnist", "cnn+tuned").waits
    assert house(tmp_path, ("held_out: 40", "held_out: 50")).cell("mnist", "cnn+tuned").waits


def test_what_differs_is_read_off_the_configs(tmp_path: Path) -> None:
    found = house(tmp_path).describe({})["comparisons"]
    entries = {entry["variant"]: entry for entry in found["ablation"]["mnist"]}
    factors = {
        name: (
            entry["reference"],
            [(d["factor"], d["value"], d["reference"]) for d in entry["differs"] if not d["own"]],
        )
        for name, entry in entries.items()
    }
    assert "capsnet-r3-recon" not in factors
    assert factors["capsnet-r3-recon+r1"] == ("capsnet-r3-recon", [("iterations", "1", "3")])
    assert factors["capsnet-r3-recon+n5"] == ("capsnet-r3-recon", [("train_per_class", "5", "all")])
    assert factors["capsnet-kmeans"] == ("capsnet-r3-recon", [("routing", "kmeans", "dynamic")])
    assert [d["factor"] for d in entries["capsnet-kmeans"]["differs"] if d["own"]] == ["squash"]
    assert factors["cnn+tuned"] == ("cnn", [("tuning", "not yet", "none")])
    reference, differs = factors["cnn+n2"]
    assert reference == "capsnet-r3-recon+n2"
    assert {factor for factor, *_ in differs} == {"model", "loss", "reconstruction"}
    ladder = [(entry["variant"], entry["reference"]) for entry in found["ladder"]["mnist"]]
    assert ladder == [("cnn", None), ("capsnet-r3-recon+r1", "cnn"), ("capsnet-r3-recon", "capsnet-r3-recon+r1")]


OF_EITHER = {"share", "down_weight", "squash"}  # that CapsNet and the two-digit capsules say differently


@pytest.mark.parametrize(
    ("task", "variant", "reference", "factors"),
    [
        # its own layers, capsules and passes of EM are the model; what both say in one sense is a factor
        ("mnist", "em-matrix", "capsnet-r5", {"model", "loss"}),
        ("two_digit", "two-digit-kmeans", "capsnet-r5", {"model", "routing", "iterations", *OF_EITHER}),
    ],
)
def test_layers_of_another_kind_of_model_are_no_factors(
    tmp_path: Path, task: str, variant: str, reference: str, factors: set[str]
) -> None:
    (tmp_path / "kinds.yaml").write_text(
        "budget: reduced\nseeds: [0]\ntraining: {epochs: 2}\n"
        "variants: {capsnet-r5: {base: capsnet-r3, iterations: 5}}\n"
        f"tasks: {{{task}: {{variants: [{reference}, {variant}], reference: {reference}}}}}\n"
    )
    (entry,) = House.load(tmp_path / "kinds.yaml").describe({})["comparisons"]["ablation"][task]
    assert {found["factor"] for found in entry["differs"]} == factors


def test_rows_know_where_they_stand_on_an_axis(tmp_path: Path) -> None:
    found = house(tmp_path).describe({})["axes"]
    points = [(p["axis"], p["base"], p["variant"], p["value"]) for p in found["mnist"]]
    recon = "capsnet-r3-recon"
    assert points == [
        ("per_class", recon, f"{recon}+n2", 2),
        ("per_class", recon, f"{recon}+n5", 5),
        ("per_class", recon, recon, 6000),
        ("iterations", recon, f"{recon}+r1", 1),
        ("iterations", recon, recon, 3),
        ("per_class", "cnn", "cnn+n2", 2),
        ("per_class", "cnn", "cnn+n5", 5),
        ("per_class", "cnn", "cnn", 6000),
    ]
    fewer = house(tmp_path, ("    tuned:", "    train_images: 700\n    tuned:")).describe({})["axes"]["mnist"]
    assert {p["value"] for p in fewer if p["variant"] == "cnn"} == {70}


MISTAKES = [
    (
        ("tuning: {steps: 7, seeds: [1000, 1001], held_out: 40}\n", ""),
        "tasks.mnist sets tuned, but the plan has no key tuning",
    ),
    (("    tuned: [cnn]\n", ""), "the plan has a key tuning, but no task sets tuned"),
    (("seeds: [1000, 1001]", "seeds: [1]"), "tuning.seeds names 1, which the plan's own runs use"),
    (("steps: 7, seeds", "seeds"), "tuning gives no length; write epochs or steps."),
    (("steps: 7, seeds", "epochs: 1.0e+308, seeds"), "tuning.epochs is 1e+308"),
    (("cnn, capsnet-kmeans]", "cnn, cnn+tuned]\n    widths: {cnn: 1.0}"), "no variant 'cnn+tuned'"),
    (("tuned: [cnn]", "tuned: [cn]"), "tasks.mnist.tuned: 'cn' is not among the variants; did you mean 'cnn'?"),
    (("values: [2, 5]", "values: [2, 2]"), "tasks.mnist.axes.per_class names a value twice"),
    (("values: [2, 5]", "values: []"), "tasks.mnist.axes.per_class.values"),
    (("per_class:", "per_clas:"), "unknown key 'per_clas' in tasks.mnist.axes; did you mean 'per_class'?"),
    (("{values: [1, 3], variants: [capsnet-r3-recon]}", "[1, 3]"), "variant cnn has no routing; name the variants"),
    (("reference: capsnet-r3-recon\n", "reference: capsnet-r3\n"), "tasks.mnist.reference: 'capsnet-r3' is not among"),
    (("cnn+n2: capsnet-r3-recon+n2", "cnn+n3: cnn"), "tasks.mnist.references: 'cnn+n3' is not among the variants"),
    (("cnn+n2: capsnet-r3-recon+n2", "cnn: cnn"), "tasks.mnist.references compares cnn with itself; name another row"),
    (("ladder: [cnn, ", "ladder: [cnn, cnn, "), "tasks.mnist.ladder names a variant twice"),
    (("batch: 100}", "batch: 100, precision: bf16}"), None),
    (
        ("    tuned: [cnn]", "    training: {precision: bf16}\n    tuned: [cnn]\n    bf16: [cnn]"),
        "cnn trains in bf16 already, so its second row would be the same runs; set `precision: float32` for this",
    ),
    (
        ("    tuned: [cnn]", "    tuned: [cnn]\n    bf16: [cnn]"),
        "cnn trains at precision auto, which may take bf16, so",
    ),
    (
        ("tasks:\n", "tasks:\n  two_digit: {variants: [two-digit-average-mlp], axes: {iterations: [1, 5]}}\n"),
        "variant two-digit-average-mlp has no routing; name the variants",
    ),
    (("    tuned:", "    train_per_class: 3\n    tuned:"), "has both train_per_class and axes.per_class"),
    (("variants: [capsnet-r3-recon, cnn, capsnet-kmeans]", "variants: [capsnet-r3-recon, cnn, capsnet-uniform]"), None),
]


@pytest.mark.parametrize(("replaced", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes_are_sentences(tmp_path: Path, replaced: tuple[str, str], sentence: str | None) -> None:
    if sentence is None:  # the same plan, which is none: the test can tell
        assert house(tmp_path, replaced).cells
        return
    with pytest.raises(PlanError) as caught:
        house(tmp_path, replaced)
    assert sentence in str(caught.value)
    assert "rows.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_routing_of_one_pass_has_no_axis_of_passes(tmp_path: Path) -> None:
    uniform = ("[capsnet-r3-recon, cnn, capsnet-kmeans]", "[capsnet-r3-recon, cnn, capsnet-uniform]")
    axis = ("{values: [1, 3], variants: [capsnet-r3-recon]}", "{values: [2], variants: [capsnet-uniform]}")
    with pytest.raises(PlanError, match="variant capsnet-uniform: routing uniform makes one pass"):
        house(tmp_path, uniform, axis, ("capsnet-r3-recon+r1, ", ""))


@pytest.mark.parametrize("name", ["ablation", "ladder"])
def test_the_shipped_comparisons_say_what_they_change(name: str) -> None:
    shipped = House.load(config_folder() / f"{name}.yaml")
    assert {len(cell.seeds) for cell in shipped.cells} == {3}
    assert {cell.width for cell in shipped.cells} == {1.0}
    comparisons = shipped.describe({})["comparisons"]
    assert set(comparisons[name]) == {"mnist", "affnist", "multimnist", "two_digit"}
    for entries in comparisons[name].values():
        for entry in entries:
            assert entry["differs"] or entry["reference"] is None, entry


def test_the_ladder_changes_one_component_at_a_time() -> None:
    """All but CapsNet's convolutions, which differ from the CNN's in every number, and the two-digit head."""
    shipped = House.load(config_folder() / "ladder.yaml")
    for task, entries in shipped.describe({})["comparisons"]["ladder"].items():
        for entry in entries:
            own = [d["factor"] for d in entry["differs"] if not d["own"]]
            assert len(own) <= 1 or entry["variant"] == "cnn-vectors-trunk", (task, entry["variant"], own)


def test_a_choice_by_trials_of_another_source_or_other_data_is_none(tmp_path: Path) -> None:
    rows = house(tmp_path)
    cell = rows.cell("mnist", "cnn+tuned")
    choose(cell, digest=tuning_digest(rows, cell, "data"))
    tuned = (rows := house(tmp_path)).cell("mnist", "cnn+tuned")
    assert with_current_choice(rows, tuned, "data") is tuned
    assert not tuned.waits
    assert with_current_choice(rows, tuned, "other data").waits
    choose(cell, digest="of an older source")
    assert with_current_choice(rows, tuned, "data").waits
    untuned = rows.cell("mnist", "cnn")
    assert with_current_choice(rows, untuned, "data") is untuned


def test_a_routing_that_leaves_no_choice_of_normaliser_is_not_said_to_have_none() -> None:
    shipped = House.load(config_folder() / "ablation.yaml").describe({})["comparisons"]["ablation"]["mnist"]
    rows = {entry["variant"]: {found["factor"] for found in entry["differs"]} for entry in shipped}
    assert rows["capsnet-scaled-distance"] == {"routing"}  # its couplings are a softmax too
    assert "normaliser" in rows["capsnet-sigmoid"]
