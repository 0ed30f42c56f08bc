"""Two results folders held against each other: which means moved, beyond noise or not, and what else differed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from capsbench.report.mixtures import flat
from capsbench.report.results import Results, Run
from capsbench.report.statistics import Summary, difference, holm, summarise
from capsbench.report.tables import spec_for

ALPHA = 0.05
Found = Literal[
    "identical", "within noise", "beyond noise", "too few seeds", "only in A", "only in B", "not comparable"
]


@dataclass(frozen=True)
class Change:
    """One metric of one cell in A and in B. `difference` is B less A, in `unit`; what cannot be had is None."""

    task: str
    variant: str
    condition: str
    metric: str
    unit: str
    a: Summary
    b: Summary
    found: Found
    why: str = ""  # why it cannot be compared
    difference: float | None = None
    low: float | None = None  # of Welch's 95 % interval
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None  # over all the changes that have a p


@dataclass(frozen=True)
class Comparison:
    """All of it. `differences` are (where, in A, in B)."""

    changes: list[Change]
    differences: list[tuple[str, str, str]]


def compare(a: Results, b: Results, every_metric: bool = False) -> Comparison:
    """Hold B against A, cell by cell: the metrics of the readable tables, or every metric.

    Beyond noise is a Welch test over seeds with p under 0.05 after Holm over all that was tested. Identical are the
    same seeds with the same values. With fewer than two seeds on a side, or seeds that agree on both, none is tested.
    """
    values = [_values(results, every_metric) for results in (a, b)]
    keys = list(dict.fromkeys([*values[0], *values[1]]))
    changes = [_change(key, values[0].get(key), values[1].get(key)) for key in keys]
    tested = [k for k, change in enumerate(changes) if change.p is not None]
    for k, p_holm in zip(tested, holm([changes[k].p or 0.0 for k in tested]), strict=True):
        found: Found = "beyond noise" if p_holm < ALPHA else "within noise"
        changes[k] = replace(changes[k], p_holm=p_holm, found=found)
    return Comparison(changes, _plan_differences(a, b) + _run_differences(a, b))


Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class _Cell:
    unit: str
    data: tuple[str, int]  # the data set and the number of images
    values: dict[int, float]  # by seed


def _values(results: Results, every_metric: bool) -> dict[Key, _Cell]:
    shown = {task: {metric.name for metric in spec_for(task, results).main} for task in results.plan.tasks}
    found: dict[Key, _Cell] = {}
    groups = results.frame.groupby(["task", "variant", "condition", "metric"], sort=False)
    for (task, variant, condition, metric), group in groups:
        if every_metric or metric in shown.get(str(task), set()):
            values = {int(s): float(v) for s, v in zip(group["seed"], group["value"], strict=True)}
            data = (str(group["dataset"].iloc[0]), int(group["images"].iloc[0]))
            found[str(task), str(variant), str(condition), str(metric)] = _Cell(
                str(group["unit"].iloc[0]), data, values
            )
    return found


def _change(key: Key, a: _Cell | None, b: _Cell | None) -> Change:
    """One change; Holm is not applied yet."""
    first, second = (summarise(sorted(cell.values.values()) if cell else []) for cell in (a, b))
    unit = (a or b or _Cell("", ("", 0), {})).unit
    if a is None or b is None:
        return Change(*key, unit, first, second, "only in B" if a is None else "only in A")
    if a.data != b.data or a.unit != b.unit:
        words = [f"{cell.data[1]:,} images of {cell.data[0]}, in {cell.unit or 'no unit'}" for cell in (a, b)]
        return Change(*key, unit, first, second, "not comparable", f"A: {words[0]}; B: {words[1]}")
    if a.values == b.values:
        return Change(*key, unit, first, second, "identical", difference=0.0)
    estimate = difference(list(b.values.values()), list(a.values.values()))
    moved = (second.mean or 0.0) - (first.mean or 0.0)
    if estimate is None:
        why = "" if min(first.n, second.n) < 2 else "the seeds of both sides agree, which is no spread to judge by"
        return Change(*key, unit, first, second, "too few seeds", why, moved)
    low, high = estimate.interval()
    return Change(*key, unit, first, second, "within noise", "", moved, low, high, estimate.p())


def _plan_differences(a: Results, b: Results) -> list[tuple[str, str, str]]:
    pairs: dict[str, tuple[str, str]] = {
        "plan": (a.plan.name, b.plan.name),
        "budget": (a.plan.budget, b.plan.budget),
        "data": (a.plan.dataset.badge, b.plan.dataset.badge),
        "data digest": ((a.plan.dataset.digest or "none")[:12], (b.plan.dataset.digest or "none")[:12]),
        "seeds": (_joined(a.plan.seeds), _joined(b.plan.seeds)),
    }
    for task in dict.fromkeys([*a.plan.tasks, *b.plan.tasks]):
        words = ["; ".join(results.plan.reductions.get(task, [])) or "none" for results in (a, b)]
        pairs[f"{task}: reductions"] = (words[0], words[1])
    return [(name, x, y) for name, (x, y) in pairs.items() if x != y]


def _run_differences(a: Results, b: Results) -> list[tuple[str, str, str]]:
    """Config and training source cell by cell; versions and machines as the set over all runs of a folder."""
    found = []
    cells = [{run.key[:2]: run for run in reversed(list(side.runs.values()))} for side in (a, b)]
    for cell in [name for name in cells[0] if name in cells[1]]:
        first, second = (
            flat({**side[cell].manifest.config, "training source": _short(side[cell].manifest.digests)})
            for side in cells
        )
        for key in sorted(first.keys() | second.keys()):
            if first.get(key) != second.get(key):
                found.append((f"{'/'.join(cell)}: {key}", str(first.get(key)), str(second.get(key))))
    if not (a.runs and b.runs):
        return found
    sides = [[_surroundings(run) for run in side.runs.values()] for side in (a, b)]
    for name in dict.fromkeys(name for side in sides for run in side for name in run):
        words = [_joined(sorted({run.get(name, "none") for run in side})) for side in sides]
        if words[0] != words[1]:
            found.append((name, words[0], words[1]))
    return found


def _surroundings(run: Run) -> dict[str, str]:
    """What a run was made with and on, beside its config."""
    manifest = run.manifest
    git = f"{(manifest.git.commit or 'none')[:10]}{', changed' if manifest.git.dirty else ''}"
    resolved = {name: manifest.resolved.get(name) for name in ("device", "threads", "precision", "routing")}
    found = {**resolved, **manifest.machine, "commit": git, **manifest.versions}
    return {name: str(value) for name, value in found.items()}


def _short(digests: dict[str, str | None]) -> str:
    return (digests.get("training_source") or "none")[:12]


def _joined(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values) or "none"
