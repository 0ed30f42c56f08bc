"""Figure: accuracy on transformed digits against held-out accuracy, along training."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import MUTED, Look, groups, key_beside, looks_of, panel_grid, tidy
from capsbench.report.readers import read_series
from capsbench.report.results import Results

COLUMNS = {"step": float, "held_out_accuracy": float, "affnist_accuracy": float}
SHOWN = 6  # the axis begins where the held-out error is so many times the smallest one


def draw(results: Results) -> Drawing:
    """One line a seed; where the paper compares two models is a vertical line, the end of training a large marker.

    A panel has no more rows than there are colours, and all panels have the same axes.
    """
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
    kinds = groups(results, "affnist", list(curves))
    figure, panels = panel_grid(len(kinds), 1, 3.4, above=0.1, sharex=True, sharey=True)
    level = _matched_at(results)
    cut = 0  # seeds whose end lies left of the axis
    for axes, (kind, variants) in zip(panels, kinds.items(), strict=True):
        looks = looks_of(variants)
        for variant in variants:
            for curve in curves[variant]:
                cut += _line(axes, looks[variant], curve, curve["held_out_accuracy"] >= left)
        if level is not None:
            axes.axvline(level, color=MUTED, lw=1, linestyle=(0, (2, 2)))
            axes.text(
                level, 1.01, f"matched at {level:g} %",
                transform=axes.get_xaxis_transform(), fontsize=8, ha="center", color=MUTED,
            )  # fmt: skip
        axes.set_title(kind, loc="left")
        axes.set_ylabel("accuracy on transformed digits, %")
        tidy(axes)
        key_beside(axes, looks, {variant: results.plan.title(variant) for variant in variants})
    panels[-1].set_xlabel("accuracy on held-out training digits, %")
    words = [
        "Each line is a seed, each small marker an evaluation during training, the large marker the end of training.",
        "Points further right are better trained; points further up generalise better to transformations never seen.",
    ]
    if left > lowest:
        ends = f", including {counted(cut, 'end')} of training" if cut else ""
        words.append(f"Evaluations under {left:.3g} % held-out accuracy are not shown{ends}.")
    caption = " ".join(words + conditions_in_words(results, "affnist"))
    return Drawing(figure, "Accuracy on transformed digits along training", caption, ("affnist",))


def _line(axes: Axes, look: Look, curve: pd.DataFrame, shown: pd.Series) -> bool:
    """One seed: its evaluations that are `shown`, and a large marker at the end; whether that end is not shown."""
    part, end = curve[shown], curve.tail(1)[shown.tail(1)]
    axes.plot(
        part["held_out_accuracy"], part["affnist_accuracy"],
        color=look.colour, linestyle=look.line, marker=look.marker, lw=1.1, ms=3, alpha=0.75,
    )  # fmt: skip
    axes.plot(
        *end[["held_out_accuracy", "affnist_accuracy"]].to_numpy().T,
        color=look.colour, marker=look.marker, ms=8, mec="white", mew=0.8, lw=0, zorder=4,
    )  # fmt: skip
    return bool(end.empty)


def _matched_at(results: Results) -> float | None:
    """The held-out accuracy (percent) of condition `matched`, if the runs agree on one."""
    levels = set(results.values("affnist", "matched", "held_out_accuracy"))
    return levels.pop() if len(levels) == 1 else None
