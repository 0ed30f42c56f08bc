"""`capsbench verify`: a stored run made again is identical, or it is said where, how far and why not."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from places import REPOSITORY, Place
from rich.console import Console

from capsbench.cli.second_making import row_differences
from capsbench.cli.verify import _make, _plan_of, _threads_of, choose, verify_run
from capsbench.data.source import find_source
from capsbench.errors import CapsbenchError, PlanError
from capsbench.files import write_json
from capsbench.plan import Cell, House
from capsbench.plan.tuning import GRID
from capsbench.report.contract import Manifest, RunKey, UnreadableFileError
from capsbench.training.checkpoint import read_tensors, write_tensors

CNN = "runs/mnist/cnn/seed-0"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Two runs of one cell and one that fails, trained and evaluated, with the plan.json of a report."""
    place = Place(tmp_path_factory.mktemp("stored"), REPOSITORY)
    place.plan(variants="[cnn, diverging]", seeds=[0, 1])
    for stage, code in (("train", 3), ("evaluate", 0), ("report", 0)):  # 3: a run whose loss was not finite
        said = place.capsbench(stage, "tiny.yaml")
        assert said.code == code, said.text
    return place


@pytest.fixture
def place(stored: Place, tmp_path: Path) -> Place:
    shutil.copytree(stored.folder, tmp_path / "copy")
    return Place(tmp_path / "copy", stored.clone)


def change(path: Path, *keys: str, value: object) -> None:
    found = json.loads(path.read_text())
    inner = found
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(found))


@pytest.mark.slow
def test_a_run_that_is_drawn_is_identical_and_nothing_is_left_behind(place) -> None:
    before = {path: path.read_bytes() for path in place.folder.rglob("*") if path.is_file()}
    said = place.capsbench("verify", place.results, "--random", TMPDIR=str(place.folder))
    assert said.code == 0, said.text
    assert "expect a difference" not in said.out
    drawn = re.search(r"drawn from 4 trained runs with --draw (\d+): (mnist/\S+)", said.out)
    assert drawn is not None
    compared = "weights; history.csv" + "; predictions and metrics of test" * ("diverging" not in drawn[2])
    assert f"{drawn[2]}: identical ({compared})" in " ".join(said.out.split())
    assert {path: path.read_bytes() for path in place.folder.rglob("*") if path.is_file()} == before
    again = place.capsbench("verify", place.results, "--random", "--draw", drawn[1])
    assert f"--draw {drawn[1]}: {drawn[2]}\n" in again.out


@pytest.mark.slow
def test_altered_weights_predictions_and_metrics_are_named_with_how_far(place) -> None:
    run = place.results / CNN
    tensors, meta = read_tensors(run / "weights.safetensors")
    name = sorted(tensors)[0]
    tensors[name].view(-1)[3] += 0.25
    write_tensors(run / "weights.safetensors", tensors, {"run": meta["run"]})
    with np.load(run / "test/scores.npz") as file:
        arrays = dict(file)
    arrays["scores"][0, 0] += np.float16(0.5)
    np.savez_compressed(run / "test/scores.npz", **arrays)
    history = (run / "history.csv").read_text().splitlines()
    assert history[0] == "step,epoch,loss,classification,reconstruction,rate,images_per_second"
    last = history[-1].split(",")
    last[5] = repr(float(last[5]) * (1 + 2**-52))  # the rate, by its last bit
    last[6] = "1.0"  # a time is never the same
    (run / "history.csv").write_text("\n".join([*history[:-1], ",".join(last)]) + "\n")
    error = json.loads((run / "test/metrics.json").read_text())["metrics"]["error"]["value"]
    change(run / "test/metrics.json", "metrics", "error", "value", value=error + 5)
    said = place.capsbench("verify", place.results, "--run", "mnist/cnn/0")
    assert said.code == 1, said.text
    assert f"weights: {name} differs in 1 of {tensors[name].numel():,} values, by 0.25 at most" in said.out
    assert "weights.safetensors is not the file that its manifest describes" in said.out
    assert "test/scores.npz: scores differs in 1 of 200 values, by 0.5 at most" in said.out
    assert re.search(rf"history.csv: rate differs in 1 of {len(history) - 1} values, by [\d.]+e-\d+ at most", said.out)
    assert "images_per_second" not in said.out
    assert f"test: error is {error + 5} %, now {error} (-5)" in said.out
    assert "mnist/cnn/seed-0: not identical." in said.out
    assert "versions): please report it, unless" in said.out


