"""The readable view of a table: one row per variant and condition. Markdown, LaTeX, terminal and HTML all show this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from capsbench.errors import counted
from capsbench.report.best import certainly_best, is_control
from capsbench.report.captions import table_caption
from capsbench.report.published import TableCell
from capsbench.report.results import Results
from capsbench.report.statistics import Summary
from capsbench.report.tables import Metric, Row, long_table, spec_for

NOTHING = "–"
BOLD = "Bold:"  # how the caption begins that says what it means


@dataclass(frozen=True)
class Column:
    """A heading and what stands under it."""

    label: str
    kind: Literal["name", "condition", "value", "paper", "count", "text"]  # text: sentences, which wrap


@dataclass(frozen=True)
class Entry:
    """One place in the table: its text, what it is sorted by (None sorts last), whether it is certainly the best."""

    text: str
    sort: float | str | None = None
    bold: bool = False


@dataclass(frozen=True)
class WideRow:
    """One variant under one condition."""

    variant: str
    condition: str
    entries: list[Entry]  # one a column


@dataclass(frozen=True)
class WideTable:
    """A table to read. `caption` is a list of sentences, the first of them the title."""

    task: str
    columns: list[Column]
    rows: list[WideRow]
    caption: list[str]


@dataclass(frozen=True)
class ExtraTable:
    """A table that is of no task, as it is read and as it is stored; `name` is that of its files."""

    name: str
    table: WideTable
    frame: pd.DataFrame


def decimals(unit: str) -> int:
    """Digits after the point that a unit is shown with."""
    return {"%": 2, "dB": 2, "images": 1}.get(unit, 4)


def p_words(p: float | None) -> str:
    """`0.051`, `<0.001`, or a dash."""
    return NOTHING if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def with_interval(summary: Summary, unit: str) -> str:
    """`1.53 ± 0.12`; the mean alone for one run; a dash for none."""
    if summary.mean is None:
        return NOTHING
    digits = decimals(unit)
    mean = f"{summary.mean:.{digits}f}"
    return mean if summary.half_width is None else f"{mean} ± {summary.half_width:.{digits}f}"


def left_out(row: Row) -> str:
    """`1 failed, 2 not matched`; empty if every run is in the mean."""
    failed = row.n_failed - row.n_unmatched
    words = [f"{failed} failed" if failed else "", f"{row.n_unmatched} not matched" if row.n_unmatched else ""]
    return ", ".join(word for word in words if word)


def paper_words(row: Row) -> str:
    """The published figure as the source gives it."""
    if row.paper is None:
        return NOTHING
    return f"{row.paper:g}" if row.paper_sd is None else f"{row.paper:g} (sd {row.paper_sd:g})"


def wide_table(results: Results, task: str) -> WideTable:
    """The readable table of a task, in the plan's order."""
    rows = long_table(results, task)
    spec = spec_for(task, results)
    present = {row.cell.metric for row in rows}
    shown = [metric for metric in spec.main if metric.name in present]
    empty = without_runs(results, task)
    with_paper = {row.cell.metric for row in rows if row.paper is not None and row.cell.variant not in empty}
    several = len({row.cell.condition for row in rows}) > 1
    columns = [Column("variant", "name")] + ([Column("condition", "condition")] if several else [])
    for metric in shown:
        columns.append(Column(metric.heading, "value"))
        if metric.name in with_paper:
            columns.append(Column("paper", "paper"))
    unmatched = any(row.n_unmatched for row in rows)
    columns += [Column("n", "count"), Column("failed or not matched" if unmatched else "failed", "count")]
    places: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        places.setdefault((row.cell.variant, row.cell.condition), {})[row.cell.metric] = row
    best = certainly_best(results, task)
    wide = []
    for (variant, condition), found in places.items():
        if variant not in empty:
            names = [results.plan.title(variant), condition] if several else [results.plan.title(variant)]
            values = _values(found, shown, with_paper, best)
            wide.append(WideRow(variant, condition, [*(Entry(name, name) for name in names), *values]))
    caption = table_caption(results, task, any(metric.name in with_paper for metric in shown))
    if empty:
        titles = "; ".join(results.plan.title(variant) for variant in empty)
        caption.append(f"{counted(len(empty), 'row')} without a run yet: {titles}.")
    if best:
        under = " under its condition" if several else ""
        certain = "whatever the seeds (Welch's t, Holm over the table)"  # of other digits, claims alone can tell
        caption.append(f"{BOLD} the best of its column{under} on these test digits, {certain}.")
        if any(is_control(results, task, variant) for variant, _ in places):
            caption.append("Rows trained on pairs are left out of that comparison.")
    return WideTable(task, columns, wide, caption)


def without_runs(results: Results, task: str) -> list[str]:
    """The variants that nothing is there of yet, where something is of others: a table of dashes hides the numbers."""
    begun = {run.variant for run in results.runs if run.task == task}
    begun |= {p.variant for p in results.problems if p.task == task and p.variant and p.kind != "missing"}
    return [variant for variant in results.plan.tasks[task] if begun and variant not in begun]


def _values(found: dict[str, Row], shown: list[Metric], with_paper: set[str], best: set[TableCell]) -> list[Entry]:
    """A row's entries after its names: each metric of `shown`, what the paper has of `with_paper`, n, what failed.

    `found` holds the row's metrics, `best` the cells that are bold.
    """
    most = max((row.summary.n for row in found.values()), default=0)
    entries = []
    for metric in shown:
        row = found.get(metric.name)
        if row is None:
            entries.append(Entry(NOTHING))
        else:
            text = with_interval(row.summary, row.unit)
            text += f" (n = {row.summary.n})" if 0 < row.summary.n < most else ""
            entries.append(Entry(text, row.summary.mean, row.cell in best))
        if metric.name in with_paper:
            entries.append(Entry(NOTHING) if row is None else Entry(paper_words(row), row.paper))
    failed = max((row.n_failed for row in found.values()), default=0)
    return [*entries, Entry(str(most), most), Entry(str(failed), failed)]
