"""How long a run will take, by what others of its row took on such a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capsbench.data.source import DataSource
from capsbench.files import read_json
from capsbench.pipeline import dataset_record, finished
from capsbench.plan import Cell, House
from capsbench.provenance import machine

ALONE = 1.5  # a seed alone takes at most so many times its share of several at once (an H200: 1.2 to 1.4 times)


def expected_seconds(house: House, source: DataSource, cell: Cell, seed: int, at_once: int = 1) -> float | None:
    """Seconds that a run will train (if it has not) and be evaluated: the most that another seed of its row took.

    at_once: how many seeds train together; a manifest's seconds are those of all that trained with it.

    Only what was finished on such a GPU, or where there is none on such a processor, says anything. None where nobody
    knows, and for a run that is under way: whatever is left of it, it goes on.
    """
    folder = house.run_folder(cell, seed)
    if cell.waits or (folder / "checkpoint").is_dir():
        return None
    here, dataset = _chip(machine()), dataset_record(source)["digest"]
    is_trained = finished(house, cell, seed, dataset) is not None
    taken = []
    for other in house.cell(cell.task, cell.variant).seeds:
        manifest = finished(house, cell, other, dataset)
        if manifest is not None and (seconds := _taken(house.run_folder(cell, other), manifest, here)) is not None:
            trained, evaluated = seconds
            with_it = int((manifest.get("resolved") or {}).get("seeds_at_once", 1))
            share = trained / with_it
            trained = at_once * share if at_once > 1 or with_it == 1 else min(trained, ALONE * share)
            taken.append(at_once * evaluated + (0 if is_trained else trained))
    return max(taken, default=None)


def _taken(folder: Path, manifest: dict[str, Any], here: str) -> tuple[float, float] | None:
    """Seconds of a run's training and of its evaluation on this chip; None where its files do not say."""
    try:
        if _chip(manifest["machine"]) != here:
            return None
        each = [float(read_json(path)["seconds"]) for path in folder.glob("*/metrics.json")]
        return (float(manifest["seconds"]), max(each)) if each else None  # each condition has the seconds of all
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _chip(where: dict[str, Any]) -> str:
    """What sets a machine's pace."""
    return str(where["gpu"] or where["processor"])
