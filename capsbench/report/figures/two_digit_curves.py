"""Figure: the accuracy on two digits over the last epochs of training on single ones, which swings."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import WIDTH, canvas, key, looks_of, seeds_and_mean, tidy
from capsbench.report.readers import read_series
from capsbench.report.results import Results
from capsbench.report.tables import spec_for

TASK = "two_digit"
ENDS = (0.2, 99.8)  # %, of the axis


def draw(results: Results) -> Drawing:
    """One panel a metric, for the source's condition; each seed a thin line, the mean over seeds a thick one."""
    spec = spec_for(TASK, results)
    condition = spec.shown
    metrics = {  # those measured along the training
        f"{condition}.{metric.name}": metric.heading for metric in spec.main if not metric.name.startswith("final_")
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
    found_looks = looks_of(curves)  # few of a plan's many rows: their looks in the whole plan may be much alike
    figure = canvas(WIDTH, 3.2 + 0.2 * -(-len(curves) // 2))
    for axes, (metric, words) in zip(
        figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0], metrics.items(), strict=True
    ):
        for variant, found in curves.items():
            seeds_and_mean(axes, found_looks[variant], pd.concat(found), "epoch", metric)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlabel("epochs before the last")
        _stretch(axes)
        axes.set_ylabel(words)
        tidy(axes)
    names = {v: f"{results.plan.title(v)}, n={len(found)}" for v, found in curves.items()}
    key(figure, found_looks, list(curves), names=names)
    sentences = [
        f"Condition {condition} after each of the last epochs of training on single digits.",
        "Thin lines: seeds; thick lines: their means (of a single seed, that seed).",
        "The axis is of log odds, so that rows near 0 and 100 % part; "
        f"what lies beyond {ENDS[0]} or {ENDS[1]} is at the edge.",
        *conditions_in_words(results, TASK),
        *results.plan.notes.get(TASK, []),
    ]
    return Drawing(figure, "Two digits over the last epochs of training on single ones", " ".join(sentences), (TASK,))


def _stretch(axes: Axes) -> None:
    """Log odds of percentages, from one of ENDS to the other."""
    axes.set_yscale("function", functions=(_log_odds, lambda x: 100 / (1 + np.exp(-x))))
    axes.set_ylim(*ENDS)
    ticks = [0.5, 2, 5, 10, 20, 40, 60, 80, 90, 95, 98, 99.5]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def _log_odds(percent: np.ndarray) -> np.ndarray:
    inside = np.clip(percent, *ENDS)  # where it is drawn alone: means are of what was measured
    return np.log(inside / (100 - inside))
