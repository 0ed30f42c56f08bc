"""Which runs `capsbench work` is asked for, and how long one of them will take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capsbench.cli.chosen import is_named, with_seeds
from capsbench.data.source import DataSource
from capsbench.errors import PlanError, nearest
from capsbench.files import read_json
from capsbench.pipeline import dataset_record, finished
from capsbench.plan import Cell, House
from capsbench.provenance import machine


@dataclass(frozen=True)
class Wanted:
    """The runs asked for, by task, variant and seed; an empty field means all."""

    tasks: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def of(self, houses: list[House]) -> list[list[Cell]]:
        """Each plan's cells that are wanted, with those of their seeds that are; in the plan's order.

        Raises PlanError, with the nearest name, for a word that no plan knows, and where no run is left.
        """
        cells = [cell for house in houses for cell in house.cells]
        where = ", ".join(str(house.path) for house in houses)

        def check(kind: str, words: tuple[object, ...], names: Iterable[object]) -> None:
            known = set(names)
            if unknown := [word for word in words if word not in known]:
                raise PlanError(f"{where}: there is no {kind} {unknown[0]!r}{nearest(unknown[0], map(str, known))}")

        check("task", self.tasks, (cell.task for cell in cells))
        check("variant", self.variants, (name for cell in cells for name in (cell.variant, cell.folder_name)))
        for variant in self.variants:
            if not any(is_named(cell, self.tasks, [variant]) for cell in cells):
                raise PlanError(f"{where}: {variant!r} is not a row of task {' or '.join(self.tasks)}.")
        check("seed", self.seeds, (seed for cell in cells for seed in cell.seeds))
        named = [[cell for cell in house.cells if is_named(cell, self.tasks, self.variants)] for house in houses]
        found = [with_seeds(rows, self.seeds) for rows in named]
        if not any(found):
            raise PlanError(f"{where}: no run has this task, variant and seed; `capsbench plan` lists the runs.")
        return found


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
