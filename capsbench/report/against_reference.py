"""A row against its reference: what differs, both means, and the difference with its interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from capsbench.errors import counted
from capsbench.report.captions import task_in_words
from capsbench.report.contract import Comparison, Difference
from capsbench.report.results import Results
from capsbench.report.statistics import Estimate, Summary, difference, holm, summarise
from capsbench.report.tables import Metric, spec_for
from capsbench.report.wide import NOTHING, decimals

INTERVALS = (
    "95 % interval over seeds and test digits, where answers to single images are stored and agree with the metrics; "
    "elsewhere Welch's over seeds, "
    "marked `over seeds`, which holds for these test digits only. Where a run failed or was not matched those left may "
    "be the luckier ones, and there is no interval. Intervals are not corrected for the number of rows; p is, after "
    "Holm: over all rows of the task that are compared under the same condition by the same metric, whether they are "
    "finished or not."
)
GAP = Metric("train_test_gap", "train-test gap", "%", headline=False)
FACTORS = {  # the words of a plan that need others in a table
    "iterations": "passes of routing",
    "train_per_class": "digits a class",
    "share": "sharing of W",
    "down_weight": "lambda",
    "detach_inner": "gradient through the last pass only",
    "decay_period": "steps a decay",
    "mask": "mask of the decoder",
    "rate": "learning rate",
}


@dataclass(frozen=True)
class Compared:
    """One metric of a row under one condition, beside its reference's. What cannot be had is None."""

    task: str
    dataset: str
    row: Comparison
    condition: str
    metric: Metric
    own: Summary
    other: Summary
    difference: float | None  # the row's mean less its reference's
    welch: Estimate | None  # over seeds alone
    lost: int = 0  # runs of either that failed or were not matched
    crossed: Estimate | None = None  # over seeds and test digits: report/over_digits.py
    p_holm: float | None = None  # of the estimate: report/over_digits.py

    @property
    def measured(self) -> str:
        """`error (test), %`."""
        return replace(self.metric, label=f"{self.metric.label} ({self.condition})").heading

    @property
    def estimate(self) -> Estimate | None:
        """The difference as it is reported: over seeds and test digits where that is to be had."""
        return self.crossed or self.welch


def compared(results: Results, table: str) -> list[Compared]:
    """The rows of table `ablation` or `ladder` in the plan's order, with every metric that is about the answers."""
    rows = []
    for task, comparisons in results.plan.comparisons.get(table, {}).items():
        frame = results.frame[results.frame["task"] == task]
        dataset = str(frame["dataset"].iloc[0]) if len(frame) else ""
        spec = spec_for(task, results)
        metrics = [metric for metric in spec.main if metric.headline] + ([GAP] if task == "mnist" else [])
        for row in comparisons:
            for condition in spec.conditions:
                for metric in metrics:
                    own, other = (
                        results.values(task, condition, metric.name, name) if name else []
                        for name in (row.variant, row.reference)
                    )
                    lost = _lost(results, row, task, condition)
                    found = Compared(task, dataset, row, condition, metric, *_statistics(own, other), lost)
                    rows.append(replace(found, welch=None) if lost else found)
    return rows


def corrected(rows: list[Compared]) -> list[Compared]:
    """`rows` with `p_holm`: Holm's over the comparisons of a task that share condition and metric.

    One that cannot be told counts with a p of 1, so that what a table says today can only become clearer with the rows
    that are to come.
    """
    families: dict[tuple[str, str, str], list[int]] = {}
    for k, row in enumerate(rows):
        if row.row.reference is not None:  # the first rung of a ladder is compared with nothing
            families.setdefault((row.task, row.condition, row.metric.name), []).append(k)
    p_holm: dict[int, float] = {}
    for family in families.values():
        estimates = [rows[k].estimate for k in family]
        p_holm |= zip(family, holm([1.0 if found is None else found.p() for found in estimates]), strict=True)
    return [replace(row, p_holm=p_holm[k]) if row.estimate else row for k, row in enumerate(rows)]


