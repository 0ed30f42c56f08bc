"""Figure: the answers along an axis of the plan: training digits a class, or passes of routing in training."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes

from capsbench.report.against_reference import GAP
from capsbench.report.captions import task_in_words
from capsbench.report.contract import AxisPoint
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import Look, bar, key, looks_of, number_axis, panel_grid, tidy
from capsbench.report.results import Results
from capsbench.report.statistics import summarise
from capsbench.report.tables import Metric, spec_for

LABELS = {
    "per_class": "training digits a class",
    "iterations": "passes of routing in training",
}


class Panel(NamedTuple):
    """One metric of a task under one condition, along one axis; `values` are the seeds' by row."""

    task: str
    axis: str
    condition: str
    metric: Metric
    points: list[AxisPoint]
    values: dict[str, list[float]]


def draw(results: Results) -> Drawing:
    """A panel for each task, axis and condition; on MNIST the gap between training and test, too."""
    panels = _panels(results)
    if not panels:
        raise NotDrawnError("no row of an axis is finished" if results.plan.axes else "the plan has no axes")
    bases = list(dict.fromkeys(point.base for panel in panels for point in panel.points))
    found = looks_of(bases)  # few of a plan's many rows: their looks in the whole plan may be much alike
    figure, grid = panel_grid(len(panels), min(len(panels), 2), 2.7, above=0.2 * -(-len(bases) // 3) + 0.3)
    for axes, panel in zip(grid, panels, strict=True):
        _draw_panel(axes, results, panel, found)
    key(figure, results, found, bases)
    tasks = list(dict.fromkeys(panel.task for panel in panels))
    words = [
        "Dot and bar: mean over seeds and Student's t 95 % interval (an arrow: it extends beyond the panel).",
        "Strokes: seeds.",
        "Each point is trained from scratch; along a line only the axis differs.",
        *(task_in_words(results, task) for task in tasks),
    ]
    return Drawing(figure, "Along the axes", " ".join(words), tasks)


def _panels(results: Results) -> list[Panel]:
    """Every panel in which a row that an axis made has a value."""
    found = []
    for task, points in results.plan.axes.items():
        spec = spec_for(task, results)
        metrics = [metric for metric in spec.main if metric.headline][:1] + ([GAP] if task == "mnist" else [])
        for axis in dict.fromkeys(point.axis for point in points):
            of = [point for point in points if point.axis == axis]
            for condition in spec.conditions:
                for metric in metrics:
                    values = {p.variant: results.values(task, condition, metric.name, p.variant) for p in of}
                    if any(values[point.variant] for point in of if point.variant != point.base):
                        found.append(Panel(task, axis, condition, metric, of, values))
    return found


def _draw_panel(axes: Axes, results: Results, panel: Panel, found: Mapping[str, Look]) -> None:
    """A line for each variant that the axis is for."""
    places = set()
    seen = [value for point in panel.points for value in panel.values[point.variant]]
    room = max(0.15 * (max(seen) - min(seen)), 0.02 * abs(max(seen)), 1e-6)
    limits = (min(seen) - room, max(seen) + room)
    for base in dict.fromkeys(point.base for point in panel.points):
        look = found[base]
        points = [point for point in panel.points if point.base == base and panel.values[point.variant]]
        summaries = [(point.value, summarise(panel.values[point.variant])) for point in points]
        axes.plot(
            [value for value, _ in summaries],
            [fmean(panel.values[point.variant]) for point in points],
            color=look.colour, linestyle=look.line, marker=look.marker, lw=1.7, ms=4.5,
        )  # fmt: skip
        for point, (value, summary) in zip(points, summaries, strict=True):
            seeds = panel.values[point.variant]
            axes.plot([value] * len(seeds), seeds, "_", color=look.colour, ms=7, mew=0.9, alpha=0.6)
            if summary.low is not None and summary.high is not None:
                bar(axes, value, (summary.low, summary.high), limits, look.colour, 1.1, upright=True)
            places.add(value)
    axes.set_ylim(*limits)
    number_axis(axes, sorted(places))
    axes.set_xlabel(LABELS[panel.axis])
    axes.set_ylabel(panel.metric.heading)
    several = len(spec_for(panel.task, results).conditions) > 1
    axes.set_title(f"{panel.task}, {panel.condition}" if several else panel.task)
    tidy(axes)
