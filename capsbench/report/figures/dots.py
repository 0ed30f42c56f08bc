"""Means with their intervals, every seed as a dot, the paper's figure beside: one panel a condition."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words, is_comparable
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import COLOURS, INK, MUTED, WIDTH, bar, canvas, tidy, wrapped
from capsbench.report.results import Results
from capsbench.report.statistics import Summary
from capsbench.report.tables import Row, long_table, spec_for
from capsbench.report.wide import left_out, paper_words, with_interval, without_runs

MEAN, PAPER = COLOURS[0], COLOURS[5]


class Limits(NamedTuple):
    """What a panel shows of the axis."""

    low: float
    high: float


def interval_figure(results: Results, task: str, metric: str, title: str) -> Drawing:
    """Draw one metric of a task. Raises NotDrawnError if no run of the task has it."""
    planned = task in results.plan.tasks
    empty = without_runs(results, task) if planned else []
    rows = [row for row in (long_table(results, task) if planned else []) if row.cell.metric == metric]
    rows = [row for row in rows if row.cell.variant not in empty]
    conditions = list(dict.fromkeys(row.cell.condition for row in rows))
    if not any(row.summary.n for row in rows):
        raise NotDrawnError(f"no finished run of task {task} has the metric {metric}")
    frame = results.frame[(results.frame["task"] == task) & (results.frame["metric"] == metric)]
    with_rows = {row.cell.variant for row in rows}
    names = {name: results.plan.title(name) for name in results.plan.tasks[task] if name in with_rows}
    shown = next(m for m in spec_for(task, results).main if m.name == metric)
    figure = canvas(WIDTH, 0.75 + len(conditions) * (0.3 + 0.33 * len(names)))
    panels = figure.subplots(len(conditions), 1, sharex=True, squeeze=False)[:, 0]
    points = [float(value) for value in frame["value"]] + [row.paper for row in rows if row.paper is not None]
    limits = limits_around(points, rows[0].unit, room=0.45)
    for axes, condition in zip(panels, conditions, strict=True):
        of = [row for row in rows if row.cell.condition == condition]
        _panel(axes, of, frame[frame["condition"] == condition], names, limits)
        if len(conditions) > 1:
            axes.set_title(condition)
    panels[-1].set_xlabel(shown.heading)
    spread = any(row.summary.low is not None for row in rows)
    handles = [
        Line2D([], [], color=MEAN, marker="o", ms=6, lw=2 * spread, label="mean, 95 % interval" if spread else "mean"),
        Line2D([], [], color=MUTED, marker="|", ms=8, lw=0, label="a seed"),
        Line2D([], [], color=PAPER, marker="D", ms=5.5, mfc="white", mew=1.4, lw=0, label="the paper's value"),
    ]
    with_paper = any(row.paper is not None for row in rows)
    figure.legend(handles=handles[: 3 if with_paper else 2], loc="outside upper left", ncols=3, fontsize=8.5)
    words = [
        "Dot and bar: mean over seeds and Student's t 95 % interval; strokes: single seeds; "
        "an arrow: the interval extends beyond the panel."
        if spread
        else "Dot: the mean over seeds; strokes: single seeds. One seed, or several that agree, have no interval.",
    ]
    if empty:
        words.append(f"{counted(len(empty), 'row')} without a run yet.")
    if with_paper:
        words.append("Diamond: the paper's value, its bar one standard deviation where the paper gives it.")
        if not is_comparable(results, task):
            words.append("It is there for orientation, not for comparison.")
    return Drawing(figure, title, " ".join(words + conditions_in_words(results, task)), (task,))


def limits_around(points: list[float], unit: str, room: float) -> Limits:
    """Every point with room around, a share of their range, but no per cent below 0 or above 100.

    Intervals may reach beyond.
    """
    width = max(room * (max(points) - min(points)), 0.04 * abs(max(points)), 1e-6)
    low, high = min(points) - width, max(points) + width
    if unit == "%":
        return Limits(max(0.0, low), min(100.0, high))
    return Limits(low, high)


def _panel(axes: Axes, rows: list[Row], frame: pd.DataFrame, names: dict[str, str], limits: Limits) -> None:
    """One condition: a line of dots for each variant, by its title."""
    variants = list(names)
    for row in rows:
        y = variants.index(row.cell.variant)
        seeds = frame.loc[frame["variant"] == row.cell.variant, "value"]
        axes.plot(seeds, [y + 0.22] * len(seeds), "|", color=MUTED, ms=6, mew=1.2, zorder=2)
        if row.paper is not None:
            axes.errorbar(
                row.paper, y - 0.2, xerr=row.paper_sd, fmt="D", color=PAPER, mfc="white", mew=1.4, ms=5, zorder=3
            )
        draw_interval(axes, row.summary, y, limits)
        text = with_interval(row.summary, row.unit)
        text += f"  n={row.summary.n}" + (f", {left_out(row)}" if left_out(row) else "")
        axes.text(1.015, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8, color=INK)
        if row.paper is not None and not row.summary.n:
            axes.text(row.paper, y - 0.2, f"  {paper_words(row)}", va="center", fontsize=7.5, color=PAPER)
    axes.set_xlim(*limits)
    axes.set_yticks(range(len(variants)), [wrapped(name) for name in names.values()])
    axes.set_ylim(len(variants) - 0.45, -0.55)
    tidy(axes, "x")
    axes.tick_params(axis="y", pad=8)  # an arrow head has room beside the panel
    axes.spines["left"].set_visible(False)


def draw_interval(axes: Axes, summary: Summary, y: float, limits: Limits) -> None:
    """Mean and interval; where the interval leaves the panel, an arrow head at its edge."""
    mean, low, high = summary.mean, summary.low, summary.high
    if mean is None:
        return
    if low is not None and high is not None:
        bar(axes, y, (low, high), limits, MEAN, 2)
    axes.plot(mean, y, "o", color=MEAN, ms=6, mec="white", mew=0.8, zorder=5)