def _lost(results: Results, row: Comparison, task: str, condition: str) -> int:
    """How many runs of a row and its reference have failed, or were not matched under the condition."""
    names = [name for name in (row.variant, row.reference) if name]
    return sum(results.count("failed", task, name) for name in names) + sum(
        results.count("not matched", task, name, condition) for name in names
    )


def readable(results: Results, rows: list[Compared]) -> list[Compared]:
    """Those that a readable table shows: the task's first metric, and on MNIST the gap between training and test."""
    return [row for row in rows if row.metric in (spec_for(row.task, results).main[0], GAP)]


def _statistics(own: list[float], other: list[float]) -> tuple[Summary, Summary, float | None, Estimate | None]:
    first, second = summarise(own), summarise(other)
    less = None if first.mean is None or second.mean is None else first.mean - second.mean
    return first, second, less, difference(own, other)


def factor_words(differs: list[Difference]) -> tuple[str, str, str]:
    """What differs, the row's value and the reference's. More than one factor is said to be more than one."""
    chosen, own = [d for d in differs if not d.own], [d for d in differs if d.own]
    if not chosen:
        return NOTHING, NOTHING, NOTHING
    names = [FACTORS.get(d.factor, d.factor.replace("_", " ")) for d in chosen]
    if len(chosen) == 1:
        brought = ", ".join(f"{FACTORS.get(d.factor, d.factor.replace('_', ' '))} {d.value}" for d in own)
        return names[0], chosen[0].value + (f" (with its own {brought})" if brought else ""), chosen[0].reference
    values, references = (
        "; ".join(f"{name} {value}" for name, value in zip(names, of, strict=True))
        for of in ([d.value for d in chosen], [d.reference for d in chosen])
    )
    return f"{len(chosen)} factors: {', '.join(names)}", values, references


def difference_words(row: Compared) -> str:
    """`-0.31 (-0.52 to -0.10)`; without the interval where a side has one seed or lost one; a dash where there is none.

    An interval of Welch's says `over seeds`.
    """
    if row.difference is None:
        return NOTHING
    digits = decimals(row.metric.unit)
    text = f"{row.difference:+.{digits}f}"
    if row.lost:
        return f"{text} ({counted(row.lost, 'run')} lost)"
    if row.estimate is None:
        return text
    low, high = row.estimate.interval()
    return f"{text} ({low:+.{digits}f} to {high:+.{digits}f}{'' if row.crossed else ' over seeds'})"


def caption_of(results: Results, table: str, words: list[str]) -> list[str]:
    """`words`, and for each task of the table its data, budget, reductions, seeds and notes."""
    return [*words, *(task_in_words(results, task) for task in results.plan.comparisons.get(table, {}))]


def compared_frame(rows: list[Compared]) -> pd.DataFrame:
    """The rows as a frame; what cannot be had is an empty cell."""
    lines = []
    for row in rows:
        factor, value, reference = factor_words(row.row.differs)
        (low, high), p = _interval(row.estimate)
        (welch_low, welch_high), welch_p = _interval(row.welch)
        lines.append(
            {
                "task": row.task, "dataset": row.dataset, "variant": row.row.variant, "condition": row.condition,
                "metric": row.metric.name, "unit": row.metric.unit, "factor": factor, "value": value,
                "reference_value": reference, "reference": row.row.reference, "n": row.own.n, "mean": row.own.mean,
                "n_reference": row.other.n, "mean_reference": row.other.mean, "difference": row.difference,
                "test": "crossed" if row.crossed else "welch" if row.welch else None,
                "ci_low": low, "ci_high": high, "p": p, "p_holm": row.p_holm,
                "welch_low": welch_low, "welch_high": welch_high, "welch_p": welch_p,
            }
        )  # fmt: skip
    return pd.DataFrame(lines)


def _interval(estimate: Estimate | None) -> tuple[tuple[float | None, float | None], float | None]:
    return ((None, None), None) if estimate is None else (estimate.interval(), estimate.p())
