"""Runs that should be alike and are not: other budgets and copies are left out, other machines are warned of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from capsbench.errors import counted
from capsbench.plan.same_bits import same_sources
from capsbench.report.results import Kind, Problem, Results, Run

Aspect = Callable[[Run], str]


def training_source(run: Run) -> str:
    """One name for all sources that were shown to give the run the same bits."""
    return min(same_sources(str(run.manifest.digests.get("training_source", "none")), run.manifest.model_dump()))


OF_A_TASK: dict[str, Aspect] = {  # the runs of a task are compared with each other
    "torch": lambda run: str(run.manifest.versions.get("torch")),
    "cuda": lambda run: str(run.manifest.machine.get("cuda")),
    "device": lambda run: str(run.manifest.resolved.get("device")).split(":")[0],  # cuda:0 and cuda:1 are alike
    "gpu": lambda run: str(run.manifest.machine.get("gpu")),
    "processor": lambda run: str(run.manifest.machine.get("processor")),
    "environment variables": lambda run: str(run.manifest.machine.get("environment", "none that alter bits")),
}
OF_A_CELL: dict[str, Aspect] = {  # the seeds of a cell are averaged; its neighbours may well differ in these
    "precision": lambda run: str(run.manifest.resolved.get("precision")),
    "threads": lambda run: str(run.manifest.resolved.get("threads")),
    "routing": lambda run: str(run.manifest.resolved.get("routing", "plain")),  # not said on a CPU
    "convolutions": lambda run: str(run.manifest.resolved.get("convolutions", "plain")),  # said of bf16 alone
    "training source": lambda run: training_source(run)[:10],
}


def leave_out_other_budgets(results: Results) -> None:
    """Leave out a run of another number of steps than its config says, or trained otherwise than most of its cell."""
    for cell in _cells(results):
        for run in cell:
            wanted, had = run.manifest.config.get("steps"), run.manifest.steps
            if isinstance(wanted, int) and had is not None and had != wanted:
                _drop(results, run, "foreign", f"done after {had:,} steps, but its config says {wanted:,}")
    for cell in _cells(results):
        groups: dict[str, list[Run]] = {}
        for run in cell:
            trained = [run.manifest.config, run.manifest.steps]
            groups.setdefault(json.dumps(trained, sort_keys=True, default=str), []).append(run)
        most = max(groups.values(), key=len)  # the first of equals: the one with the lowest seed
        for runs in groups.values():
            for run in runs if runs is not most else []:
                keys = ", ".join(_differing(run, most[0]))
                _drop(results, run, "foreign", f"budget or config differs from seed {most[0].key.seed}'s ({keys})")


def leave_out_copies(results: Results) -> None:
    """Leave out a run whose weights are those of another seed of its cell: two trainings never end in the same bits."""
    for cell in _cells(results):
        owner: dict[str, Run] = {}
        for run in cell:
            weights = run.manifest.weights
            if weights and owner.setdefault(weights, run) is not run:
                _drop(results, run, "duplicated", f"its weights are the same as seed {owner[weights].key.seed}'s")


def warn_of_mixtures(results: Results) -> None:
    """Name what differs between runs that are averaged or compared: versions, devices, precision, training source."""
    for task in results.plan.tasks:
        _warn(results, results.done(task), OF_A_TASK, task, None)
    for cell in _cells(results):
        _warn(results, cell, OF_A_CELL, cell[0].key.task, cell[0].key.variant)


def _cells(results: Results) -> Iterator[list[Run]]:
    """The finished runs of each cell that has any, by seed."""
    for task, variants in results.plan.tasks.items():
        for variant in variants:
            if runs := results.done(task, variant):
                yield runs


def _drop(results: Results, run: Run, kind: Kind, reason: str) -> None:
    del results.runs[run.key]
    results.problem(kind, run.folder / "manifest.json", run.key, reason)


def _differing(run: Run, other: Run) -> list[str]:
    """The keys in which two runs were trained differently, such as `training.batch`."""
    ours, theirs = (flat({"steps": r.manifest.steps, **r.manifest.config}) for r in (run, other))
    return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A config as one level: `training.batch`."""
    found: dict[str, object] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _warn(results: Results, runs: list[Run], aspects: dict[str, Aspect], task: str, variant: str | None) -> None:
    """One problem an aspect in which `runs` differ: how many runs have which value, and who is not of the most."""
    for aspect, value_of in aspects.items():
        groups: dict[str, list[Run]] = {}
        for run in runs:
            groups.setdefault(value_of(run), []).append(run)
        if len(groups) < 2:
            continue
        ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
        words = [f"{counted(len(ordered[0][1]), 'run')} with {ordered[0][0]}"]
        for value, found in ordered[1:]:
            names = [f"{run.key.variant}/seed-{run.key.seed}" for run in found]
            rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
            words.append(f"{counted(len(found), 'run')} with {value} ({', '.join(names[:4])}{rest})")
        file = (ordered[1][1][0].folder / "manifest.json").relative_to(results.folder).as_posix()
        reason = f"runs that are averaged or compared differ in {aspect}: {'; '.join(words)}"
        results.problems.append(Problem("mixed", task, variant, None, None, file, reason))