@pytest.mark.slow
def test_each_difference_is_enough_alone(place) -> None:
    reason = place.results / "runs/mnist/diverging/seed-0/manifest.json"
    change(reason, "reason", value="a guess")
    change(place.results / CNN / "test/metrics.json", "metrics", "error", "value", value=77.5)
    history = place.results / "runs/mnist/cnn/seed-1/history.csv"
    history.write_text("\n".join(history.read_text().splitlines()[:-1]) + "\n")
    for run, expected in {
        "diverging/0": "status is failed (a guess), now failed (",
        "cnn/0": "test: error is 77.5 %, now ",
        "cnn/1": "history.csv: rate is float64 [",
    }.items():
        said = place.capsbench("verify", place.results, "--run", f"mnist/{run}")
        assert said.code == 1, said.text
        assert expected in said.out


@pytest.mark.slow
def test_threads_are_as_many_as_the_stored_run_had(place) -> None:
    change(place.results / CNN / "manifest.json", "resolved", "threads", value=2)
    said = place.capsbench("verify", place.results, "--run", "mnist/cnn/0")
    assert "made again in" in said.out, said.text
    assert "threads: was" not in said.out


@pytest.mark.slow
def test_another_plan_thread_or_version_is_named_as_the_reason(place) -> None:
    place.plan(variants="[cnn, diverging]", seeds=[0, 1], steps=6)
    change(place.results / CNN / "manifest.json", "versions", "torch", value="1.0")
    change(place.results / CNN / "manifest.json", "machine", "processor", value="an abacus")
    change(place.results / CNN / "manifest.json", "machine", "environment", value="OMP_DYNAMIC=true")
    change(place.results / CNN / "manifest.json", "resumed", value=1)
    said = place.capsbench("verify", place.results, "--run", "mnist/cnn/seed-0", "--threads", 2)
    assert said.code == 1, said.text
    for words in (
        "config: steps: was 4, now 6; training.steps: was 4, now 6",
        "versions.torch: was 1.0, now ",
        "processor: was an abacus, now ",
        "environment: was OMP_DYNAMIC=true, now None",
        "resumed: 1; the manifest names only the versions and the machine of the last part",
        "threads: was 1, now 2",
    ):
        assert words in said.out
    assert "data: the digests differ" not in said.out
    before, _, after = said.out.partition("made again in")
    assert "expect a difference (Ctrl-C stops):\n  config: training.steps: was 4, now 6\n" in before
    assert "expect a difference" not in after


