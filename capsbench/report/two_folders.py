"""Two results folders held against each other: which means moved, beyond noise or not, and what else differed."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from capsbench.errors import counted
from capsbench.report.mixtures import flat, training_source
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
class TwoFolders:
    """All of it. `differences` are (where, in A, in B)."""

    changes: list[Change]
    differences: list[tuple[str, str, str]]
    other_weights: int  # runs of both with other weights: whether they were scored alike their digests do not say


def compare(a: Results, b: Results, every_metric: bool = False) -> TwoFolders:
    """Hold B against A, cell by cell: the metrics of the readable tables, or every metric, diagnostics' too.

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
    both = [key for key, run in a.runs.items() if key in b.runs and (run.metrics or run.apart)]
    other_weights = sum(not _same_weights(a.runs[key], b.runs[key]) for key in both)
    return TwoFolders(changes, _plan_differences(a, b) + _run_differences(a, b), other_weights)


Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class _Cell:
    unit: str
    data: tuple[str, int]  # the data set and the number of images
    values: dict[int, float]  # by seed


def _values(results: Results, every_metric: bool) -> dict[Key, _Cell]:
    shown = {task: {metric.name for metric in spec_for(task, results).main} for task in results.plan.tasks}
    found: dict[Key, _Cell] = {}
    parts = [results.frame, results.apart] if every_metric else [results.frame]
    frame = pd.concat([part for part in parts if len(part)] or parts[:1])
    groups = frame.groupby(["task", "variant", "condition", "metric"], sort=False)
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
        why = "" if min(first.n, second.n) < 2 else "the seeds of both sides agree, which leaves no spread to judge by"
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
    """Config, source and evaluation cell by cell; versions and machines as the set over all runs of a folder."""
    found = []
    cells = [_cells(side) for side in (a, b)]
    for cell in [name for name in cells[0] if name in cells[1]]:
        first, second = ({seed: _making(run) for seed, run in side[cell].items()} for side in cells)
        for key in sorted({key for side in (first, second) for values in side.values() for key in values}):
            x, y = ({seed: str(values.get(key)) for seed, values in side.items()} for side in (first, second))
            if _is_other(x, y):
                found.append((f"{'/'.join(cell)}: {key}", _by_seed(x), _by_seed(y)))
        found += _evaluation_differences("/".join(cell), cells[0][cell], cells[1][cell])
    if not (a.runs and b.runs):
        return found
    sides = [{key: _surroundings(run) for key, run in side.runs.items()} for side in (a, b)]
    both = [key for key in sides[0] if key in sides[1]]
    for name in dict.fromkeys(name for side in sides for run in side.values() for name in run):
        words = [_joined(sorted({run.get(name, "none") for run in side.values()})) for side in sides]
        swapped = sum(sides[0][key].get(name, "none") != sides[1][key].get(name, "none") for key in both)
        if words[0] != words[1]:
            found.append((name, words[0], words[1]))
        elif swapped:
            found.append((name, words[0], f"{words[1]}, but a different one for {counted(swapped, 'run')}"))
    return found


def _cells(results: Results) -> dict[tuple[str, str], dict[int, Run]]:
    """The runs of each cell by seed."""
    found: dict[tuple[str, str], dict[int, Run]] = {}
    for run in results.runs.values():
        found.setdefault((run.key.task, run.key.variant), {})[run.key.seed] = run
    return found


def _making(run: Run) -> dict[str, object]:
    """What decides a run's weights and is the same for every seed of a cell."""
    test_set = run.manifest.digests.get("test_set")
    sources = {"training source": _short(training_source(run)), "test set": _short(test_set)}
    return flat({**run.manifest.config, **sources})


def _evaluation_differences(cell: str, a: dict[int, Run], b: dict[int, Run]) -> list[tuple[str, str, str]]:
    """The conditions of a cell that one side alone has, or that were scored on other data, with other options or by
    another source.
    """
    found = []
    metrics = [{seed: {**run.metrics, **run.apart} for seed, run in side.items()} for side in (a, b)]
    told = [seed for seed in a if seed in b and _same_weights(a[seed], b[seed])]
    for condition in dict.fromkeys(name for side in metrics for of in side.values() for name in of):
        first, second = ({seed: of[condition] for seed, of in side.items() if condition in of} for side in metrics)
        if not (first and second):
            found.append((f"{cell}: condition {condition}", _scored(first), _scored(second)))
            continue
        x, y = ({seed: _short(of.dataset.digest) for seed, of in side.items()} for side in (first, second))
        if _is_other(x, y):
            found.append((f"{cell}: data digest of {condition}", _by_seed(x), _by_seed(y)))
        seeds = [seed for seed in told if seed in first and seed in second]
        x, y = ({seed: _short(side[seed].digest) for seed in seeds} for side in (first, second))
        if x != y:
            found.append((f"{cell}: evaluation of {condition}", _by_seed(x), _by_seed(y)))
    return found


def _scored(seeds: Sized) -> str:
    return f"scored for {counted(len(seeds), 'seed')}" if seeds else "not scored"


def _same_weights(a: Run, b: Run) -> bool:
    """Whether evaluation digests can be held against each other: they cover the run's digest and its weights too."""
    first, second = a.manifest, b.manifest
    return first.weights is not None and (first.digest, first.weights) == (second.digest, second.weights)


def _is_other(a: dict[int, str], b: dict[int, str]) -> bool:
    """Whether values by seed differ: in a seed of both, or in what there is at all."""
    return set(a.values()) != set(b.values()) or any(a[seed] != b[seed] for seed in a if seed in b)


def _by_seed(values: dict[int, str]) -> str:
    """`128`, or where seeds have several values `128 (seeds 0, 1), 64 (seed 2)`."""
    seeds: dict[str, list[int]] = {}
    for seed, value in sorted(values.items()):
        seeds.setdefault(value, []).append(seed)
    if len(seeds) == 1:
        return next(iter(seeds))
    return ", ".join(f"{value} (seed{'s' * (len(of) > 1)} {_joined(of)})" for value, of in seeds.items())


def _surroundings(run: Run) -> dict[str, str]:
    """What a run was made with and on, beside its config."""
    manifest = run.manifest
    changed = {True: " (changed)", False: "", None: " (perhaps changed)"}[manifest.git.dirty]
    git = f"{manifest.git.commit[:10]}{changed}" if manifest.git.commit else "none"
    chosen = ("device", "threads", "precision", "routing", "convolutions")
    resolved = {name: manifest.resolved.get(name) for name in chosen}
    found = {**resolved, **manifest.machine, "commit": git, **manifest.versions}
    return {name: str(value) for name, value in found.items()}


def _short(digest: str | None) -> str:
    return (digest or "none")[:12]


def _joined(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values) or "none"
