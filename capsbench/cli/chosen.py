"""The cells of one plan that a command's --task, --variant and --seed name; a word that the plan has not is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from capsbench.errors import PlanError, nearest
from capsbench.plan import Cell, House

DEFAULT = "capsnet-r3-recon"  # what `bench` times


def chosen(
    house: House, tasks: list[str] | None, variants: list[str] | None, seeds: list[int] | None = None
) -> list[Cell]:
    """The cells that the options name, with the seeds named.

    Raises PlanError where the plan has no such task or variant, with the nearest name, or no such seed, with those it
    has.
    """
    for task in tasks or []:
        if task not in (known := house.plan.tasks.given()):
            raise PlanError(f"{house.path} has no task {task!r}{nearest(task, known)}")
    for variant in variants or []:
        if not any(is_named(cell, tasks, [variant]) for cell in house.cells):
            for task in tasks or []:
                house.cell(task, variant)  # which says what the task has
            names = sorted({cell.folder_name for cell in house.cells})  # a variant may be in several tasks
            raise PlanError(f"{house.path} has no variant {variant!r}{nearest(variant, names)}")
    cells = [cell for cell in house.cells if is_named(cell, tasks, variants)]
    there = sorted({one for cell in cells for one in cell.seeds})
    if unknown := [seed for seed in seeds or [] if seed not in there]:
        which = f"{cells[0].label} has no" if len(cells) == 1 else "none of these rows has"
        raise PlanError(f"{house.path}: {which} seed {unknown[0]}; the seeds are {there}.")
    return with_seeds(cells, seeds)


def is_named(cell: Cell, tasks: Sequence[str] | None, variants: Sequence[str] | None) -> bool:
    """Whether a cell is of one of `tasks` and one of `variants`, as a plan or a folder calls them; none said: any."""
    names = {cell.variant, cell.folder_name}
    return (not tasks or cell.task in tasks) and (not variants or not names.isdisjoint(variants))


def with_seeds(cells: list[Cell], seeds: Sequence[int] | None) -> list[Cell]:
    """Those of `cells` that have one of `seeds`, with these alone; all of them where none is said."""
    if not seeds:
        return cells
    found = [replace(cell, seeds=tuple(seed for seed in cell.seeds if seed in seeds)) for cell in cells]
    return [cell for cell in found if cell.seeds]


def to_time(house: House, task: str, variants: list[str] | None) -> list[Cell]:
    """The cells that `bench` times, one for each name: where none is said the paper's CapsNet, else the first row.

    Raises PlanError as `chosen`.
    """
    rows = chosen(house, [task], None)
    default = next((cell for cell in rows if is_named(cell, None, [DEFAULT])), rows[0])
    return [cell for name in variants or [default.variant] for cell in chosen(house, [task], [name])]


def rows_of(house: House, task: list[str] | None, variant: list[str] | None) -> list[Cell]:
    """The cells that the options name; a variant stands for its tuned row as well."""
    cells = chosen(house, task, variant)
    names = {(cell.task, cell.variant) for cell in cells}
    return [cell for cell in house.cells if cell in cells or (cell.tuned and (cell.task, cell.base) in names)]
