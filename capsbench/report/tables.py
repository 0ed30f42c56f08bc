"""The long tables: one row per variant x condition x metric, mean and interval over seeds (tables/*.csv)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from capsbench.report.published import TableCell
from capsbench.report.results import APART, Results
from capsbench.report.statistics import Summary, summarise

CSV_COLUMNS = [
    "task", "dataset", "variant", "condition", "metric", "unit",
    "n", "n_failed", "mean", "sd", "ci_low", "ci_high", "paper",
]  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """A metric that the readable tables show."""

    name: str
    label: str
    unit: str
    headline: bool = True  # every model has it, so a variant without a finished run has an empty row of it
    better: Literal["less", "greater"] | None = None  # which is better; None: nothing is best, so nothing is bold

    @property
    def heading(self) -> str:
        """`error, %`: the label with its unit, if it has one."""
        return f"{self.label}, {self.unit}" if self.unit else self.label


@dataclass(frozen=True)
class TableSpec:
    """What a task's table is about. A task without a spec gets a plain table of all its metrics."""

    task: str
    title: str  # in SPECS, {badge} is what the plan calls its data, and {last} in a label the epochs of its means
    conditions: tuple[str, ...]
    shown: str  # the condition of figures with one number a run, which every finished run has
    main: tuple[Metric, ...]  # in the order of the readable tables; the CSV has every metric
    trained: str = ""  # what training curves call it, where the title is about the test


def _drawn(name: str, label: str, better: Literal["greater"] | None = None) -> Metric:
    """How well a decoder draws each digit alone: only models with a decoder have it."""
    return Metric(name, label, "", headline=False, better=better)


SPECS = {
    spec.task: spec
    for spec in (
        TableSpec(
            "mnist",
            "Test error on {badge}, last epoch",
            ("test",),
            "test",
            (
                Metric("error", "error", "%", better="less"),
                Metric("ece", "calibration error", "%", headline=False, better="less"),
            ),
            "One digit",
        ),
        TableSpec(
            "affnist",
            "Accuracy under affine transforms never seen in training",
            ("matched", "converged"),
            "converged",
            (Metric("accuracy", "accuracy", "%", better="greater"),),
            "One digit, to be tested under affine transforms",
        ),
        TableSpec(
            "multimnist",
            "Two overlapping digits: classification and segmentation",
            ("test",),
            "test",
            (
                Metric("error", "error", "%", better="less"),
                Metric("half_credit_error", "half-credit error", "%", better="less"),
                _drawn("ssim_true", "SSIM", better="greater"),
                _drawn("baseline_ssim", "SSIM, copy"),
                _drawn("iou_true", "IoU", better="greater"),
                _drawn("baseline_iou", "IoU, copy"),
            ),
            "Two overlapping digits",
        ),
        TableSpec(
            "two_digit",
            "Trained on single digits, tested on two",
            ("56x28", "28x56"),
            "56x28",
            (
                # each label says of which weights: else these two alone, a subset of both, could seem the larger
                Metric("top2_accuracy", "top-2, {last}", "%", better="greater"),
                Metric("final_top2_accuracy", "top-2, final weights", "%", better="greater"),
                Metric("both_above_half_accuracy", "both > 0.5, {last}", "%", better="greater"),
                Metric(
                    "final_exact_above_half_accuracy", "these two alone > 0.5, final weights", "%", better="greater"
                ),
            ),
        ),
    )
}


def spec_for(task: str, results: Results) -> TableSpec:
    """The registered spec of a task with its words filled in, or a plain one with the first metrics its runs have."""
    if task in SPECS:
        spec, last = SPECS[task], last_epochs(results, task)
        main = tuple(replace(metric, label=metric.label.replace("{last}", last)) for metric in spec.main)
        return replace(spec, title=spec.title.replace("{badge}", results.plan.dataset.badge), main=main)
    frame = results.frame[results.frame["task"] == task]
    first = frame.drop_duplicates("metric").head(4)
    main = tuple(Metric(str(row.metric), str(row.metric), str(row.unit)) for row in first.itertuples())
    conditions = tuple(str(c) for c in frame["condition"].unique())
    return TableSpec(task, task, conditions, conditions[0] if conditions else "", main)


