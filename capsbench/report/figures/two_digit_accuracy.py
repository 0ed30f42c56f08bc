"""Figure: two digits recognised by models that saw single digits, as bars."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words, range_of
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import COLOURS, HATCHES, INK, MUTED, WIDTH, canvas, label, tidy
from capsbench.report.results import Results
from capsbench.report.tables import Metric, long_table, spec_for
from capsbench.report.wide import left_out, without_runs

TASK = "two_digit"
PAPER = COLOURS[5]
PLACES = {"56x28": "one digit above the other (56x28)", "28x56": "side by side (28x56)"}


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
    for axes, metric in zip(panels, metrics, strict=True):
        for row in rows:
            if row.cell.metric != metric.name or row.cell.condition not in conditions or row.cell.variant in empty:
                continue
            k = conditions.index(row.cell.condition)
            y = variants.index(row.cell.variant) + (k + 0.5) * height - 0.4
            if row.summary.mean is None:
                why = f"no run: {left_out(row) or 'missing'}"
                axes.text(1, y, why, va="center", fontsize=7.5, color=MUTED)
                continue
            axes.barh(y, row.summary.mean, 0.92 * height, color=COLOURS[k], hatch=HATCHES[k], edgecolor="white", lw=0)
            if row.summary.low is not None and row.summary.high is not None:
                axes.plot([max(row.summary.low, 0), min(row.summary.high, 100)], [y, y], color=INK, lw=1.4)
            seeds = results.values(TASK, row.cell.condition, metric.name, row.cell.variant)
            axes.plot(seeds, [y] * len(seeds), "|", color=INK, ms=5, mew=1)
        axes.set_xlim(0, 100)
        axes.set_xticks([0, 50, 100])
        axes.set_xlabel(metric.heading.replace(" and ", "\nand ").replace(" alone ", "\nalone "))
        tidy(axes, "x")
    most = {v: max((row.summary.n for row in rows if row.cell.variant == v), default=0) for v in variants}
    names = [f"{results.plan.title(v)}, n={most[v]}" for v in variants]
    panels[0].set_yticks(range(len(variants)), ["\n".join(textwrap.wrap(label(name), 30)) for name in names])
    panels[0].set_ylim(len(variants) - 0.45, -0.55)
    handles: list[Artist] = [
        Patch(facecolor=COLOURS[k], hatch=HATCHES[k], edgecolor="white", label=PLACES.get(c, c))
        for k, c in enumerate(conditions)
    ]
    marks = _claimed(results, panels, metrics, variants, conditions, height)
    handles += [
        Line2D([], [], color=PAPER, marker=mark, mfc="white", ls="", ms=5, label=words) for mark, words in marks.items()
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=8.5)
    words = [
        "Bars: means over seeds; lines: Student's t 95 % intervals, cut at 0 and 100 %; strokes: seeds.",
        *(
            ["Diamonds and triangles: what is claimed of a row, and more than what; table `claims` says by whom."]
            if marks
            else []
        ),
        *([f"{counted(len(empty), 'row')} without a run yet."] if empty else []),
        _weights_in_words(results),
        *conditions_in_words(results, TASK),
        *results.plan.notes.get(TASK, []),
    ]
    return Drawing(figure, "Trained on single digits, tested on two", " ".join(words), ("two_digit",))


def _claimed(
    results: Results,
    panels: np.ndarray,
    metrics: list[Metric],
    variants: list[str],
    conditions: list[str],
    height: float,
) -> dict[str, str]:
    """Mark what is claimed of a single row, where a bar of it stands; returns the marks used and what they mean."""
    used = {}
    for judgement in results.judged.judgements if results.judged else []:
        claim = judgement.claim
        if judgement.verdict == "not run" or claim.expected is None:
            continue
        sides = claim.sides()  # of one cell, since it expects a number
        places = [k for k, metric in enumerate(metrics) if metric.name == claim.metric]
        if sides[0].task == TASK and sides[0].variant in variants and claim.condition in conditions:
            y = variants.index(sides[0].variant) + (conditions.index(claim.condition) + 0.5) * height - 0.4
            mark, words = ("D", "claimed") if claim.kind == "value" else (">", "claimed: more than")
            for k in places:
                # at the bar's edge: on its line a mark would hide the seeds and the interval beside the number
                panels[k].plot(claim.expected, y - 0.36 * height, mark, color=PAPER, mfc="white", mew=1, ms=4, zorder=4)
                used[mark] = words
    return dict(sorted(used.items(), reverse=True))


def _weights_in_words(results: Results) -> str:
    """Of which weights each panel is, with the number of epochs that the runs' manifests give."""
    last = range_of(run.averaged_epochs for run in results.done(TASK))
    ends = f"the ends of the last {last} epochs" if last else "the ends of the last epochs"
    return (
        f"Top-2 accuracy, and both right and above 0.5: means over {ends}; the others: of the final weights. "
        "These two alone: no other class above 0.5."
    )