@pytest.mark.slow
def test_without_weights_and_scores_the_manifest_s_digest_decides(place) -> None:
    for path in [*place.results.rglob("weights.safetensors"), *place.results.rglob("scores.npz")]:
        path.unlink()
    change(place.results / CNN / "manifest.json", "digests", "training_source", value="another")
    change(place.results / CNN / "test/metrics.json", "digest", value="of another evaluation")
    said = place.capsbench("verify", place.results, "--run", "mnist/cnn/0")
    assert said.code == 0, said.text
    assert "although training source: the digests differ" in said.out
    assert "although evaluation: its options or its source differ" in said.out
    change(place.results / CNN / "manifest.json", "weights", value="0" * 64)
    said = place.capsbench("verify", place.results, "--run", "mnist/cnn/0")
    assert said.code == 1
    assert "by how much is unknown" in said.out


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with plan.json alone, and its plan beside it."""
    monkeypatch.chdir(tmp_path)
    Place(tmp_path, REPOSITORY).plan()
    dataset = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "0" * 64}
    write_json(tmp_path / "results/plan.json", House.load("tiny.yaml", "uci-digits").describe(dataset))
    return Path("results")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ((None, False, None), "Name a run with --run task/variant/seed"),
        (("mnist/cnn/0", True, None), "Name a run with --run task/variant/seed"),
        (("mnist/cnn/0", False, 3), "Name a run with --run task/variant/seed"),
        (("mnist/cnn/7", False, None), "has no run 'mnist/cnn/7'; did you mean 'mnist/cnn/0'"),
        ((None, True, None), "has no trained run"),
    ],
)
def test_a_run_that_is_not_there_is_a_sentence(described: Path, said: tuple, sentence: str) -> None:
    with pytest.raises(CapsbenchError, match=re.escape(sentence)):
        choose(Console(), described, *said)


def test_what_is_drawn_is_decided_by_the_number_that_is_said(described: Path) -> None:
    rows = ("cnn", "capsnet-r3-recon", "diverging")
    for row in rows:
        write_json(described / f"runs/mnist/{row}/seed-0/manifest.json", {})
    console = Console(record=True, width=300)
    drawn = [choose(console, described, None, True, draw).variant for draw in (*range(10), *range(10))]
    assert drawn[:10] == drawn[10:]
    assert set(drawn) == set(rows)
    assert f"drawn from 3 trained runs with --draw 0: mnist/{drawn[0]}/seed-0" in console.export_text()


def test_a_row_of_code_from_outside_is_found_as_its_plan_names_it(described: Path) -> None:
    plan = json.loads((described / "plan.json").read_text())
    plan["runs"][0]["variant"] = "mine.route"
    write_json(described / "plan.json", plan | {"tasks": {"mnist": ["mine.route", *plan["tasks"]["mnist"][1:]]}})
    assert choose(Console(), described, "mnist/mine:route/0", False, None) == RunKey("mnist", "mine.route", 0)


def test_a_run_without_its_manifest_or_its_plan_is_a_sentence(described: Path) -> None:
    key = choose(Console(), described, "mnist/cnn/seed-0", False, None)
    with pytest.raises(CapsbenchError, match="is not there; there is nothing to compare with"):
        verify_run(Console(), described, key, None, None, None)
    Path("tiny.yaml").rename("elsewhere.yaml")
    with pytest.raises(CapsbenchError, match="does not exist; say where it is with --plan"):
        _plan_of(described, None)
    assert _plan_of(described, Path("elsewhere.yaml")) == Path("elsewhere.yaml")


def test_a_tuned_row_is_made_again_with_the_choice_that_lies_beside_its_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, REPOSITORY)
    place.plan(variants="[cnn]\n    tuned: true")
    text = Path("tiny.yaml").read_text().replace("tasks:", "tuning: {steps: 2, seeds: [1000], held_out: 20}\ntasks:")
    Path("tiny.yaml").write_text(text)
    house = House.load("tiny.yaml", "uci-digits")
    house = replace(house, root=tmp_path / "elsewhere")
    folder = house.folder
    dataset = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "0" * 64}
    write_json(folder / "plan.json", house.describe(dataset))
    key = choose(Console(), folder, "mnist/cnn+tuned/0", False, None)
    about = {"schema": 1, "run": key._asdict(), "status": "done", "digest": "d", "dataset": dataset}
    write_json(folder / "runs/mnist/cnn+tuned/seed-0/manifest.json", about)
    with pytest.raises(CapsbenchError, match=r"cnn.json is not there, or not a choice by this plan"):
        verify_run(Console(), folder, key, None, None, None)
    made: list[Cell] = []
    monkeypatch.setattr("capsbench.cli.verify._make", lambda _, __, cell, *___: made.append(cell))
    cell = house.cell("mnist", "cnn+tuned")
    assert cell.tuned is not None
    write_json(cell.tuned.path, {"recipe": cell.tuned.recipe, "chosen": GRID[3]._asdict()})
    with pytest.raises(UnreadableFileError):  # nothing was made: only with which rate is asked here
        verify_run(Console(), folder, key, None, None, None)
    assert made[0].training.rate == GRID[3].rate


@pytest.mark.parametrize("threads", [None, "two", 0, True, 10**12])
def test_threads_that_are_no_number_of_them_are_asked_for(described: Path, threads: object) -> None:
    dataset = {"name": "uci-digits", "badge": "UCI digits, not MNIST"}
    run = {"task": "mnist", "variant": "cnn", "seed": 0}
    stored = {"schema": 1, "run": run, "status": "done", "digest": "d", "dataset": dataset}
    manifest = Manifest.model_validate({**stored, "resolved": {"threads": threads}})
    with pytest.raises(CapsbenchError, match=rf"mnist/cnn/seed-0: its manifest says {threads!r} for resolved.threads"):
        _threads_of(manifest)
    assert _threads_of(Manifest.model_validate(stored)) == 1


@pytest.mark.parametrize(
    ("said", "stored", "again"),
    [("auto", "bf16", "bf16"), ("auto", "float32", "float32"), ("auto", "float8", None), ("float32", "bf16", None)],
)
def test_where_the_plan_leaves_the_precision_open_it_is_the_stored_run_s(
    described: Path, monkeypatch: pytest.MonkeyPatch, said: str, stored: str, again: str | None
) -> None:
    Path("tiny.yaml").write_text(Path("tiny.yaml").read_text().replace("precision: float32", f"precision: {said}"))
    house = House.load("tiny.yaml", "uci-digits")
    key, dataset = RunKey("mnist", "cnn", 0), {"name": "uci-digits", "badge": "UCI digits, not MNIST"}
    about = {"schema": 1, "run": key._asdict(), "status": "done", "digest": "d", "dataset": dataset}
    manifest = Manifest.model_validate({**about, "resolved": {"device": "cpu", "precision": stored}})
    given, asked = [], []  # the precision, and the device: the stored run's, also where a GPU is free

    def train(*arguments: object) -> dict[str, object]:
        given.append(arguments[-1])
        return {"status": "failed", "seconds": 0.0}

    monkeypatch.setattr("capsbench.training.run.train_run", train)
    holds = "capsbench.cli.verify.held_device"
    monkeypatch.setattr(holds, lambda _, name, __: nullcontext(asked.append(name) or torch.device("cpu")))
    cell, source = house.cell("mnist", "cnn"), find_source("uci-digits")
    _make(Console(quiet=True), house, cell, 0, source, manifest, None, 1)
    assert given == [None if again is None else {"precision": again, "precision_timings": None}]
    assert asked == ["cpu"]


def test_a_seed_that_the_plan_has_no_more_is_a_sentence(described: Path) -> None:
    key = RunKey("mnist", "cnn", 1)
    about = {"schema": 1, "run": key._asdict(), "status": "done", "digest": "d"}
    dataset = {"name": "uci-digits", "badge": "UCI digits, not MNIST"}
    write_json(described / "runs/mnist/cnn/seed-1/manifest.json", about | {"dataset": dataset})
    with pytest.raises(PlanError, match=r"mnist/cnn no longer has seed 1; it has \[0\]\."):
        verify_run(Console(), described, key, None, None, None)


def test_a_plan_among_the_results_is_not_followed_unasked(described: Path) -> None:
    Path("tiny.yaml").rename("results/tiny.yaml")
    change(described / "plan.json", "file", value="results/tiny.yaml")
    with pytest.raises(CapsbenchError, match="is inside that folder; look at it first, then give --plan"):
        _plan_of(described, None)
    Path("linked").symlink_to("results")
    change(described / "plan.json", "file", value="linked/tiny.yaml")
    with pytest.raises(CapsbenchError, match="is inside that folder; look at it first, then give --plan"):
        _plan_of(described, None)


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ("step,digit,images_per_second\n1,a,8\n2,b,\n", []),
        ("step,digit\n1,a\n2,c\n", ["curve.csv: digit differs in 1 of 2 values"]),
        (
            "step,digit\n1,a\n",
            ["curve.csv: digit is <U1 [2], now <U1 [1]", "curve.csv: step is float64 [2], now float64 [1]"],
        ),
        ("", ["curve.csv: No columns to parse from file"]),
        (None, ["curve.csv: only in the stored making"]),
    ],
)
def test_differences_of_what_was_measured_along_training(tmp_path: Path, again: str | None, words: list[str]) -> None:
    stored, second = tmp_path / "stored", tmp_path / "again"
    for folder, text in ((stored, "step,digit,images_per_second\n1,a,9.5\n2,b,7\n"), (second, again)):
        folder.mkdir()
        if text is not None:
            (folder / "curve.csv").write_text(text)
    assert row_differences(stored, second) == (words, ["curve.csv"])
