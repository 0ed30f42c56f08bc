"""A task's rows: its variants, and what its axes and its tuning make of them.

`cnn+n10` is `cnn` trained on ten digits a class, `capsnet-r3-recon+r5` is trained with five passes of routing,
`cnn+tuned` is `cnn` with the learning rate and schedule that tuning chose for it, `cnn+bf16` is trained in bf16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from capsbench.errors import PlanError, nearest
from capsbench.plan.digits import digits_there
from capsbench.plan.task import CLASSES, Axis, TaskPlan
from capsbench.plan.variants import Spec, checked

if TYPE_CHECKING:
    from capsbench.plan.runs import Cell, House

AXIS_VALUE = re.compile(r"[nr][1-9][0-9]*|tuned|bf16")  # what follows a variant and + in the name of a row made of it


class Row(NamedTuple):
    """One row of a task's tables before its width is applied."""

    variant: str
    spec: Spec
    options: TaskPlan
    base: str | None = None  # the variant it was made of
    few: bool = False  # on few digits: it trains for as many steps as on all of them
    tuned: bool = False
    bf16: bool = False


def rows_of(task: TaskPlan, specs: Mapping[str, Spec], file: Path) -> list[Row]:
    """Every row of a task in the order of its tables: each variant, then what is made of it.

    Raises PlanError where an axis, `tuned`, `bf16`, a reference or the ladder names what is not there, or what cannot
    be made.
    """
    place = f"{file}: tasks.{task.NAME}"
    tuned, low = _named(task.tuned, task, f"{place}.tuned"), _named(task.bf16, task, f"{place}.bf16")
    per_class = _chosen(task.axes.per_class, task, f"{place}.axes.per_class")
    passes = _chosen(task.axes.iterations, task, f"{place}.axes.iterations")
    if per_class and task.train_per_class is not None:
        raise PlanError(f"{place} has both train_per_class and axes.per_class; keep one of them.")
    rows = []
    for variant in task.variants:
        spec = specs[variant]
        rows.append(Row(variant, spec, task))
        if variant in tuned:
            rows.append(Row(f"{variant}+tuned", _titled(spec, variant, ", tuned"), task, variant, tuned=True))
        if variant in low:
            rows.append(Row(f"{variant}+bf16", _titled(spec, variant, ", bf16"), task, variant, bf16=True))
        for count in per_class.get(variant, ()):
            few = task.model_copy(update={"train_per_class": count})
            titled = _titled(spec, variant, f", {count} digits a class")
            rows.append(Row(f"{variant}+n{count}", titled, few, variant, few=True))
        for number in passes.get(variant, ()):
            rows += _with_passes(variant, spec, task, number, f"{place}.axes.iterations")
    _check_names(task, [row.variant for row in rows], place)
    return rows


def _named(said: bool | list[str], task: TaskPlan, place: str) -> list[str]:
    """The variants that have a second row: all, none, or those named."""
    if isinstance(said, bool):
        return list(task.variants) if said else []
    return _among(said, task.variants, place)


def _chosen(axis: Axis | None, task: TaskPlan, place: str) -> dict[str, list[int]]:
    """The values of an axis for each variant that it is for."""
    if axis is None:
        return {}
    if len(set(axis.values)) != len(axis.values):
        raise PlanError(f"{place} names a value twice.")
    return dict.fromkeys(_among(axis.variants or task.variants, task.variants, place), axis.values)


def _among(names: list[str], known: list[str], place: str) -> list[str]:
    for name in names:
        if name not in known:
            raise PlanError(f"{place}: {name!r} is not among the variants{nearest(name, known)}")
    return names


def _with_passes(variant: str, spec: Spec, task: TaskPlan, number: int, place: str) -> list[Row]:
    """The row with `number` passes; none where the variant itself has that number."""
    if not spec.routes() or not hasattr(spec, "iterations"):
        raise PlanError(f"{place}: variant {variant} has no routing; name the variants that the axis is for.")
    if spec.iterations == number:
        return []
    try:
        changed = checked(spec, {"iterations": number})
    except ValueError as error:
        raise PlanError(f"{place}: variant {variant}: {error}.") from None
    was = f"r={spec.iterations}"
    title = spec.title.replace(was, f"r={number}", 1) if was in spec.title else None
    changed = changed.model_copy(update={"title": title or f"{spec.title or variant}, r={number}"})
    return [Row(f"{variant}+r{number}", changed, task, variant)]


def _titled(spec: Spec, variant: str, words: str) -> Spec:
    return spec.model_copy(update={"title": f"{spec.title or variant}{words}"})


def _check_names(task: TaskPlan, names: list[str], place: str) -> None:
    """No row stands twice, and what is compared is there."""
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PlanError(
            f"{place}: two rows would be called {twice}: a variant of that name, and the row that an axis, tuned or "
            "bf16 adds; rename the variant."
        )
    said: dict[str, list[Any]] = {
        "reference": [task.reference] if task.reference is not None else [],
        "references": [name for pair in task.references.items() for name in pair],
        "ladder": task.ladder,
    }
    for key, values in said.items():
        _among(values, names, f"{place}.{key}")
    if alone := next((row for row, other in task.references.items() if row == other), None):
        raise PlanError(f"{place}.references compares {alone} with itself; name another row, or leave it out.")
    if len(set(task.ladder)) != len(task.ladder):
        raise PlanError(f"{place}.ladder names a variant twice.")


def points_of(house: House) -> dict[str, list[dict[str, Any]]]:
    """The rows along each axis, by task: `axis`, `variant` (the row), `base` (the variant it was made of), `value`.

    A base is a point of its own axes: by the passes of its spec, or by how many digits a class the plan gives it.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name in house.plan.tasks.given():
        cells = {cell.variant: cell for cell in house.cells if cell.task == name}
        points: dict[tuple[str, str], dict[str, int]] = {}  # (axis, base) -> row -> value
        for cell in cells.values():
            if cell.base is None:
                continue
            base = cells[cell.base]
            for axis in ("per_class", "iterations"):
                value, own = (_place(axis, of) for of in (cell, base))
                if value is not None and own is not None and value != own:
                    points.setdefault((axis, base.folder_name), {base.folder_name: own})[cell.folder_name] = value
        if points:
            found[name] = [
                {"axis": axis, "variant": variant, "base": base, "value": value}
                for (axis, base), rows in points.items()
                for variant, value in sorted(rows.items(), key=lambda row: row[1])
            ]
    return found


def _place(axis: str, cell: Cell) -> int | None:
    """Where a cell stands on an axis; None where it has no such number."""
    if axis == "per_class":
        return cell.options.train_per_class or digits_there(cell.options, cell.dataset) // CLASSES
    return getattr(cell.spec, "iterations", None)
