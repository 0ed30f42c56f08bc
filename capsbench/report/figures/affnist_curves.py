"""Figure: accuracy on transformed digits against held-out accuracy, along training."""

from __future__ import annotations

import pandas as pd

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import MUTED, WIDTH, canvas, key, looks, room_for_key, tidy
from capsbench.report.readers import read_series
from capsbench.report.results import Results

COLUMNS = {"step": float, "held_out_accuracy": float, "affnist_accuracy": float}
SHOWN = 6  # the axis begins where the held-out error is so many times the smallest one


def draw(results: Results) -> Drawing:
    """One line a seed; where the paper compares two models is a vertical line, the end of training a large marker."""
    curves: dict[str, list[pd.DataFrame]] = {}
    for run in results.done("affnist"):
        curve = read_series(results, run, "curve.csv", COLUMNS)
        if curve is not None and len(curve):
            curves.setdefault(run.key.variant, []).append(curve.sort_values("step") * [1, 100, 100])
    if not curves:
        raise NotDrawnError("no finished run of task affnist has a curve.csv")
    best = max(float(curve["held_out_accuracy"].max()) for found in curves.values() for curve in found)
    lowest = min(float(curve["held_out_accuracy"].min()) for found in curves.values() for curve in found)
    left = max(lowest, 100 - SHOWN * max(100 - best, 0.4))
    figure = canvas(WIDTH, 4.0 + room_for_key(results, list(curves)))
    axes = figure.subplots()
    cut = 0  # seeds whose end lies left of the axis
    for variant, found in curves.items():
        look = looks(results)[variant]
        for curve in found:
            shown = curve["held_out_accuracy"] >= left
            part, end = curve[shown], curve.tail(1)[shown.tail(1)]
            cut += end.empty
            axes.plot(
                part["held_out_accuracy"], part["affnist_accuracy"],
                color=look.colour, linestyle=look.line, marker=look.marker, lw=1.1, ms=3, alpha=0.75,
            )  # fmt: skip
            axes.plot(
                *end[["held_out_accuracy", "affnist_accuracy"]].to_numpy().T,
                color=look.colour, marker=look.marker, ms=8, mec="white", mew=0.8, lw=0, zorder=4,
            )  # fmt: skip
    level = _matched_at(results)
    if level is not None:
        axes.axvline(level, color=MUTED, lw=1, linestyle=(0, (2, 2)))
        axes.text(
            level,
            1.01,
            f"matched at {level:g} %",
            transform=axes.get_xaxis_transform(),
            fontsize=8,
            ha="center",
            color=MUTED,
        )
    axes.set_xlabel("accuracy on held-out training digits, %")
    axes.set_ylabel("accuracy on transformed digits, %")
    tidy(axes)
    key(figure, results, looks(results), list(curves))
    words = [
        "Each line is a seed, each small marker an evaluation during training, the large marker the end of training.",
        "Points further right are better trained; points further up generalise better to transformations never seen.",
    ]
    if left > lowest:
        ends = f", including {counted(cut, 'end')} of training" if cut else ""
        words.append(f"Evaluations under {left:.3g} % held-out accuracy are not shown{ends}.")
    caption = " ".join(words + conditions_in_words(results, "affnist"))
    return Drawing(figure, "Accuracy on transformed digits along training", caption, ("affnist",))


def _matched_at(results: Results) -> float | None:
    """The held-out accuracy (percent) of condition `matched`, if the runs agree on one."""
    levels = set(results.values("affnist", "matched", "held_out_accuracy"))
    return levels.pop() if len(levels) == 1 else None
