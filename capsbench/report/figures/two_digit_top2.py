"""Figure: the two digits' first number, large: in how many pairs a row has both digits on top."""

from __future__ import annotations

import math

from matplotlib.lines import Line2D

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words, left_out_sentences
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.claimed_marks import handles_of, in_words, marks_of
from capsbench.report.figures.style import COLOURS, INK, MUTED, PALE, WIDTH, canvas, tidy, wrapped
from capsbench.report.figures.two_digit_accuracy import PLACES, TASK, titled
from capsbench.report.results import Results
from capsbench.report.tables import last_epochs, long_table, spec_for
from capsbench.report.wide import without_runs

MARKERS = "os"


def draw(results: Results) -> Drawing:
    """One line a variant, a dot a condition, with its interval and its seeds, the numbers at the right."""
    metric = spec_for(TASK, results).main[0]
    rows = long_table(results, TASK) if TASK in results.plan.tasks else []
    rows = [row for row in rows if row.cell.metric == metric.name and row.summary.mean is not None]
    if not rows:
        raise NotDrawnError(f"no finished run of task {TASK} has a top-2 accuracy")
    variants = list(dict.fromkeys(row.cell.variant for row in rows))
    conditions = list(dict.fromkeys(row.cell.condition for row in rows))
    step = 0.54 / len(conditions)
    figure = canvas(WIDTH, 1.0 + 0.45 * len(variants))
    axes = figure.subplots()
    marks = [m for m in marks_of(results, TASK) if m.metric == metric.name and m.condition in conditions]
    marks = [mark for mark in marks if mark.variant in variants]

    def place(variant: str, condition: str) -> float:
        return variants.index(variant) + (conditions.index(condition) + 0.5) * step - 0.27

    most = {v: max(row.summary.n for row in rows if row.cell.variant == v) for v in variants}
    lowest = 100.0
    for row in rows:
        mean, low, high = row.summary.mean, row.summary.low, row.summary.high
        assert mean is not None  # chosen so
        k, y = conditions.index(row.cell.condition), place(row.cell.variant, row.cell.condition)
        seeds = results.values(TASK, row.cell.condition, metric.name, row.cell.variant)
        axes.plot(seeds, [y] * len(seeds), "|", color=COLOURS[k], ms=7, mew=1, zorder=2)
        words = f"{mean:.1f}"
        if low is not None and high is not None:
            axes.plot([max(low, 0), min(high, 100)], [y, y], color=COLOURS[k], lw=2, solid_capstyle="butt", zorder=3)
            words += f" ({max(low, 0):.1f} to {min(high, 100):.1f})"
        words += f", n={row.summary.n}" if row.summary.n < most[row.cell.variant] else ""
        axes.plot(mean, y, MARKERS[k % 2], color=COLOURS[k], ms=6, mec="white", mew=0.8, zorder=5)
        axes.text(1.015, y, words, transform=axes.get_yaxis_transform(), va="center", fontsize=8, color=INK)
        lowest = min([lowest, *seeds, mean if low is None else low])
    for mark in marks:
        mark.plot(axes, place(mark.variant, mark.condition) - 0.2, size=5)
    lowest = min([lowest, *(mark.value for mark in marks)])
    for k in range(1, len(variants)):
        axes.axhline(k - 0.5, color=PALE, lw=0.7, zorder=0)
    axes.set_xlim(max(0, 10 * math.floor((lowest - 2) / 10)), 100.5)
    axes.set_xlabel(metric.heading)
    names = [f"{titled(results, v)}, n={most[v]}" for v in variants]
    axes.set_yticks(range(len(variants)), [wrapped(name) for name in names])
    axes.set_ylim(len(variants) - 0.5, -0.5)
    tidy(axes, "x")
    handles = [
        Line2D([], [], color=COLOURS[k], marker=MARKERS[k % 2], ms=6, lw=2, label=PLACES.get(c, c))
        for k, c in enumerate(conditions)
    ]
    handles.append(Line2D([], [], color=MUTED, marker="|", ms=8, lw=0, label="a seed"))
    figure.legend(handles=[*handles, *handles_of(marks)], loc="outside upper left", ncols=3, fontsize=8.5)
    empty = without_runs(results, TASK)
    words_of = [
        "A pair is right if its two digits have the two highest scores. Dots: means over seeds, each seed's being the "
        f"mean over the ends of the {last_epochs(results, TASK)}; bars: Student's t 95 % intervals, printed at the "
        "right.",
        *in_words(marks),
        *([f"{counted(len(empty), 'row')} without a run yet."] if empty else []),
        *conditions_in_words(results, TASK),
        *left_out_sentences(results, TASK),
        *results.plan.notes.get(TASK, []),
    ]
    return Drawing(figure, "Two digits: how often both have the highest scores", " ".join(words_of), (TASK,))
