"""A run by an earlier source counts where that source was shown to give the same bits, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import mnist_folder

from capsbench.errors import PlanError
from capsbench.evaluation.done import evaluation_digest, is_evaluated, stored_evaluation
from capsbench.files import read_json, write_json
from capsbench.pipeline import state
from capsbench.plan import House
from capsbench.plan import same_bits as shown
from capsbench.plan.done import DECIDE, evaluation_source, is_done, run_digests, training_source
from capsbench.provenance import digest_of

REPOSITORY = Path(__file__).resolve().parents[2]
ON_A_CPU = {"resolved": {"device": "cpu", "precision": "float32"}}


def change(**sources: list[str]) -> dict[str, Any]:
    return {"runs": [{"training": ["-", "-"], "evaluation": ["-", "-"], **sources}]}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def write(*changes: dict[str, Any]) -> Path:
        path = tmp_path / "same-bits.json"
        write_json(path, {"schema": 1, "changes": changes})
        shown._shown.cache_clear()
        return path

    monkeypatch.setattr(shown, "same_bits_file", lambda: tmp_path / "same-bits.json")
    yield write
    shown._shown.cache_clear()


def test_sources_are_followed_from_change_to_change_and_only_backwards(written) -> None:
    written(change(training=["a", "b"]), change(training=["b", "c"], evaluation=["x", "y"]))
    assert shown.earlier_sources("training", "c", ON_A_CPU) == ["a", "b"]
    assert shown.earlier_sources("training", "b", ON_A_CPU) == ["a"]
    assert shown.earlier_sources("training", "a", ON_A_CPU) == []
    assert shown.earlier_sources("evaluation", "y", ON_A_CPU) == ["x"]
    assert shown.earlier_sources("evaluation", "c", ON_A_CPU) == []


@pytest.mark.parametrize(
    "resolved",
    [{"device": "cuda:0", "precision": "float32"}, {"device": "cpu", "precision": "bf16"}, {}, None, "cpu"],
)
def test_what_was_shown_on_a_cpu_in_float32_says_nothing_of_others(written, resolved: Any) -> None:
    written(change(training=["a", "b"]))
    assert shown.earlier_sources("training", "b", {"resolved": resolved}) == []


def test_without_the_file_the_digest_alone_decides(written) -> None:
    assert shown.earlier_sources("training", "b", ON_A_CPU) == []


def test_a_file_that_is_not_whole_is_named(written) -> None:
    path = written({"runs": [{"training": ["a"]}]})
    with pytest.raises(PlanError, match=r"same-bits\.json is not as"):
        shown.earlier_sources("training", "b", ON_A_CPU)
    path.write_text("{")
    with pytest.raises(PlanError, match=r"same-bits\.json is not as"):
        shown.earlier_sources("training", "b", ON_A_CPU)


def test_a_run_and_its_metrics_by_an_earlier_source_count(written, tmp_path: Path) -> None:
    house = House.load(REPOSITORY / "config" / "paper.yaml")
    cell = house.cell("two_digit", "two-digit-average-mlp")
    now = run_digests(house, cell, 0, "data")
    then = digest_of({**{key: now[key] for key in DECIDE if key in now}, "training_source": "earlier"})
    manifest = {
        "digest": then, "status": "done", "weights": "w", "dataset": {}, **ON_A_CPU,
        "run": {"task": cell.task, "variant": cell.folder_name, "seed": 0},
    }  # fmt: skip
    scored = digest_of([then, "w", cell.options.evaluation_options(), "earlier"])
    write_json(tmp_path / "manifest.json", manifest)
    for condition in cell.options.conditions(cell.spec):
        write_json(tmp_path / condition / "metrics.json", {"digest": scored})
    assert is_done(tmp_path, now) is None
    assert not is_evaluated(tmp_path, cell, manifest)
    written(
        change(training=["earlier", training_source(house, cell)]),
        change(evaluation=["earlier", evaluation_source(cell)]),
    )
    assert is_done(tmp_path, now) == manifest
    assert is_evaluated(tmp_path, cell, manifest)
    assert stored_evaluation(tmp_path, cell, manifest) == scored != evaluation_digest(cell, manifest)
    assert is_done(tmp_path, run_digests(house, cell, 0, "other data")) is None
    assert is_done(tmp_path, run_digests(house, cell, 1, "data")) is None
    write_json(tmp_path / "manifest.json", {**manifest, "resolved": {"device": "cuda:0", "precision": "float32"}})
    assert is_done(tmp_path, now) is None


def test_the_page_is_drawn_again_where_more_sources_were_shown_to_be_one(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "same-bits.json"
    monkeypatch.setattr(state, "same_bits_file", lambda: path)
    before = state.report_source()
    write_json(path, {"changes": []})
    assert state.report_source() != before


def test_the_stored_file_says_where_each_equality_was_shown() -> None:
    known = read_json(shown.same_bits_file())
    for entry in known["changes"]:
        assert (entry["device"], entry["precision"]) == ("cpu", "float32")
        assert len(entry["before"]) == len(entry["after"]) == 40
        assert entry["steps"] > 0
        assert entry["runs"]
        for run in entry["runs"]:
            assert {"weights", "history.csv"} <= run["bits"].keys()
            assert any(name.endswith("predictions.npz") for name in run["bits"])


@pytest.mark.slow
def test_the_stored_change_gives_the_same_bits_here(tmp_path: Path) -> None:
    """Of one row and a few steps: the two commits of the last change that is written down."""
    last = read_json(shown.same_bits_file())["changes"][-1]
    for name in ("before", "after"):
        if subprocess.run(["git", "cat-file", "-e", last[name]], cwd=REPOSITORY, capture_output=True).returncode:
            pytest.skip(f"this clone does not have the commit {last[name][:7]}")
    to, environment = tmp_path / "same-bits.json", {**os.environ, "CAPSBENCH_DATA": mnist_folder()}
    words = ["--after", last["after"], "--variant", "two-digit-average-linear", "--steps", "3", "--to", str(to)]
    command = [sys.executable, "benchmarks/same_bits.py", last["before"], *words]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
    (entry,) = read_json(to)["changes"]
    assert [run["variant"] for run in entry["runs"]] == ["two-digit-average-linear"]
    assert (entry["before"], entry["after"]) == (last["before"], last["after"])
