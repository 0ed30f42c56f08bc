"""Runs as `capsbench work` leaves them, of which nothing was trained."""

from __future__ import annotations

from capsbench.data.source import DataSource
from capsbench.evaluation.done import evaluation_digest
from capsbench.files import write_json
from capsbench.pipeline import dataset_record
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests, tuning_digest
from capsbench.plan.tuning import Point
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


def chosen(house: House, source: DataSource, row: Cell, point: Point, digest: str | None = None) -> None:
    """The choice of a tuned row, as if its trials had been made here; with a digest, as if others had."""
    assert row.tuned is not None
    digest = digest or tuning_digest(house, row, dataset_record(source)["digest"])
    write_json(row.tuned.path, {"recipe": row.tuned.recipe, "digest": digest, "chosen": point.training_keys()})
