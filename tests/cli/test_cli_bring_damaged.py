"""`capsbench bring` takes no run with a damaged file, and replaces one here by a whole one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from finished_runs import WEIGHTS, two_plans
from rich.console import Console

from capsbench.cli.bring import bring
from capsbench.errors import CapsbenchError
from capsbench.files import read_json, write_json, write_text
from capsbench.pipeline import is_over


def test_damaged_answers_are_not_brought_and_are_replaced_by_whole_ones(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    folder, _, ours = two_plans(tmp_path, theirs="", ours="")
    answers = folder / "runs/mnist/cnn/seed-0/test/predictions.npz"
    np.savez(answers, **np.load(answers), correct=np.arange(1000))
    whole = answers.read_bytes()
    damaged = whole[:-900] + bytes([whole[-900] ^ 1]) + whole[-899:]
    here = results / "ours-digits/runs/mnist/cnn/seed-0/test/predictions.npz"
    for content in (damaged, whole[:-30]):
        answers.write_bytes(content)
        console = Console(record=True, width=300)
        with pytest.raises(CapsbenchError, match="1 run left out"):
            bring(console, [folder], ours)
        assert "1 run: its test/predictions.npz is damaged\n  mnist/cnn/seed-0\n" in console.export_text()
        assert not here.exists()
    answers.write_bytes(whole)
    bring(Console(quiet=True), [folder], ours)
    here.write_bytes(damaged)
    console = Console(record=True, width=300)
    write_text(here.parents[1] / "weights.safetensors", WEIGHTS)  # with which it can be evaluated again
    bring(console, [folder], ours)
    assert "1 run: kept, done here already" in console.export_text()
    (here.parents[1] / "weights.safetensors").unlink()
    bring(console, [folder], ours)
    assert "1 run: brought, in the place of a run here" in console.export_text()
    assert here.read_bytes() == whole
    bring(console, [folder], ours)
    assert "1 run: kept, done here already" in console.export_text()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("test/predictions.npz", None, "its test/predictions.npz is not there"),
        ("history.csv", None, "its history.csv is not there"),
        ("history.csv", "", "its history.csv is cut off"),
        ("test/curve.csv", "step,error\n4,0", "its test/curve.csv is cut off"),
        ("manifest.json", {"schema": 7}, "its manifest.json is not in the format of docs/results-format.md: schema"),
        ("manifest.json", {"machine": 3}, "its manifest.json is not in the format of docs/results-format.md: machine"),
        ("test/metrics.json", {"metrics": {}}, "its test/metrics.json has no metric"),
        (
            "test/metrics.json",
            {"metrics": None},
            "its test/metrics.json is not in the format of docs/results-format.md: metrics",
        ),
        ("weights.safetensors", WEIGHTS[:-1], "its weights.safetensors is damaged, or of another training"),
    ],
)
def test_a_run_with_a_damaged_file_is_not_brought_and_is_replaced_by_a_whole_one(
    tmp_path: Path, results: Path, no_data: object, file: str, content: str | dict[str, object] | None, said: str
) -> None:
    folder, _, ours = two_plans(tmp_path, theirs="", ours="")
    run, here = folder / "runs/mnist/cnn/seed-0", results / "ours-digits/runs/mnist/cnn/seed-0"
    shutil.copytree(run, tmp_path / "whole")

    def damage(folder: Path) -> None:
        if content is None:
            (folder / file).unlink()
        elif isinstance(content, str):
            write_text(folder / file, content)
        else:
            write_json(folder / file, read_json(folder / file) | content)

    damage(run)
    console = Console(record=True, width=300)
    with pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [folder], ours)
    assert f"1 run: {said}" in console.export_text()
    assert not here.exists()
    shutil.rmtree(run)
    shutil.copytree(tmp_path / "whole", run)
    bring(Console(quiet=True), [folder], ours)
    damage(here)
    console = Console(record=True, width=300)
    bring(console, [folder], ours)
    assert "1 run: brought, in the place of a run here that was not done, damaged" in console.export_text()
    assert {path.name: path.read_bytes() for path in here.rglob("*.*") if path.is_file() and path.name[0] != "."} == {
        path.name: path.read_bytes() for path in run.rglob("*.*")
    }


def test_a_run_without_its_answers_is_not_evaluated(tmp_path: Path, results: Path, no_data: object) -> None:
    folder, house, _ = two_plans(tmp_path, theirs="", ours="")
    there, run = replace(house, root=folder.parent), folder / "runs/mnist/cnn/seed-0"
    manifest = read_json(run / "manifest.json")
    assert is_over(there, house.cells[0], 0, manifest)
    (run / "test" / "predictions.npz").unlink()
    assert not is_over(there, house.cells[0], 0, manifest)
