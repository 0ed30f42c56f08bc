"""Figure: two digits recognised by models that saw single digits, as bars: every metric of the table."""

from __future__ import annotations

from matplotlib.artist import Artist
from matplotlib.patches import Patch

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words, left_out_sentences
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.claimed_marks import handles_of, in_words, marks_of
from capsbench.report.figures.style import COLOURS, HATCHES, INK, MUTED, WIDTH, canvas, tidy, wrapped
from capsbench.report.results import Results
from capsbench.report.tables import last_epochs, long_table, spec_for
from capsbench.report.wide import left_out, without_runs

TASK = "two_digit"
PLACES = {"56x28": "one digit above the other (56x28)", "28x56": "side by side (28x56)"}


def titled(results: Results, variant: str) -> str:
    """A row's title, and whether its pairs were squeezed to one digit's size."""
    squeezed = any(run.sees_squeezed_pairs for run in results.done(TASK, variant))
    return results.plan.title(variant) + (" (squeezed pairs)" if squeezed else "")


def draw(results: Results) -> Drawing:
    """One panel a metric, one bar a variant and condition, with its interval and its seeds."""
    rows = long_table(results, TASK) if TASK in results.plan.tasks else []
    metrics = [m for m in spec_for(TASK, results).main if any(r.cell.metric == m.name and r.summary.n for r in rows)]
    if not metrics:
        raise NotDrawnError(f"no finished run of task {TASK} has an accuracy")
    empty = without_runs(results, TASK)
    variants = [variant for variant in results.plan.tasks[TASK] if variant not in empty]
    conditions = list(dict.fromkeys(row.cell.condition for row in rows if row.summary.n))
    height = 0.8 / len(conditions)
    figure = canvas(WIDTH, 1.1 + (0.16 + 0.2 * len(conditions)) * len(variants))
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    marks = [m for m in marks_of(results, TASK) if m.variant in variants and m.condition in conditions]

    def place(variant: str, condition: str) -> float:
        return variants.index(variant) + (conditions.index(condition) + 0.5) * height - 0.4

    for axes, metric in zip(panels, metrics, strict=True):
        for row in rows:
            if row.cell.metric != metric.name or row.cell.condition not in conditions or row.cell.variant in empty:
                continue
            k = conditions.index(row.cell.condition)
            y = place(row.cell.variant, row.cell.condition)
            if row.summary.mean is None:
                why = f"no run: {left_out(row) or 'missing'}"
                axes.text(1, y, why, va="center", fontsize=7.5, color=MUTED)
                continue
            axes.barh(y, row.summary.mean, 0.92 * height, color=COLOURS[k], hatch=HATCHES[k], edgecolor="white", lw=0)
            if row.summary.low is not None and row.summary.high is not None:
                axes.plot([max(row.summary.low, 0), min(row.summary.high, 100)], [y, y], color=INK, lw=1.4)
            seeds = results.values(TASK, row.cell.condition, metric.name, row.cell.variant)
            axes.plot(seeds, [y] * len(seeds), "|", color=INK, ms=5, mew=1)
        for mark in (mark for mark in marks if mark.metric == metric.name):
            # at the bar's edge: on its line a mark would hide the seeds and the interval beside the number
            mark.plot(axes, place(mark.variant, mark.condition) - 0.36 * height, size=4)
        axes.set_xlim(0, 100)
        axes.set_xticks([0, 50, 100])
        axes.set_xlabel(metric.heading.replace(", ", ",\n", 1))
        tidy(axes, "x")
    most = {v: max((row.summary.n for row in rows if row.cell.variant == v), default=0) for v in variants}
    names = [f"{titled(results, v)}, n={most[v]}" for v in variants]
    panels[0].set_yticks(range(len(variants)), [wrapped(name) for name in names])
    panels[0].set_ylim(len(variants) - 0.45, -0.55)
    drawn = [mark for mark in marks if mark.metric in {metric.name for metric in metrics}]
    handles: list[Artist] = [
        Patch(facecolor=COLOURS[k], hatch=HATCHES[k], edgecolor="white", label=PLACES.get(c, c))
        for k, c in enumerate(conditions)
    ]
    figure.legend(handles=[*handles, *handles_of(drawn)], loc="outside upper left", ncols=3, fontsize=8.5)
    words = [
        "Bars: means over seeds; lines: Student's t 95 % intervals, cut off at 0 and 100 %; strokes: seeds.",
        *in_words(drawn),
        *([f"{counted(len(empty), 'row')} without a run yet."] if empty else []),
        f"Top-2: the two digits have the two highest scores. Both > 0.5: they do, and both are above 0.5. These two "
        f"alone: both are above 0.5, and no other score is. Only compare panels of the same weights: a mean over the "
        f"ends of the {last_epochs(results, TASK)} may be below a figure of the final weights.",
        *conditions_in_words(results, TASK),
        *left_out_sentences(results, TASK),
        *results.plan.notes.get(TASK, []),
    ]
    return Drawing(figure, "Trained on single digits, tested on two", " ".join(words), (TASK,))
