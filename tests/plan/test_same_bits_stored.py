"""config/same-bits.json: where it says that equalities were shown, that one can be shown again, what it keeps done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from published import PUBLISHED
from tools import mnist_folder, unavailable

from capsbench.files import read_json
from capsbench.pipeline import state
from capsbench.plan import House
from capsbench.plan import same_bits as shown

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_stored_file_says_where_each_equality_was_shown() -> None:
    known = read_json(shown.same_bits_file())
    for entry in known["changes"]:
        assert entry["device"] in ("cpu", "cuda")
        if "guards" in entry:  # of benchmarks/same_program.py, which runs nothing
            assert len(entry["before"]) == len(entry["after"]) == 40
            assert entry["shown"]
            assert entry["runs"]
            assert all({"what_trains", "training", "evaluation"} <= run.keys() for run in entry["runs"])
            continue
        assert entry["precision"] == "float32"
        assert len(entry["before"]) == len(entry["after"]) == 40
        assert entry["steps"] > 0
        assert entry["runs"]
        for run in entry["runs"]:
            assert len(run["what_trains"]) == 64
            assert {"weights", "manifest.json", "history.csv"} <= run["bits"].keys()
            assert any(name.endswith("predictions.npz") for name in run["bits"])


@pytest.mark.slow
def test_the_stored_change_gives_the_same_bits_here(tmp_path: Path) -> None:
    """Of one row and a few steps: the two commits of the last change whose bits are written down of the row."""
    row, changes = "two-digit-average-linear", read_json(shown.same_bits_file())["changes"]
    found = [(one, run) for one in changes for run in one["runs"] if run["variant"] == row and "bits" in run]
    last, stored = found[-1]
    for name in ("before", "after"):
        if subprocess.run(["git", "cat-file", "-e", last[name]], cwd=REPOSITORY, capture_output=True).returncode:
            unavailable(f"this clone does not have the commit {last[name][:7]}")
    to, environment = tmp_path / "same-bits.json", {**os.environ, "CAPSBENCH_DATA": mnist_folder()}
    words = ["--after", last["after"], "--variant", row, "--steps", "3", "--to", str(to)]
    command = [sys.executable, "benchmarks/same_bits.py", last["before"], *words]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
    (entry,) = read_json(to)["changes"]
    (run,) = entry["runs"]
    assert run["what_trains"] == stored["what_trains"]
    assert (entry["before"], entry["after"]) == (last["before"], last["after"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_runs_are_those_of_today_s_source(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `capsbench run` would train them again: benchmarks/same_bits.py shows whether a change left their bits."""
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(REPOSITORY / "results"))
    house = House.load(REPOSITORY / "config" / f"{name}.yaml")
    data = read_json(house.folder / "plan.json")["dataset"]["digest"]
    runs = {house.run_folder(cell, seed): (cell, seed) for cell in house.cells for seed in cell.seeds}
    there = [folder for folder in runs if (folder / "manifest.json").exists()]
    assert there
    for folder in there:
        manifest = state.finished(house, *runs[folder], data)
        assert manifest is not None, folder
        assert state.is_over(house, *runs[folder], manifest), folder
