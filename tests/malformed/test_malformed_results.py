"""Malformed manifests, metrics and plan.json: each is left out by name, or one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from malformed import PLAN, damaged, many, one_sentence, torn

from capsbench.evaluation.done import is_evaluated
from capsbench.files import write_json
from capsbench.pipeline import numbers_digest
from capsbench.plan import House
from capsbench.plan.done import is_done
from capsbench.report.collect import collect
from capsbench.report.contract import ResultsError
from capsbench.report.tables import long_table

RUN = {"task": "mnist", "variant": "cnn", "seed": 0}
MANIFEST = {
    "schema": 1, "run": RUN, "status": "done", "reason": None, "digest": "b" * 64, "weights": "e" * 64,
    "digests": {"config": "c0", "training_source": "c" * 64, "data": "d" * 64, "plan": "a" * 64},
    "config": {"variant": {"model": "cnn"}, "training": {"steps": 4}},
    "resolved": {"precision": "float32", "threads": 1},
    "dataset": {"name": "mnist", "badge": "MNIST"}, "reductions": ["width 1/8"], "parameters": 12, "steps": 4,
    "final_loss": 0.5, "seconds": 1.0, "peak_memory_mb": 80.0, "started": "2026-01-01T00:00:00Z",
    "finished": "2026-01-01T00:00:01Z", "resumed": 0, "versions": {"torch": "2.11"},
    "machine": {"processor": "x", "cores": 2, "gpu": None}, "git": {"commit": "0" * 40, "dirty": False},
}  # fmt: skip
METRICS = {
    "schema": 1, "run": RUN, "condition": "test", "status": "done", "reason": None, "images": 20, "digest": "f" * 64,
    "dataset": {"name": "mnist", "badge": "MNIST"}, "weights": "e" * 64, "seconds": 0.5,
    "metrics": {"error": {"value": 1.5, "unit": "%"}, "correct": {"value": 19, "unit": "images"}},
}  # fmt: skip
DESCRIBED = {
    "schema": 1, "name": "tiny", "file": "tiny.yaml", "digest": "a" * 64, "budget": "reduced", "about": "x",
    "seeds": [0], "dataset": {"name": "mnist", "badge": "MNIST", "digest": "d" * 64}, "reductions": {"mnist": ["few"]},
    "tasks": {"mnist": ["cnn"]}, "titles": {"cnn": "CNN"}, "runs": [{**RUN, "config": "c0"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def results(folder: Path) -> Path:
    """Results of one run."""
    return write_results(folder / "results")


def write_results(results: Path) -> Path:
    shutil.rmtree(results, ignore_errors=True)
    write_json(results / "plan.json", DESCRIBED)
    write_json(results / "runs/mnist/cnn/seed-0/manifest.json", MANIFEST)
    write_json(results / "runs/mnist/cnn/seed-0/test/metrics.json", METRICS)
    return results


def report(results: Path) -> None:
    """Every table of the results; what cannot be counted is a problem with a name."""
    try:
        found = collect(results)
    except ResultsError as error:
        one_sentence(error, str(results))
        return
    for task in found.plan.tasks:
        long_table(found, task)
    for problem in found.problems:
        assert problem.reason
        assert problem.name


def put(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


FILES = [
    ("plan.json", DESCRIBED),
    ("runs/mnist/cnn/seed-0/manifest.json", MANIFEST),
    ("runs/mnist/cnn/seed-0/test/metrics.json", METRICS),
]


@pytest.mark.parametrize(("file", "whole"), FILES)
@many(800)
@given(data=st.data())
def test_stored_files_with_values_or_bytes_that_do_not_belong(results: Path, file: str, whole: Any, data) -> None:
    count("stored JSON files")
    path = results / file
    if data.draw(st.booleans()):
        put(path, data.draw(damaged(whole)))
    else:
        path.write_bytes(data.draw(torn(json.dumps(whole).encode())))
    try:
        report(results)
    finally:
        put(path, whole)


@many(600)
@given(manifest=damaged(MANIFEST), metrics=damaged(METRICS))
def test_whether_work_is_done_is_answered_for_any_file(folder: Path, manifest: Any, metrics: Any) -> None:
    count("stored JSON files")
    path = folder / "plan-of-manifests.yaml"
    if not path.exists():
        path.write_text(PLAN)
    cell = House.load(path).cells[0]
    run = folder / "runs" / "run"
    (run / "test").mkdir(parents=True, exist_ok=True)
    put(run / "manifest.json", manifest)
    put(run / "test" / "metrics.json", metrics)
    found = is_done(run, {"run": MANIFEST["digest"], **MANIFEST["digests"]})
    if found is not None:
        assert found["status"] in ("done", "failed")
        is_evaluated(run, cell, found)
    numbers_digest(folder)
