"""Where each number comes from: the runs of every cell, and the environments that they ran in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from capsbench.report.contract import RunKey
from capsbench.report.results import Results, Run


@dataclass(frozen=True)
class RunView:
    """One run of a cell as the report lists it."""

    key: RunKey
    status: str  # done, failed, or the kind of its problem
    reasons: list[str]
    run: Run | None
    scores: list[str]  # `test: error 1.53 %`
    environment: str  # its letter


@dataclass(frozen=True)
class CellView:
    """The runs of one variant on one task."""

    anchor: str
    task: str
    variant: str
    title: str
    runs: list[RunView]


@dataclass(frozen=True)
class EnvironmentView:
    """One set of versions and one machine, and how many runs it made."""

    letter: str
    machine: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    runs: int


def environments(results: Results) -> list[EnvironmentView]:
    """Every environment that made a run, in the order of the runs."""
    return [
        EnvironmentView(
            _letter(i),
            _items({**runs[0].manifest.machine, "device": runs[0].manifest.resolved.get("device")}),
            _items(runs[0].manifest.versions),
            len(runs),
        )
        for i, runs in enumerate(_by_environment(results).values())
    ]


def _by_environment(results: Results) -> dict[str, list[Run]]:
    """The runs of each environment; the first has the letter A."""
    found: dict[str, list[Run]] = {}
    for run in results.runs.values():
        found.setdefault(_environment(run), []).append(run)
    return found


def _environment(run: Run) -> str:
    manifest = run.manifest
    return json.dumps(
        [manifest.versions, manifest.machine, manifest.resolved.get("device")], sort_keys=True, default=str
    )


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"A{index}"


def _items(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, "none" if value is None else str(value)) for key, value in values.items()]


def origins(results: Results) -> list[CellView]:
    """Every cell of the plan in its order, with every run that the plan names for it."""
    letters = {environment: _letter(i) for i, environment in enumerate(_by_environment(results))}
    cells = []
    for i, (task, variants) in enumerate(results.plan.tasks.items()):
        for j, variant in enumerate(variants):
            keys = sorted({run.key for run in results.plan.runs if (run.task, run.variant) == (task, variant)})
            views = [_view(results, key, letters) for key in keys]
            cells.append(CellView(f"cell-{i}-{j}", task, variant, results.plan.title(variant), views))
    return cells


def _view(results: Results, key: RunKey, letters: dict[str, str]) -> RunView:
    problems = [p for p in results.problems if (p.task, p.variant, p.seed) == key]
    run = results.runs.get(key)
    whole = [p.kind for p in problems if p.condition is None]
    status = run.manifest.status if run is not None and "missing" not in whole else (whole or ["missing"])[0]
    scores = [
        f"{condition}: {name} {metric.value:.4g} {metric.unit}".rstrip()
        for condition, metrics in (run.metrics if run else {}).items()
        for name, metric in list(metrics.metrics.items())[:2]
        if metric.value is not None
    ]
    reasons = [f"{p.condition}: {p.reason}" if p.condition else p.reason for p in problems]
    return RunView(key, status, reasons, run, scores, letters[_environment(run)] if run else "–")
