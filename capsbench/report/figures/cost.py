"""Figure: what a variant costs against how well it does, one line of panels a task."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from capsbench.report.captions import conditions_in_words
from capsbench.report.costs import Cost, CostRow, caption_words, read_cost
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import WIDTH, Ends, bar, canvas, key, looks, tidy
from capsbench.report.results import Results
from capsbench.report.tables import Row, long_table, spec_for

AXES: dict[str, Callable[[CostRow], float]] = {
    "parameters": lambda row: row.parameters,
    "ms per image, inference": lambda row: 1000 / row.images_per_second["inference"],
}


def draw(results: Results) -> Drawing:
    """Parameters and time an image on logarithmic axes; the task's first metric with its interval upwards."""
    cost, reason = read_cost(results)
    if cost is None:
        raise NotDrawnError(reason)
    found = {task: rows for task in results.plan.tasks if (rows := _scored(results, task, cost))}
    if not found:
        raise NotDrawnError("no variant with a cost has a finished run")
    figure = canvas(WIDTH, 0.7 + 2.5 * len(found))
    panels = figure.subplots(len(found), 2, squeeze=False)
    shown: list[str] = []
    for line, (task, rows) in zip(panels, found.items(), strict=True):
        metric = spec_for(task, results).main[0]
        for axes, (quantity, value) in zip(line, AXES.items(), strict=True):
            limits = _limits([row for row, _ in rows])
            for row, costs in rows:
                _point(axes, results, row, value(costs), limits)
            _log_x(axes)
            axes.set_ylim(*limits)
            axes.set_xlabel(quantity)
        line[0].set_ylabel(f"{task} ({rows[0][0].cell.condition})\n{metric.heading}")
        shown += [row.cell.variant for row, _ in rows]
    key(figure, results, looks(results), [v for v in looks(results) if v in shown])
    words = [
        "Mean over seeds and Student's t 95 % interval of each task's first metric against what a variant costs;",
        "an arrow: the interval extends beyond the panel.",
    ]
    tasks = [sentence for task in found for sentence in (f"Task {task}:", *conditions_in_words(results, task))]
    return Drawing(
        figure, "What accuracy costs", " ".join([*words, *caption_words(results, cost), *tasks]), list(found)
    )


def _scored(results: Results, task: str, cost: Cost) -> list[tuple[Row, CostRow]]:
    """The rows of a task's first metric under the condition that figures show, with the variant's cost."""
    costs = {row.variant: row for row in cost.rows if row.task == task}
    spec = spec_for(task, results)
    if not spec.main:
        return []
    shown = (spec.main[0].name, spec.shown)
    rows = [r for r in long_table(results, task) if (r.cell.metric, r.cell.condition) == shown]
    return [(r, costs[r.cell.variant]) for r in rows if r.summary.n and r.cell.variant in costs]


def _point(axes: Axes, results: Results, row: Row, x: float, limits: Ends) -> None:
    """A mean with its interval, in the variant's look."""
    look, mean = looks(results)[row.cell.variant], row.summary.mean
    assert mean is not None  # only rows with a run are shown
    if row.summary.low is not None and row.summary.high is not None:
        bar(axes, x, (row.summary.low, row.summary.high), limits, look.colour, 1.4, upright=True)
    axes.plot(x, mean, look.marker, color=look.colour, ms=6.5, mec="white", mew=0.6, zorder=5)


def _limits(rows: list[Row]) -> tuple[float, float]:
    """Every mean with room around; an interval over two seeds may reach far beyond."""
    means = [row.summary.mean for row in rows if row.summary.mean is not None]
    room = max(0.45 * (max(means) - min(means)), 0.04 * abs(max(means)), 1e-6)
    low, high = min(means) - room, max(means) + room
    return (max(low, 0.0), min(high, 100.0) if max(means) < 100 else high) if rows[0].unit == "%" else (low, high)


def _log_x(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e6 else f"{value / 1e6:g}M")
    )
    low, high = axes.get_xlim()
    if high / low < 30:  # hardly a power of ten in it: the numbers between are needed
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.xaxis.set_minor_formatter(axes.xaxis.get_major_formatter())
    else:
        axes.xaxis.set_minor_formatter(NullFormatter())
    tidy(axes)
