"""Of which plan `capsbench bring` takes results to be, and when it takes what tuning chose there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from finished_runs import TUNED, chosen, finished, two_plans
from rich.console import Console

from capsbench.cli import bring as bringing
from capsbench.cli.bring import bring
from capsbench.cli.pack_results import pack_results
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError
from capsbench.files import read_json, write_json, write_text
from capsbench.locks import sole
from capsbench.pipeline import dataset_record, described, open_house
from capsbench.plan import House, config_folder
from capsbench.plan.done import tuning_digest
from capsbench.plan.tuning import GRID


@pytest.fixture
def tuned(tmp_path: Path, results: Path, no_data: object) -> tuple[House, DataSource]:
    (tmp_path / "tuned.yaml").write_text(TUNED)
    return open_house(tmp_path / "tuned.yaml")


def test_a_plan_of_the_suite_is_found_from_any_folder(
    results: Path, no_data: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    house, source = open_house(config_folder() / "quick.yaml")
    there = replace(house, root=tmp_path / "there")
    write_json(there.folder / "plan.json", described(there, dataset_record(source)) | {"file": "config/quick.yaml"})
    console = Console(record=True, width=300)
    bring(console, [there.folder], None)
    assert "it has no run of this plan" in console.export_text()
    assert read_json(house.folder / "plan.json")["digest"] == house.digest


def test_of_its_own_results_a_plan_that_is_named_misses_the_runs_that_it_has_not(
    plans: list[Path], tmp_path: Path
) -> None:
    house, source = open_house(plans[0])
    there = replace(house, root=tmp_path / "there")
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))
    write_json(there.folder / "runs/mnist/capsnet-r9/seed-0/manifest.json", {})
    console = Console(record=True, width=300)
    with pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [there.folder], plans[0])
    assert "1 run: the plan has no such run\n  mnist/capsnet-r9/seed-0\n" in console.export_text()


def test_a_run_that_was_evaluated_otherwise_is_told_which_options_it_had(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    """Two plans with the same row, whose weights are gone there, as they are of published runs."""
    text = TUNED.replace(", tuned: true", "").replace("tuning: {steps: 2, seeds: [9]}\n", "")
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    theirs.write_text(text.replace("[cnn]", "[cnn], attack_images: 7"))
    ours.write_text(text)
    house, source = open_house(theirs)
    there = replace(house, root=tmp_path / "there")
    finished(there, source, there.cells[0], 0, 60, 5)
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))

    def said() -> str:
        console = Console(record=True, width=300)
        with pytest.raises(CapsbenchError, match="1 run left out"):
            bring(console, [there.folder], ours)
        return console.export_text()

    run = "\n  mnist/cnn/seed-0\n"
    assert f"1 run: it was evaluated with attack_images: 7 (here 0); say the same in the task here{run}" in said()
    ours.write_text(text.replace("[cnn]", "[cnn], attack_images: 7, test_images: 50"))
    assert f"test_images: None (here 50); say the same in the task here (None: leave the key out){run}" in said()
    ours.write_text(text)
    theirs.write_text(theirs.read_text().replace("7", "8"))  # edited since: what was asked then is not known
    assert f"1 run: it was evaluated with other options, or by other code, than here{run}" in said()
    theirs.unlink()
    assert f"1 run: it was evaluated with other options, or by other code, than here{run}" in said()
    metrics = there.folder / "runs/mnist/cnn/seed-0/test/metrics.json"
    write_json(metrics, read_json(metrics) | {"weights": "of a training before"})
    assert f"1 run: it is not evaluated{run}" in said()
    theirs.write_text(text.replace("[cnn]", "[cnn], attack_images: 7"))
    assert f"1 run: it is not evaluated{run}" in said()


def test_the_options_of_a_run_s_own_row_are_told(tmp_path: Path, results: Path, no_data: object) -> None:
    """The first row of the plan is of another task, whose options are alike here and there."""
    text = TUNED.replace(", tuned: true}", "}\n  multimnist: {variants: [multimnist-cnn]}")
    text = text.replace("tuning: {steps: 2, seeds: [9]}\n", "")
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    theirs.write_text(text.replace("multimnist-cnn]", "multimnist-cnn], segmentation_pairs: 70"))
    ours.write_text(text)
    house, source = open_house(theirs)
    there = replace(house, root=tmp_path / "there")
    finished(there, source, there.cells[1], 0, 60, 5)
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))
    console = Console(record=True, width=300)
    with pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [there.folder], ours)
    told = "1 run: it was evaluated with segmentation_pairs: 70 (here 10000); say the same in the task here"
    assert f"{told}\n  multimnist/multimnist-cnn/seed-0\n" in console.export_text()


def test_where_no_run_counts_the_keys_that_differ_are_named_and_runs_were_left_out(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    folder, _, ours = two_plans(tmp_path, theirs=", batch: 64", ours=", rate: 2.0e-3")
    console = Console(record=True, width=300)
    with pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [folder], ours)
    keys = "training.batch: 64 (here 128); training.rate: 0.001 (here 0.002)"
    assert f"1 run: made with another config than here: {keys}\n  mnist/cnn/seed-0\n" in console.export_text()


def test_a_run_that_is_replaced_is_not_done_from_the_first_file_that_goes(
    tmp_path: Path, results: Path, no_data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, ours = two_plans(tmp_path, theirs="", ours="")
    here = results / "ours-digits/runs/mnist/cnn/seed-0"
    write_json(here / "manifest.json", {"digest": "of another training", "status": "done"})
    write_text(here / "test" / "metrics.json", "of the stale run")

    def stops(folder: Path) -> None:
        assert folder == here / "test"
        raise KeyboardInterrupt

    monkeypatch.setattr(bringing, "shutil", SimpleNamespace(rmtree=stops))
    with pytest.raises(KeyboardInterrupt):
        bring(Console(quiet=True), [folder], ours)
    assert not (here / "manifest.json").exists()


def test_a_run_with_metrics_of_one_of_two_conditions_is_not_evaluated(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    text = TUNED.replace("[cnn], tuned: true", "[capsnet-r3-recon]").replace("tuning: {steps: 2, seeds: [9]}\n", "")
    (path := tmp_path / "routed.yaml").write_text(text)
    house, source = open_house(path)
    there = replace(house, root=tmp_path / "there")
    finished(there, source, there.cells[0], 0, 60, 5)  # of its routing it has none
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))
    console = Console(record=True, width=300)
    with pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [there.folder], path)
    assert "1 run: it is not evaluated\n  mnist/capsnet-r3-recon/seed-0\n" in console.export_text()


def test_runs_on_mnist_are_brought_as_such_where_digits_may_stand_in(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    """Also where there is no MNIST, so that a training would take the digits."""
    text = (config_folder() / "paper.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("dataset: mnist", "dataset: mnist\nuci_digits: true"))
    console = Console(record=True, width=300)
    for _ in range(2):
        bring(console, [config_folder().parent / "results" / "paper"], tmp_path / "mine.yaml")
    said = console.export_text()
    assert "97 runs: brought" in said
    assert "97 runs: kept, done here already" in said
    assert [path.name for path in results.iterdir()] == ["mine"]


def test_a_plan_that_only_has_the_other_s_name_misses_no_rows(tmp_path: Path, results: Path, no_data: object) -> None:
    plan = yaml.safe_load((config_folder() / "paper.yaml").read_text())
    plan["tasks"] = {"mnist": plan["tasks"]["mnist"] | {"variants": ["capsnet-r1"]}}
    del plan["variants"]
    (tmp_path / "paper.yaml").write_text(yaml.safe_dump(plan))
    console = Console(record=True, width=300)
    bring(console, [config_folder().parent / "results" / "paper"], tmp_path / "paper.yaml")
    assert "5 runs: brought" in console.export_text()


def test_a_row_that_an_axis_makes_is_told_that_it_cannot_be_renamed(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    folder, _, ours = two_plans(tmp_path, theirs="", ours="")
    for path, words in ((tmp_path / "theirs.yaml", "[capsnet-r1]"), (ours, "[capsnet-r3], axes: {iterations: [1]}")):
        path.write_text(path.read_text().replace("[cnn]", words))
    house = House.load(tmp_path / "theirs.yaml", "uci-digits")
    run = folder / "runs/mnist/capsnet-r1/seed-0"
    write_json(run / "manifest.json", {"digests": {"config": house.cells[0].config_digest(0)}})
    console = Console(record=True, width=300)
    bring(console, [folder], ours)
    said = "has the config of this plan's mnist/capsnet-r3+r1, which an axis, `tuned` or `bf16` makes; to have it, name"
    assert f"1 run: {said} this variant in its place\n  mnist/capsnet-r1/seed-0\n" in console.export_text()


def test_a_row_that_is_tuned_nowhere_keeps_no_other_from_coming(
    tuned: tuple[House, DataSource], tmp_path: Path
) -> None:
    house, source = tuned
    there = replace(house, root=tmp_path / "there")
    finished(there, source, there.cell("mnist", "cnn"), 0, 60, 5)
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))
    console = Console(record=True, width=300)
    bring(console, [there.folder], None)
    assert "1 run: brought\n  mnist/cnn/seed-0" in console.export_text()
    assert not (house.folder / "tuning").exists()


def test_a_choice_that_is_made_here_while_bring_waits_stays(
    tuned: tuple[House, DataSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, source = tuned
    there = replace(house, root=tmp_path / "there")
    chosen(there, source, there.cell("mnist", "cnn+tuned"), GRID[4])
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))

    @contextlib.contextmanager
    def waits(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
        chosen(house, source, house.cell("mnist", "cnn+tuned"), GRID[0])  # by another process, which held it until then
        with sole(folder, say):
            yield

    monkeypatch.setattr(bringing, "sole", waits)
    bring(Console(quiet=True), [there.folder], None)
    assert open_house(house.path)[0].cell("mnist", "cnn+tuned").training.rate == GRID[0].rate


def test_a_tuned_row_comes_with_the_rate_that_it_was_trained_at(tmp_path: Path, results: Path, no_data: object) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(TUNED)
    house, source = open_house(path)
    there = replace(house, root=tmp_path / "there")
    row = there.cell("mnist", "cnn+tuned")
    assert row.waits
    assert row.tuned is not None
    digest = tuning_digest(there, row, dataset_record(source)["digest"])
    choice = {"recipe": row.tuned.recipe, "digest": digest, "chosen": GRID[4].training_keys()}
    write_json(row.tuned.path, choice)
    for name in ("figure.json", "manifest.json"):  # of a trial, which nobody evaluates
        write_json(row.tuned.path.with_suffix("") / GRID[4].name / "seed-9" / name, {"error": 1})
    there = replace(house, root=tmp_path / "there")  # which reads the choice
    finished(there, source, there.cell("mnist", "cnn+tuned"), 0, 60, 5)
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))
    console = Console(record=True, width=300)
    pack_results(console, there.folder, tmp_path / "back.tar.gz")
    tuning = house.folder / "tuning/mnist/cnn"
    with sole(tuning, console.print), pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [tmp_path / "back.tar.gz"], None)
    said = console.export_text()
    assert "the tuning of mnist/cnn+tuned: a process is at work on it, so its choice is not brought" in said
    assert not tuning.with_suffix(".json").exists()
    bring(console, [tmp_path / "back.tar.gz"], None)
    assert "1 run: brought\n  mnist/cnn+tuned/seed-0" in console.export_text()
    here, _ = open_house(path)
    assert here.cell("mnist", "cnn+tuned").training.rate == GRID[4].rate
    for name in ("figure.json", "manifest.json"):
        assert (here.folder / "tuning/mnist/cnn" / GRID[4].name / "seed-9" / name).is_file()

    write_json(here.folder / row.tuned.path.relative_to(there.folder), {**choice, "chosen": GRID[0].training_keys()})
    with pytest.raises(CapsbenchError, match="1 run left out"):  # this machine chose for itself, and chose otherwise
        bring(console, [tmp_path / "back.tar.gz"], None)
