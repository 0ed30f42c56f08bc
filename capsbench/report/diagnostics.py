"""Tables of conditions that are diagnostics: how a trained model answers, not how well it does its task."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from capsbench.report.published import TableCell
from capsbench.report.results import Results
from capsbench.report.statistics import summarise
from capsbench.report.tables import Metric, Row, csv_frame
from capsbench.report.wide import NOTHING, Column, Entry, ExtraTable, WideRow, WideTable, with_interval

TASK = "mnist"  # the one task that has any


def frame_of(results: Results, condition: str) -> pd.DataFrame:
    """The rows of a diagnostic, COLUMNS of results: a run x metric each."""
    return results.apart[results.apart["condition"] == condition]


def variants_of(results: Results, condition: str) -> list[str]:
    """The variants with rows of a diagnostic, in the plan's order."""
    found = set(frame_of(results, condition)["variant"])
    return [variant for variant in results.plan.tasks.get(TASK, []) if variant in found]


def diagnostic_table(
    results: Results, name: str, condition: str, shown: Sequence[Metric], caption: list[str]
) -> ExtraTable:
    """A row a variant with the metrics of `shown` that any has; the CSV has every metric."""
    variants = variants_of(results, condition)
    rows = {variant: _rows(results, variant, condition) for variant in variants}
    present = {row.cell.metric for of in rows.values() for row in of}
    shown = [metric for metric in shown if metric.name in present]
    columns = [Column("variant", "name"), *(Column(metric.heading, "value") for metric in shown)]
    columns += [Column("n", "count"), Column("failed", "count")]
    wide = [_wide(results, variant, condition, of, shown) for variant, of in rows.items()]
    table = WideTable(name, columns, wide, caption)
    return ExtraTable(name, table, csv_frame([row for of in rows.values() for row in of]))


def _rows(results: Results, variant: str, condition: str) -> list[Row]:
    frame = frame_of(results, condition)
    failed = results.count("failed", TASK, variant)
    return [
        Row(
            TableCell(TASK, variant, condition, str(metric)),
            str(group["dataset"].iloc[0]),
            str(group["unit"].iloc[0]),
            failed,
            0,
            summarise(group["value"].tolist()),
            None,
            None,
        )
        for metric, group in frame[frame["variant"] == variant].groupby("metric", sort=False)
    ]


def _wide(results: Results, variant: str, condition: str, rows: list[Row], shown: Sequence[Metric]) -> WideRow:
    found = {row.cell.metric: row for row in rows}
    title = results.plan.title(variant)
    entries = [Entry(title, title)]
    for metric in shown:
        row = found.get(metric.name)
        entries.append(Entry(NOTHING) if row is None else Entry(with_interval(row.summary, row.unit), row.summary.mean))
    n, failed = max(row.summary.n for row in rows), rows[0].n_failed
    return WideRow(variant, condition, [*entries, Entry(str(n), n), Entry(str(failed), failed)])
