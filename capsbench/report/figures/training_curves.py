"""Figure: the loss along training, one panel a task, or one of its CNNs and one of its capsules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from capsbench.errors import counted
from capsbench.report.captions import conditions_in_words, listing
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import Look, groups, key_beside, log_scale, looks_of, panel_grid, tidy
from capsbench.report.readers import read_series
from capsbench.report.results import Results, Run
from capsbench.report.tables import spec_for

POINTS = 100  # a line of more is a band of noise; the authors' budget writes thousands of rows


def draw(results: Results) -> Drawing:
    """Loss against step: each seed a thin line, the variant's mean over its seeds a thick one."""
    curves: dict[str, dict[str, list[pd.Series]]] = {}
    for task in results.plan.tasks:
        for run in results.done(task):
            history = read_series(results, run, "history.csv", {"step": float, "loss": float})
            if history is not None and len(history):
                loss = history.drop_duplicates("step", keep="last").set_index("step")["loss"]
                curves.setdefault(task, {}).setdefault(run.key.variant, []).append(_thin(loss))
    if not curves:
        raise NotDrawnError("no finished run has a history.csv")
    panels = [
        (task, kind, {variant: curves[task][variant] for variant in variants})
        for task, found in curves.items()
        for kind, variants in groups(results, task, list(found)).items()
    ]
    figure, grid = panel_grid(len(panels), 1, 2.4, above=0.1)
    for axes, (task, kind, of) in zip(grid, panels, strict=True):
        spec = spec_for(task, results)
        found_looks = looks_of(of)  # few of a plan's many rows: their looks in the whole plan may be much alike
        _panel(axes, found_looks, of)
        title = spec.trained or spec.title
        axes.set_title(f"{title}: {kind}" if kind else title)
        key_beside(axes, found_looks, {variant: results.plan.title(variant) for variant in of})
    grid[-1].set_xlabel("step")
    counts = listing(f"{counted(sum(map(len, found.values())), 'run')} of {task}" for task, found in curves.items())
    tasks = [f"Task {task}: {' '.join(conditions_in_words(results, task)[1:])}" for task in curves]  # none is tested
    drawn = [run for task in curves for run in results.done(task)]
    caption = (
        f"Training loss during training. Thin lines are seeds, the thick line is their mean; "
        f"a line has at most {POINTS} points, each the mean over an equal stretch of it. {_heights(drawn)} "
        f"{counts}. Data: {results.plan.dataset.badge}. {' '.join(tasks)}"
    )
    return Drawing(figure, "Training curves", caption)


def _panel(axes: Axes, found_looks: Mapping[str, Look], found: Mapping[str, list[pd.Series]]) -> None:
    """The losses of some rows of a task: each seed a thin line, their mean a thick one with marks."""
    for variant, seeds in found.items():
        look = found_looks[variant]
        for loss in seeds if len(seeds) > 1 else []:
            axes.plot(loss.index, loss, color=look.colour, lw=0.5, alpha=0.25)
        mean = pd.concat(seeds, axis=1).mean(axis=1) if len(seeds) > 1 else seeds[0]
        every = max(1, len(mean) // 8)
        axes.plot(
            mean.index,
            mean,
            color=look.colour,
            linestyle=look.line,
            lw=1.5,
            marker=look.marker,
            ms=4.5,
            markevery=every,
        )
    if all((loss.dropna() > 0).all() for seeds in found.values() for loss in seeds):
        log_scale(axes)
    axes.set_ylabel("training loss")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    tidy(axes)


def _heights(runs: list[Run]) -> str:
    """Whether heights can be compared."""
    losses = {str(run.spec.get("loss")) for run in runs}
    lambdas = {run.spec.get("down_weight") for run in runs if run.spec.get("loss") == "margin"}
    added = {str(run.spec.get("reconstruction") or "none") for run in runs}
    images = {run.spec.get("train_on") for run in runs}
    if len(losses) == len(added) == len(images) == 1 and len(lambdas) <= 1:
        return "All rows have the same loss."
    different = []
    if len(losses) > 1:
        different.append(f"The losses are different measures ({listing(sorted(losses))})")
    if len(added) > 1:
        different.append("Not all rows add the same reconstruction term to their loss")
    if len(lambdas) > 1:
        different.append(
            f"The margin loss weighs absent classes differently (lambda {listing(sorted(map(str, lambdas)))})"
        )
    if len(images) > 1:
        different.append("Some rows are trained on pairs")
    return f"{'. '.join(different)}: compare the shapes, not the heights, between rows whose losses differ."


def _thin(loss: pd.Series) -> pd.Series:
    """At most POINTS values, each the mean of as many neighbours."""
    if len(loss) <= POINTS:
        return loss
    group = np.arange(len(loss)) * POINTS // len(loss)
    steps = pd.Series(loss.index).groupby(group).last()
    return pd.Series(loss.groupby(group).mean().to_numpy(), index=steps.to_numpy())
