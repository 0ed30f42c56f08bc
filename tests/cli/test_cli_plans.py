"""Plans that share a name, options that are said twice, and commands that read results alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from finished_runs import chosen, finished
from places import REPOSITORY, Place
from rich.console import Console
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.cli.chosen import rows_of, to_time
from capsbench.cli.stages import train_cells
from capsbench.data.download import DownloadError
from capsbench.errors import DataError, PlanError, ResourceError
from capsbench.files import write_text
from capsbench.locks import sole
from capsbench.pipeline import Pipeline, dataset_record, open_house, open_results, write_plan
from capsbench.plan import House, config_folder
from capsbench.plan.tuning import GRID


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, REPOSITORY)


def unreachable(*_: object) -> Path:
    raise DownloadError("no mirror answers")


def described(place: Place, name: str = "tiny") -> Path:
    """The plan tiny.yaml, with results of it."""
    plan = place.plan()
    house, _ = open_house(plan)
    assert house.name.startswith(name)
    house.folder.mkdir(parents=True)
    (house.folder / "plan.json").write_text(json.dumps({"file": plan.as_posix(), "digest": house.digest}))
    return plan


def test_plan_names_variants_that_tables_could_not_tell_apart(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for title, said in (("CapsNet", "a and b have the same title, 'CapsNet', so tables show their names"), ("C", "")):
        path.write_text(f"""
budget: reduced
seeds: [0]
training: {{steps: 1}}
variants:
  a: {{base: capsnet-r3, squash: half, title: CapsNet}}
  b: {{base: capsnet-r1, squash: half, title: {title}}}
tasks:
  mnist: {{variants: [a, b, capsnet-r3]}}
  affnist: {{variants: [a]}}
