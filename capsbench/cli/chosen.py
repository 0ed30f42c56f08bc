"""The cells of one plan that a command's --task, --variant and --seed name; a word that the plan has not is refused."""

from __future__ import annotations

from dataclasses import replace

from capsbench.errors import CapsbenchError, PlanError, nearest
from capsbench.plan import Cell, House


def chosen(
    house: House, tasks: list[str] | None, variants: list[str] | None, seeds: list[int] | None = None
) -> list[Cell]:
    """The cells that the options name, with the seeds named. Raises PlanError, with the nearest name, where none is."""
    for task in tasks or []:
        if task not in (known := house.plan.tasks.given()):
            raise PlanError(f"{house.path} has no task {task!r}{nearest(task, known)}")
    cells = [cell for cell in house.cells if not tasks or cell.task in tasks]
    for variant in variants or []:
        if not any(variant in (cell.variant, cell.folder_name) for cell in cells):
            for task in tasks or []:
                house.cell(task, variant)  # which says what the task has
            names = [cell.folder_name for cell in house.cells]
            raise PlanError(f"{house.path} has no variant {variant!r}{nearest(variant, names)}")
    named = set(variants or [])
    return _with_seeds(house, [c for c in cells if not named or named & {c.variant, c.folder_name}], seeds)


def _with_seeds(house: House, cells: list[Cell], seeds: list[int] | None) -> list[Cell]:
    """Those of `cells` that have one of `seeds`, with these; all where none is named. CapsbenchError: none has one."""
    if not seeds:
        return cells
    known = sorted({one for cell in cells for one in cell.seeds})
    if unknown := [seed for seed in seeds if seed not in known]:
        what = f"{cells[0].label} has no seed" if len(cells) == 1 else "no row named has seed"
        raise CapsbenchError(f"{house.path}: {what} {unknown[0]}; there is {known}.")
    found = [replace(cell, seeds=tuple(seed for seed in cell.seeds if seed in seeds)) for cell in cells]
    return [cell for cell in found if cell.seeds]


def rows_of(house: House, task: list[str] | None, variant: list[str] | None) -> list[Cell]:
    """The cells that the options name; a variant stands for its tuned row as well."""
    cells = chosen(house, task, variant)
    names = {(cell.task, cell.variant) for cell in cells}
    return [cell for cell in house.cells if cell in cells or (cell.tuned and (cell.task, cell.base) in names)]
