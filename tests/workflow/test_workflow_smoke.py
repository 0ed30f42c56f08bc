"""config/smoke.yaml: every task, every table, every figure, by `make smoke` on MNIST, by `capsbench run` on others."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest
from places import REPOSITORY
from tools import mnist_folder

from capsbench.plan import House

SMOKE = "config/smoke.yaml"
MAKE = """
import subprocess, sys
sys.exit(subprocess.call(["make", "-o", ".venv/.ready", f"PYTHON={sys.executable}", "smoke"]))
"""  # -o: the environment is the tests' own
TASKS = ("mnist", "affnist", "multimnist", "two_digit")
FIGURES = {
    "mnist_error",
    "mnist_confusion",
    "mnist_calibration",
    "mnist_attacks",
    "hardest",
    "affnist_confusion",
    "reconstructions",
    "perturbations",
    "routing",
    "cost",
    "affnist_accuracy",
    "affnist_curves",
    "affnist_factors",
    "affnist_reconstructions",
    "multimnist_error",
    "multimnist_pictures",
    "multimnist_overlap",
    "two_digit_accuracy",
    "training_curves",
}
ARRAYS = {  # beside metrics.json, of each condition of docs/results-format.md
    "mnist/capsnet-r3-recon": {
        "test": {
            "predictions.npz",
            "scores.npz",
            "reconstructions.npz",
            "perturbations.npz",
            "hardest.npz",
            "reliability.csv",
        },
        "routing": {"iterations.csv", "logits.csv"},
        "attacked": {"attacks.csv"},
    },
    "mnist/cnn": {"test": {"predictions.npz", "scores.npz", "hardest.npz", "reliability.csv"}},
    "affnist/capsnet-r3-recon": {"converged": {"predictions.npz", "scores.npz", "reconstructions.npz", "factors.csv"}},
    "multimnist/capsnet-r3-recon": {"test": {"predictions.npz", "scores.npz", "segmentation.npz", "overlap.csv"}},
    "two_digit/two-digit-average-mlp": {
        "56x28": {"predictions.npz", "scores.npz"},
        "28x56": {"predictions.npz", "scores.npz"},
    },
    "two_digit/two-digit-kmeans": {
        "56x28": {"predictions.npz", "scores.npz"},
        "28x56": {"predictions.npz", "scores.npz"},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("data", ["MNIST", "UCI digits, not MNIST"])
def test_the_smoke_plan_makes_every_table_and_figure(place, clone, data: str, capsys) -> None:
    environment = {"CAPSBENCH_DATA": mnist_folder()} if data == "MNIST" else {"CAPSBENCH_STAND_IN": ""}
    (place.folder / "config").mkdir()
    plan = Path(shutil.copy(clone / SMOKE, place.folder / SMOKE))
    shutil.copy(REPOSITORY / "Makefile", place.folder)
    started = time.monotonic()
    said = place.ask("-c", MAKE, **environment) if data == "MNIST" else place.capsbench("run", SMOKE, **environment)
    with capsys.disabled():  # a promise of the plan (90 s on two idle cores), measured and not judged: cores are shared
        print(f"\nsmoke on {data}: {time.monotonic() - started:.0f} s with {os.cpu_count()} cores")
    assert said.code == 0, said.text

    folder = place.root / ("smoke" if data == "MNIST" else "smoke-digits")
    assert [path.name for path in place.root.iterdir()] == [folder.name]
    for task in TASKS:
        table = pd.read_csv(folder / "tables" / f"{task}.csv")
        assert set(table["task"]) == {task}
        assert table["mean"].notna().any()
        assert (table["n_failed"] >= 0).all()
        for ending in ("md", "tex"):
            assert (folder / "tables" / f"{task}.{ending}").stat().st_size > 100
    looked_at = pd.read_csv(folder / "tables" / "routing.csv")
    assert set(looked_at["variant"]) == {"capsnet-r3-recon"}
    costs = pd.read_csv(folder / "tables" / "cost.csv")
    assert len(costs) == len(House.load(plan).cells)
    assert (costs[["parameters", "flops_backward", "images_per_second_inference", "peak_memory_mb"]] > 0).all(axis=None)
    drawn = {path.stem for path in (folder / "figures").glob("*.png")}
    assert drawn >= FIGURES
    assert {path.stem for path in (folder / "figures").glob("*.pdf")} == drawn
    for caption in (folder / "figures").glob("*.txt"):
        assert (data in caption.read_text()) or ("affnist" in caption.stem and data == "MNIST")

    runs = folder / "runs"
    house = House.load(plan)
    place_in_plan = {f"{cell.task}/{cell.folder_name}": place for place, cell in enumerate(house.cells)}
    trained = [place_in_plan[cell] for cell in re.findall(r"Job \d+: Train (\S+) \(log:", said.text)]
    assert sorted(trained) == list(range(len(house.cells)))
    # in the plan's order, but for those that begin at the same moment
    assert all(abs(place - position) < (os.cpu_count() or 1) for position, place in enumerate(trained)), trained
    labels = {f"{cell.label}/seed-{seed}" for cell in house.cells for seed in cell.seeds}
    assert {path.parent.relative_to(runs).as_posix() for path in runs.rglob("manifest.json")} == labels
    assert not list(runs.rglob("checkpoint"))  # of no training and of no evaluation, once they have ended
    for cell, conditions in ARRAYS.items():
        run = runs / cell / "seed-0"
        manifest = json.loads((run / "manifest.json").read_text())
        assert manifest["status"] == "done"
        assert manifest["dataset"]["badge"] == data
        for file in ("history.csv", "weights.safetensors"):
            assert (run / file).is_file()
        assert (run / "curve.csv").exists() == (cell.split("/")[0] in ("affnist", "two_digit"))
        for condition, files in conditions.items():
            found = {path.name for path in (run / condition).iterdir()}
            assert found >= files | {"metrics.json"}, run / condition
            metrics = json.loads((run / condition / "metrics.json").read_text())
            assert metrics["weights"] == manifest["weights"]
    html = (folder / "report.html").read_text()
    assert data in html
    assert html.count("data:image/png;base64,") >= len(FIGURES)
    assert f"report: {folder / 'report.html'}" in said.out

    again = place.capsbench("run", SMOKE, **environment)
    assert again.code == 0
    assert again.jobs == set()
    assert "Nothing to be done" in again.text

    plan.write_text(plan.read_text().replace("training: {steps: 60}", "training: {steps: 50}"))
    listed = place.capsbench("run", SMOKE, "--dry-run", **environment)
    two_digit = ("two_digit/two-digit-average-mlp", "two_digit/two-digit-kmeans")
    expected = {f"{word} {label}" for word in ("Train", "Evaluate") for label in two_digit}
    assert listed.jobs == {*expected, "Draw tables, figures and the report"}
