"""Which cells of a task's table are certainly the best of their column: those that stand in bold."""

from __future__ import annotations

from capsbench.report.published import Cell
from capsbench.report.results import Results
from capsbench.report.statistics import CONFIDENCE, Estimate, difference, holm
from capsbench.report.tables import spec_for


def certainly_best(results: Results, task: str) -> set[Cell]:
    """The best of every metric under every condition, where its difference to each other variant is certain.

    By Welch's t over seeds, with Holm over all comparisons of the table. Where any variant of the column has fewer than
    two seeds, nothing is certain.
    """
    spec = spec_for(task, results)
    better = {metric.name: metric.better for metric in spec.main if metric.better}
    frame = results.frame[(results.frame["task"] == task) & results.frame["metric"].isin(list(better))]
    comparisons: list[tuple[Cell, Estimate | None]] = []
    for (condition, metric), column in frame.groupby(["condition", "metric"], sort=False):
        values = {str(variant): group["value"].tolist() for variant, group in column.groupby("variant", sort=False)}
        sign = 1 if better[str(metric)] == "greater" else -1
        best = max(values, key=lambda variant: sign * sum(values[variant]) / len(values[variant]))
        cell = Cell(task, best, str(condition), str(metric))
        comparisons += [(cell, difference(values[best], values[other])) for other in values if other != best]
    adjusted = holm([1.0 if estimate is None else estimate.p() for _, estimate in comparisons])
    judged = list(zip(comparisons, adjusted, strict=True))
    doubtful = {cell for (cell, _), p in judged if p >= 1 - CONFIDENCE}
    return {cell for cell, _ in comparisons} - doubtful
