"""Figure: the accuracy on two digits over the last epochs of training on single ones, which swings."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from capsbench.report.captions import conditions_in_words, left_out_sentences
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import WIDTH, canvas, groups, key_beside, looks_of, seeds_and_mean, tidy
from capsbench.report.figures.two_digit_accuracy import PLACES, TASK, titled
from capsbench.report.readers import read_series
from capsbench.report.results import Results
from capsbench.report.tables import spec_for

ENDS = (0.2, 99.8)  # %, of an axis at most
ROOM = 0.25  # beyond the points, in log odds
TICKS = (0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5)
FEWER = (0.5, 2, 5, 10, 20, 40, 60, 80, 90, 95, 98, 99.5)  # of an axis that is longer than WIDE
WIDE = 6.0  # log odds


def draw(results: Results) -> Drawing:
    """One column a metric, for the source's condition, a line of panels for each group of rows."""
    spec = spec_for(TASK, results)
    condition = spec.shown
    metrics = {  # those measured along the training; a point is of one epoch, so without the epochs of their means
        f"{condition}.{metric.name}": f"{metric.label.partition(',')[0]}, {metric.unit}"
        for metric in spec.main
        if not metric.name.startswith("final_")
    }
    curves: dict[str, list[pd.DataFrame]] = {}
    for run in results.done(TASK):
        curve = read_series(results, run, "curve.csv", {"epoch": float, **dict.fromkeys(metrics, float)})
        if curve is not None and len(curve):
            curve = curve.drop_duplicates("epoch", keep="last").assign(seed=run.key.seed)
            curve[[*metrics]] *= 100
            curves.setdefault(run.key.variant, []).append(curve.assign(epoch=curve["epoch"] - curve["epoch"].max()))
    if max((len(curve) for found in curves.values() for curve in found), default=0) < 2:
        raise NotDrawnError(f"no finished run of task {TASK} has a curve.csv with more than one point")
    kinds = groups(results, TASK, list(curves))
    figure = canvas(WIDTH, 0.3 + 2.6 * len(kinds))
    grid = figure.subplots(len(kinds), len(metrics), sharex=True, squeeze=False)
    for line, (kind, variants) in zip(grid, kinds.items(), strict=True):
        found_looks = looks_of(variants)  # few of a plan's many rows: their looks in the whole plan may be much alike
        for axes, (metric, words) in zip(line, metrics.items(), strict=True):
            for variant in variants:
                seeds_and_mean(axes, found_looks[variant], pd.concat(curves[variant]), "epoch", metric)
            _stretch(axes, pd.concat([found[metric] for variant in variants for found in curves[variant]]))
            axes.set_ylabel(words)
            axes.set_title(kind)
            tidy(axes)
        names = {variant: f"{titled(results, variant)}, n={len(curves[variant])}" for variant in variants}
        key_beside(line[-1], found_looks, names)
    for axes in grid[-1]:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda epoch, _: f"{abs(epoch):.0f}"))
        axes.set_xlabel("epochs before the last")
    sentences = [
        f"{PLACES.get(condition, condition).capitalize()}, after each of the last epochs of training on single digits.",
        "Thin lines: seeds; thick lines: their means (for a single seed, that seed).",
        "The axes are in log odds, which spreads out rows near 0 and 100 %, and each panel has its own range; "
        f"what lies beyond {ENDS[0]} or {ENDS[1]} % is drawn at the edge.",
        *conditions_in_words(results, TASK),
        *left_out_sentences(results, TASK),
        *results.plan.notes.get(TASK, []),
    ]
    return Drawing(figure, "Two digits, over the last epochs of training on single ones", " ".join(sentences), (TASK,))


def _stretch(axes: Axes, percent: pd.Series) -> None:
    """Log odds of percentages, as far as there are points, but no further than ENDS; without points, an empty panel."""
    percent = percent.dropna()
    if percent.empty:
        return
    axes.set_yscale("function", functions=(_log_odds, _percent))
    lowest, highest = _log_odds(np.array([percent.min(), percent.max()]))
    low, high = np.clip(_percent(np.array([lowest - ROOM, highest + ROOM])), *ENDS)
    axes.set_ylim(low, high)
    ticks = [tick for tick in (FEWER if highest - lowest > WIDE else TICKS) if low <= tick <= high]
    if len(ticks) < 3:  # all points are close together
        ticks = [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def _percent(log_odds: np.ndarray) -> np.ndarray:
    return 100 / (1 + np.exp(-log_odds))


def _log_odds(percent: np.ndarray) -> np.ndarray:
    inside = np.clip(percent, *ENDS)  # where it is drawn alone: means are of what was measured
    return np.log(inside / (100 - inside))
