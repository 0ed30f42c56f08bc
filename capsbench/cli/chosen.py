"""The cells of plans that --task, --variant and --seed name; a word that no plan has is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from capsbench.errors import PlanError, nearest
from capsbench.plan import Cell, House

DEFAULT = "capsnet-r3-recon"  # what `bench` times


class Wanted(NamedTuple):
    """What the options name; an empty field means all."""

    tasks: Sequence[str] = ()
    variants: Sequence[str] = ()
    seeds: Sequence[int] = ()

    def names(self, cell: Cell) -> bool:
        """Whether a cell is of one of the tasks and one of the variants, as a plan or a folder calls them."""
        of_task = not self.tasks or cell.task in self.tasks
        return of_task and (not self.variants or not {cell.variant, cell.folder_name}.isdisjoint(self.variants))

    def of(self, houses: Sequence[House]) -> list[list[Cell]]:
        """Each plan's cells that are named, with those of their seeds that are; in the plan's order.

        Raises PlanError where no plan has such a task or variant, with the nearest name, or no row that is named such a
        seed, with those there are.
        """
        where = ", ".join(str(house.path) for house in houses)
        has = f"{where} {'has' if len(houses) == 1 else 'have'} no"
        every = [cell for house in houses for cell in house.cells]
        for task in self.tasks:
            if task not in (known := {cell.task for cell in every}):
                raise PlanError(f"{has} task {task!r}{nearest(task, known)}")
        for variant in self.variants:
            if not any(self._replace(variants=[variant]).names(cell) for cell in every):
                known = {cell.folder_name for cell in every if self._replace(variants=()).names(cell)}
                of = f" of task {' or '.join(self.tasks)}" if self.tasks else ""
                raise PlanError(f"{has} variant {variant!r}{of}{nearest(variant, known)}")
        rows = [[cell for cell in house.cells if self.names(cell)] for house in houses]
        cells = [cell for of_plan in rows for cell in of_plan]
        there = sorted({seed for cell in cells for seed in cell.seeds})
        if unknown := [seed for seed in self.seeds if seed not in there]:
            which = f"{cells[0].label} has no" if len(cells) == 1 else "none of these rows has"
            raise PlanError(f"{where}: {which} seed {unknown[0]}; the seeds are {there}.")
        named = [[self._with_seeds(cell) for cell in of_plan] for of_plan in rows]
        return [[cell for cell in of_plan if cell.seeds] for of_plan in named]

    def _with_seeds(self, cell: Cell) -> Cell:
        """A cell with those of its seeds that are named."""
        return replace(cell, seeds=tuple(s for s in cell.seeds if s in self.seeds)) if self.seeds else cell


def chosen(
    house: House, tasks: list[str] | None, variants: list[str] | None, seeds: list[int] | None = None
) -> list[Cell]:
    """The cells of one plan that the options name. Raises PlanError as `Wanted.of`."""
    (cells,) = Wanted(tasks or (), variants or (), seeds or ()).of([house])
    return cells


def to_time(house: House, task: str, variants: list[str] | None) -> list[Cell]:
    """The cells that `bench` times, one for each name: where none is said the paper's CapsNet, else the first row.

    Raises PlanError as `chosen`.
    """
    rows = chosen(house, [task], None)
    default = next((cell for cell in rows if cell.variant == DEFAULT), rows[0])
    return [cell for name in variants or [default.variant] for cell in chosen(house, [task], [name])]


def rows_of(house: House, task: list[str] | None, variant: list[str] | None) -> list[Cell]:
    """The cells that the options name; a variant stands for its tuned row as well."""
    cells = chosen(house, task, variant)
    names = {(cell.task, cell.variant) for cell in cells}
    return [cell for cell in house.cells if cell in cells or (cell.tuned and (cell.task, cell.base) in names)]
