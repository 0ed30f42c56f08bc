"""Small drawings beside a table's rows: interval, seeds and the paper's figure, on one scale a condition."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from capsbench.report.published import TableCell
from capsbench.report.results import Results
from capsbench.report.statistics import summarise
from capsbench.report.tables import spec_for
from capsbench.report.wide import WideTable


@dataclass(frozen=True)
class Strip:
    """Places in percent of the strip's width. What lies beyond an edge is cut there."""

    mean: float
    low: float | None
    high: float | None
    seeds: list[float]
    paper: float | None
    words: str  # the same for those who do not see it


def strips(results: Results, table: WideTable) -> list[Strip | None]:
    """One strip a row of `table`, of the task's first metric; None where no run has it."""
    spec = spec_for(table.task, results)
    if not spec.main:
        return [None] * len(table.rows)
    metric = spec.main[0]
    frame = results.frame[(results.frame["task"] == table.task) & (results.frame["metric"] == metric.name)]
    values = {
        (str(v), str(c)): [float(x) for x in group]
        for (v, c), group in frame.groupby(["variant", "condition"])["value"]
    }
    drawn: list[Strip | None] = []
    for row in table.rows:
        seeds = values.get((row.variant, row.condition), [])
        if not seeds:
            drawn.append(None)
            continue
        papers = [
            value.value
            for other in table.rows
            if other.condition == row.condition
            and (value := results.published.get(TableCell(table.task, other.variant, other.condition, metric.name)))
            is not None
        ]
        shared = [x for (_, condition), found in values.items() if condition == row.condition for x in found] + papers
        room = max(0.12 * (max(shared) - min(shared)), 0.02 * abs(max(shared)), 1e-6)
        start, end = min(shared) - room, max(shared) + room
        paper = results.published.get(TableCell(table.task, row.variant, row.condition, metric.name))
        drawn.append(_strip(seeds, paper.value if paper else None, start, end, metric.unit))
    return drawn


def place_between(start: float, end: float, value: float) -> float:
    """Where a value stands from `start` to `end`, 0 to 100; what lies outside stands at an end."""
    return round(min(100.0, max(0.0, 100 * (value - start) / (end - start))), 2)


def _strip(seeds: list[float], paper: float | None, start: float, end: float, unit: str) -> Strip:
    place = functools.partial(place_between, start, end)

    found = summarise(seeds)
    assert found.mean is not None  # there is at least one seed
    words = f"{found.mean:.4g} {unit}"
    if found.low is not None and found.high is not None:
        words += f", 95 % interval {found.low:.4g} to {found.high:.4g}"
    words += f", paper {paper:g}" if paper is not None else ""
    return Strip(
        place(found.mean),
        None if found.low is None else place(found.low),
        None if found.high is None else place(found.high),
        [place(value) for value in sorted(seeds)],
        None if paper is None else place(paper),
        words,
    )