def last_epochs(results: Results, task: str) -> str:
    """`last 5 epochs`: those whose ends a mean of a task is over, by the manifests; no number where they give none."""
    found = sorted({epochs for run in results.done(task) if (epochs := run.averaged_epochs)})
    if found == [1]:
        return "last epoch"
    number = f"{found[0]} to {found[-1]} " if len(found) > 1 else f"{found[0]} " if found else ""
    return f"last {number}epochs"


@dataclass(frozen=True)
class Row:
    """One row of a long table."""

    cell: TableCell
    dataset: str
    unit: str
    n_failed: int  # failed or not matched
    n_unmatched: int  # of these, the not matched
    summary: Summary
    paper: float | None
    paper_sd: float | None


def long_table(results: Results, task: str) -> list[Row]:
    """The rows of a task in the plan's order of variants; inside a variant by condition, then metric, main ones first.

    A variant without a finished run keeps its rows, with n = 0, for the metrics that every model of the task has.
    """
    spec = spec_for(task, results)
    frame = results.frame[results.frame["task"] == task]
    values = {
        (str(variant), str(condition), str(metric)): (str(group["unit"].iloc[0]), group["value"].tolist())
        for (variant, condition, metric), group in frame.groupby(["variant", "condition", "metric"], sort=False)
    }
    scored = str(frame["dataset"].iloc[0]) if len(frame) else ""
    dataset = scored or ("" if task == "affnist" else results.plan.dataset.name)
    units = {metric.name: metric.unit for metric in spec.main}
    rows = []
    for variant in results.plan.tasks[task]:
        for condition in _conditions(results, spec, variant):
            names = [name for found, place, name in values if (found, place) == (variant, condition)]
            main = [metric.name for metric in spec.main]
            shown = [name for name in main if name in names] + [name for name in names if name not in main]
            for name in shown or [metric.name for metric in spec.main if metric.headline]:
                cell = TableCell(task, variant, condition, name)
                unit, found_values = values.get((variant, condition, name), (units.get(name, ""), []))
                paper = results.published.get(cell)
                unmatched = results.count("not matched", task, variant, condition)
                failed = results.count("failed", task, variant) + unmatched
                rows.append(
                    Row(
                        cell,
                        dataset,
                        unit,
                        failed,
                        unmatched,
                        summarise(found_values),
                        paper.value if paper else None,
                        paper.sd if paper else None,
                    )
                )
    return rows


def _conditions(results: Results, spec: TableSpec, variant: str) -> list[str]:
    """The conditions under which a variant was scored; the task's own where it was not scored at all."""
    found = {name for run in results.done(spec.task, variant) for name in run.metrics}
    named = ("not matched", "missing", "unreadable")
    ours = [p for p in results.problems if (p.task, p.variant) == (spec.task, variant) and p.kind in named]
    found = (found | {p.condition for p in ours if p.condition}) - set(APART)
    if not found:
        return list(spec.conditions)
    return [name for name in spec.conditions if name in found] + sorted(found - set(spec.conditions))


def csv_frame(rows: list[Row]) -> pd.DataFrame:
    """The rows as a frame with the columns CSV_COLUMNS; what cannot be had is an empty cell."""
    lines = [
        (
            *(row.cell.task, row.dataset, row.cell.variant, row.cell.condition, row.cell.metric, row.unit),
            *(row.summary.n, row.n_failed, *row.summary[1:], row.paper),
        )
        for row in rows
    ]
    return pd.DataFrame(lines, columns=CSV_COLUMNS)


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as the CSV of every table: ten digits, no index, the same line ends everywhere."""
    return str(frame.to_csv(index=False, float_format="%.10g", lineterminator="\n"))
