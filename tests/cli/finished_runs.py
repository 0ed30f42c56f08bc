"""Runs as `capsbench work` leaves them, of which nothing was trained."""

from __future__ import annotations

from capsbench.data.source import DataSource
from capsbench.evaluation.done import evaluation_digest
from capsbench.files import write_json
from capsbench.pipeline import dataset_record
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests
from capsbench.provenance import machine


def finished(house: House, source: DataSource, cell: Cell, seed: int, seconds: float, evaluation: float) -> None:
    """A run's manifest and metrics, as if it had taken so long here."""
    folder = house.run_folder(cell, seed)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "status": "done",
        "digest": run_digests(house, cell, seed, dataset_record(source)["digest"])["run"],
        "weights": "w",
        "dataset": {},
        "run": {"task": cell.task, "variant": cell.folder_name, "seed": seed},
        "seconds": seconds,
        "machine": machine(),
    }
    write_json(folder / "manifest.json", manifest)
    metrics = {"digest": evaluation_digest(cell, manifest), "weights": "w", "seconds": evaluation}
    write_json(folder / "test" / "metrics.json", metrics)