""")
        asked = CliRunner().invoke(app, ["plan", str(path)])
        assert asked.exit_code == 0
        assert said in asked.output
        assert asked.output.count("the same title") == bool(said)


def test_a_plan_does_not_take_over_the_results_of_another_of_its_name(place, no_data, results) -> None:
    plan = described(place)
    other = place.folder / "mine" / "tiny.yaml"
    other.parent.mkdir()
    other.write_text(plan.read_text())
    open_house(other)  # a copy makes the same results
    other.write_text(plan.read_text().replace("batch: ", "batch: 1"))
    for way in (open_house, open_results):
        with pytest.raises(PlanError) as error:
            way(other)
        assert f"holds the results of {plan}, which this plan would replace; give it a `name:`" in str(error.value)
    other.write_text("name: another\n" + other.read_text().replace("name: tiny\n", ""))
    open_house(other)
    other.write_text(other.read_text().replace("name: another\n", "name: tiny\n"))
    house, _ = open_house(plan)
    (house.folder / "plan.json").rename(house.folder / "aside.json")
    open_house(other)  # of another plan nothing is known
    aside = json.loads((house.folder / "aside.json").read_text())
    (house.folder / "cells").mkdir()
    (house.folder / "cells" / "report.json").write_text(json.dumps({"source": "", "plan": aside}))
    with pytest.raises(PlanError, match="holds the results of"):  # whose runs are begun, and no report is drawn
        open_house(other)
    plan.rename(place.folder / "moved.yaml")  # a plan that was moved is still itself
    open_house(other)


def test_a_folder_is_its_plan_s_from_its_first_training_on(place, no_data, results) -> None:
    plan = place.plan(variants="[cnn]")
    house, source = open_house(plan)
    train_cells(Console(quiet=True), house, source, house.cells, "cpu", 1)
    other = place.folder / "mine" / "tiny.yaml"
    other.parent.mkdir()
    other.write_text(plan.read_text().replace("batch: ", "batch: 1"))
    with pytest.raises(PlanError, match="holds the results of"):
        open_house(other)


def test_where_a_plan_lies_is_known_in_whatever_folder_it_is_named(place, no_data, results, monkeypatch) -> None:
    """plan.json names it as it was named then: from another folder that is another file, or none."""
    for name in ("mine", "yours"):
        (place.folder / name).mkdir()
        (place.folder / name / "tiny.yaml").write_text(place.plan(variants="[cnn]").read_text())
    mine, yours = (place.folder / name / "tiny.yaml" for name in ("mine", "yours"))
    yours.write_text(yours.read_text().replace("batch: 16", "batch: 8"))
    monkeypatch.chdir(mine.parent)
    house, source = open_house("tiny.yaml")
    train_cells(Console(quiet=True), house, source, house.cells, "cpu", 1)
    assert json.loads((house.folder / "plan.json").read_text())["file"] == "tiny.yaml"
    for folder, name in ((yours.parent, "tiny.yaml"), (place.folder, "yours/tiny.yaml")):
        monkeypatch.chdir(folder)
        with pytest.raises(PlanError, match=rf"holds the results of {mine}, which this plan would replace"):
            open_house(name)
    mine.write_text(mine.read_text().replace("batch: 16", "batch: 4"))  # its own, edited
    monkeypatch.chdir(yours.parent)
    open_house("../mine/tiny.yaml")
    shutil.copytree(results / house.name, place.folder / "copied" / house.name)
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(place.folder / "copied"))  # of which nobody knows where its plan lies
    open_house("tiny.yaml")


def test_of_two_plans_that_begin_at_once_the_second_is_refused(place, no_data, results) -> None:
    plan = place.plan(variants="[cnn]")
    other = place.folder / "mine" / "tiny.yaml"
    write_text(other, plan.read_text().replace("batch: 16", "batch: 8"))
    (first, source), (second, _) = open_house(plan), open_house(other)  # neither finds anything
    Pipeline(first, source).brought_up_to_date()
    with pytest.raises(PlanError, match="holds the results of"):
        Pipeline(second, source).brought_up_to_date()
    with pytest.raises(PlanError, match="holds the results of"):
        train_cells(Console(quiet=True), second, source, second.cells, "cpu", 1)
    assert not (second.folder / "runs").exists()


def test_results_are_read_without_asking_anybody_for_data(place, results, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPSBENCH_CACHE", str(tmp_path / "no cache"))
    monkeypatch.setattr("capsbench.data.download.download_files", None)  # whoever asks fails
    plan = place.plan()
    text = plan.read_text()
    plan.write_text(text.replace("uci_digits: true\n", ""))
    house, source = open_results(plan)
    assert (house.name, source.badge) == ("tiny", "MNIST")
    monkeypatch.setenv("CAPSBENCH_DATA", str(tmp_path / "named"))
    with pytest.raises(DataError):
        open_results(plan)
    monkeypatch.delenv("CAPSBENCH_DATA")
    plan.write_text(text.replace("uci_digits: true\n", "data_folder: named\n"))
    with pytest.raises(DataError, match="which the plan names"):
        open_results(plan)
    plan.write_text(text)
    assert open_results(plan)[0].name == "tiny-digits"  # what a run would make
    (results / "tiny").mkdir(parents=True)
    assert [of.name for of in (open_results(plan)[0],)] == ["tiny"]  # what is there
    (results / "tiny-digits").mkdir()
    assert open_results(plan)[0].name == "tiny-digits"
    (results / "tiny").rmdir()
    house, source = open_results(plan)
    assert (house.name, source.dataset) == ("tiny-digits", "uci-digits")


def test_other_data_than_mnist_are_not_taken_for_granted(place, results, monkeypatch, tmp_path: Path) -> None:
    """Their checksums are read off the files: without these there is none to know a run by."""
    monkeypatch.delenv("CAPSBENCH_DATA", raising=False)
    monkeypatch.setenv("CAPSBENCH_CACHE", str(tmp_path / "no cache"))
    monkeypatch.setattr("capsbench.data.download.download_files", unreachable)
    plan = place.plan(uci_digits="false\ndataset: kmnist")
    with pytest.raises(DataError, match="no mirror answers; name a folder that holds its four files"):
        open_results(plan)


def test_an_option_that_is_said_twice_means_both(place) -> None:
    place.plan(variants="[cnn, capsnet-r1, capsnet-r3]", seeds=[0, 1, 2])
    words = "--variant capsnet-r3 --variant cnn --seed 2 --seed 0"
    said = place.capsbench("train", "tiny.yaml", *words.split())
    assert said.code == 0, said.text
    made = {f"{m['run']['variant']} {m['run']['seed']}" for m in map(json.loads, place.manifests().values())}
    assert made == {"cnn 0", "cnn 2", "capsnet-r3 0", "capsnet-r3 2"}
    for words, expected in (
        ("--variant cnn --variant capsnet-r2", "capsnet-r2"),
        ("--task mnist --task minst", "has no task 'minst'; did you mean 'mnist'?"),
        ("--variant cnn --seed 0 --seed 7", "mnist/cnn has no seed 7; the seeds are [0, 1, 2]."),
    ):
        said = place.capsbench("train", "tiny.yaml", *words.split())
        assert said.code == 2
        assert expected in said.err


def test_a_variant_stands_for_its_tuned_row_of_the_same_task_alone(place) -> None:
    plan = place.plan(variants="[cnn]\n    tuned: true")
    also = "tuning: {steps: 2, seeds: [9]}\ntasks:\n  affnist: {variants: [cnn], tuned: true}"
    plan.write_text(plan.read_text().replace("tasks:", also))
    cells = rows_of(House.load(plan), ["mnist"], ["cnn"])
    assert [cell.label for cell in cells] == ["mnist/cnn", "mnist/cnn+tuned"]


@pytest.mark.parametrize("of_other_trials", [False, True])
def test_a_run_at_a_rate_that_other_trials_chose_is_to_be_made_again(
    place, no_data, results, of_other_trials: bool
) -> None:
    plan = place.plan(variants="[cnn]\n    tuned: true")
    plan.write_text(plan.read_text().replace("tasks:", "tuning: {steps: 2, seeds: [9]}\ntasks:"))
    house, source = open_house(plan)
    chosen(house, source, house.cell("mnist", "cnn+tuned"), GRID[1], "of others" if of_other_trials else None)
    house, source = open_house(plan)
    finished(house, source, house.cell("mnist", "cnn+tuned"), 0, 1, 1)
    asked = {path.parent.name for path in Pipeline.from_snakemake([plan], {}, main=True).evaluated()}
    assert asked == {"cnn"} | ({"cnn+tuned"} if of_other_trials else set())


def test_a_job_that_reads_its_plan_writes_nothing(place, no_data, results) -> None:
    """On a cluster's node, while the Snakemake that sent it is at work on these results."""
    plan = place.plan()
    Pipeline.from_snakemake([plan], {}, main=False)
    assert not results.exists()
    Pipeline.from_snakemake([plan], {}, main=True)
    assert results.exists()


