"""Which cells of a task's table are certainly the best of their column: those that stand in bold."""

from __future__ import annotations

from collections import Counter

from capsbench.report.published import TableCell
from capsbench.report.results import Results
from capsbench.report.statistics import CONFIDENCE, Estimate, difference, holm
from capsbench.report.tables import spec_for


def certainly_best(results: Results, task: str) -> set[TableCell]:
    """The best of every metric under every condition, where its difference to each other variant is certain.

    By Welch's t over seeds, with Holm over all comparisons of the table: certain of these test digits. Whether it holds
    of others too is for the claims to say, whose tests are over seeds and digits (`verdicts/`). Where a variant of the
    plan has fewer than two values in a column, or not one of each of its seeds, nothing in it is certain: runs are yet
    to come, or those that are left were the luckier ones. Left aside are
    variants that will have none: all runs failed or not matched, or scored under the condition without that metric, as
    a model without a decoder; and positive controls, which do another task.
    """
    spec = spec_for(task, results)
    better = {metric.name: metric for metric in spec.main if metric.better}
    scored = results.frame[results.frame["task"] == task]
    variants = [v for v in results.plan.tasks[task] if not is_control(results, task, v)]
    planned = Counter(key.variant for key in {run.key for run in results.plan.runs} if key.task == task)
    frame = scored[scored["metric"].isin(list(better)) & scored["variant"].isin(variants)]
    comparisons: list[tuple[TableCell, Estimate | None]] = []
    for (condition, metric), column in frame.groupby(["condition", "metric"], sort=False):
        values = {str(variant): group["value"].tolist() for variant, group in column.groupby("variant", sort=False)}
        sign = 1 if better[str(metric)].better == "greater" else -1
        best = max(values, key=lambda variant: sign * sum(values[variant]) / len(values[variant]))
        cell = TableCell(task, best, str(condition), str(metric))
        answered = set(scored.loc[scored["condition"] == condition, "variant"])
        without = set() if better[str(metric)].headline else answered - values.keys()
        lost = {v for v in variants if v not in answered and _is_lost(results, task, v, str(condition))}
        others = [v for v in variants if v not in {best} | without | lost]
        whole = {v for v, found in values.items() if len(found) == planned[v]}
        comparisons += [
            (cell, difference(values[best], values[other]) if {best, other} <= whole else None) for other in others
        ]
    adjusted = holm([1.0 if estimate is None else estimate.p() for _, estimate in comparisons])
    judged = list(zip(comparisons, adjusted, strict=True))
    doubtful = {cell for (cell, _), p in judged if p >= 1 - CONFIDENCE}
    return {cell for cell, _ in comparisons} - doubtful


def is_control(results: Results, task: str, variant: str) -> bool:
    """Whether a variant was trained on the pairs that it is tested on: a positive control."""
    return any(run.spec.get("train_on") == "pairs" for run in results.done(task, variant))


def _is_lost(results: Results, task: str, variant: str, condition: str) -> bool:
    """Whether every run of a variant has failed or was not matched, so that it will have no value."""
    planned = sum((run.task, run.variant) == (task, variant) for run in results.plan.runs)
    return sum(results.count(kind, task, variant, condition) for kind in ("failed", "not matched")) == planned
