"""Runs as `capsbench work` leaves them, of which nothing was trained, and two plans with such a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from capsbench.data.source import DataSource
from capsbench.evaluation.done import evaluation_digest
from capsbench.files import read_json, write_json, write_text
from capsbench.pipeline import dataset_record, described, open_house
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests, tuning_digest
from capsbench.plan.tuning import Point
from capsbench.provenance import machine

Asked = Callable[..., tuple[int, str]]  # of the fixture `asked`
WEIGHTS = "weights that nobody trained"  # what weights.safetensors would be; it is not there

TUNED = """
budget: reduced
seeds: [0]
uci_digits: true
training: {steps: 4}
tuning: {steps: 2, seeds: [9]}
tasks:
  mnist: {variants: [cnn], tuned: true}
"""


def finished(house: House, source: DataSource, cell: Cell, seed: int, seconds: float, evaluation: float) -> None:
    """A run's manifest and metrics, as if it had taken so long here."""
    folder = house.run_folder(cell, seed)
    folder.mkdir(parents=True, exist_ok=True)
    data = dataset_record(source)
    about = {
        "schema": 1,
        "run": {"task": cell.task, "variant": cell.folder_name, "seed": seed},
        "status": "done",
        "dataset": {key: data[key] for key in ("name", "badge")},
        "weights": hashlib.sha256(WEIGHTS.encode()).hexdigest(),
    }
    digest = run_digests(house, cell, seed, data["digest"])["run"]
    manifest = {**about, "digest": digest, "seconds": seconds, "machine": machine()}
    write_json(folder / "manifest.json", manifest)
    write_text(folder / "history.csv", "step,loss\n4,0.5\n")
    counted = {"error": {"value": 1.0, "unit": "%"}, "correct": {"value": 99.0, "unit": "images"}}
    metrics = {"condition": "test", "images": 100, "metrics": counted}
    metrics |= {"digest": evaluation_digest(cell, manifest), "seconds": evaluation}
    write_json(folder / "test" / "metrics.json", about | metrics)
    answers = {"labels": np.zeros(100, np.uint8), "predicted": np.eye(1, 100, dtype=np.uint8)[0]}  # one is wrong
    np.savez(folder / "test" / "predictions.npz", **answers)  # type: ignore[arg-type]


def chosen(house: House, source: DataSource, row: Cell, point: Point, digest: str | None = None) -> None:
    """The choice of a tuned row, as if its trials had been made here; with a digest, as if others had."""
    assert row.tuned is not None
    digest = digest or tuning_digest(house, row, dataset_record(source)["digest"])
    write_json(row.tuned.path, {"recipe": row.tuned.recipe, "digest": digest, "chosen": point.training_keys()})


def two_plans(tmp_path: Path, theirs: str, ours: str) -> tuple[Path, House, Path]:
    """A folder with a run by one plan, that plan, and another plan: TUNED without its tuning, and with these words."""
    text = TUNED.replace(", tuned: true", "").replace("tuning: {steps: 2, seeds: [9]}\n", "")
    (tmp_path / "ours.yaml").write_text(text.replace("steps: 4", f"steps: 4{ours}"))
    (tmp_path / "theirs.yaml").write_text(text.replace("steps: 4", f"steps: 4{theirs}"))
    house, source = open_house(tmp_path / "theirs.yaml")
    there, cell = replace(house, root=tmp_path / "there"), house.cells[0]
    finished(there, source, cell, 0, 60, 5)
    write_json(there.folder / "plan.json", described(there, dataset_record(source)))
    manifest = there.run_folder(cell, 0) / "manifest.json"
    digests = run_digests(there, cell, 0, dataset_record(source)["digest"])
    config = {**cell.config(), "steps": 4}
    write_json(manifest, read_json(manifest) | {"digests": digests, "config": config})
    return there.folder, house, tmp_path / "ours.yaml"