def test_a_plan_that_was_read_beside_a_snakemake_at_work_is_not_begun_after_it(place, no_data, results, capsys) -> None:
    """What is stale was not taken back then, so Snakemake would believe promises that nobody keeps."""
    plan = place.plan()
    first = Pipeline.from_snakemake([plan], {}, main=True)
    with sole(first.house.folder, print):
        second = Pipeline.from_snakemake([plan], {}, main=True)
        assert "nothing is written there" in capsys.readouterr().err
    with pytest.raises(ResourceError, match="Another Snakemake is at work on"):
        second.begin()
    first.begin()


def test_a_results_folder_with_braces_is_refused_before_snakemake_takes_it_for_a_pattern(
    place, no_data, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path / "{scratch}"))
    with pytest.raises(PlanError, match="has braces, which make a path a pattern to Snakemake; set CAPSBENCH_RESULTS"):
        Pipeline.from_snakemake([place.plan()], {}, main=True)
    assert not (tmp_path / "{scratch}").exists()


def test_a_plan_that_is_named_counts_as_it_is_now_and_not_as_its_last_report_had_it(place, no_data, results) -> None:
    plan = place.plan(variants="[cnn]")
    nothing = CliRunner().invoke(app, ["export", str(plan)])
    assert "plan.json is not there; give the folder of a plan's results, or run the plan first." in str(
        nothing.exception
    )
    house, source = open_house(plan)
    train_cells(Console(quiet=True), house, source, house.cells, "cpu", 1, evaluate=True)
    write_plan(house, dataset_record(source))
    before = (house.folder / "plan.json").read_bytes()
    house, source = open_house(place.plan(variants="[cnn]", seeds=[0, 1]))
    train_cells(Console(quiet=True), house, source, house.cells, "cpu", 1, evaluate=True)
    (house.folder / "plan.json").write_bytes(before)  # as where the run was copied there from another machine
    by_folder, by_plan = (CliRunner().invoke(app, ["export", str(where)]) for where in (house.folder, plan))
    assert "mnist/cnn/seed-1: foreign" in by_folder.output
    assert "foreign" not in by_plan.output
    older = f"The crate's plan.json or tables do not match these runs; run `capsbench report {plan}` first."
    assert older in " ".join(by_plan.output.split())
    assert "not match" not in by_folder.output
    both = CliRunner().invoke(app, ["compare", str(plan), str(house.folder)])
    assert "A: " in both.output
    assert "(tiny-digits, 2 runs)" in both.output
    assert "B: mnist/cnn/seed-1: foreign" in both.output
    metrics = (house.folder / "export" / "metrics.csv").read_text()
    assert "mnist,cnn,1," in metrics
    assert (house.folder / "plan.json").read_bytes() == before


def test_bench_times_capsnet_or_the_first_row_of_a_task_without_it() -> None:
    house = House.load(config_folder() / "two-digit-again.yaml")
    assert [cell.variant for cell in to_time(house, "two_digit", None)] == [house.cells[0].variant]
    paper = House.load(config_folder() / "paper.yaml")
    assert [cell.variant for cell in to_time(paper, "two_digit", None)] == ["capsnet-r3-recon"]
    assert [cell.variant for cell in to_time(paper, "mnist", ["cnn", "capsnet-r1"])] == ["cnn", "capsnet-r1"]
    with pytest.raises(PlanError, match=r"has no task 'mnist'"):
        to_time(house, "mnist", None)
