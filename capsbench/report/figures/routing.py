"""Figure: what the number of passes at test time does to trained models, and how fast the logits settle."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from capsbench.report.diagnostics import TASK, variants_of
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import WIDTH, canvas, key, log_scale, looks, number_axis, seeds_and_mean, tidy
from capsbench.report.readers import read_all
from capsbench.report.results import Results
from capsbench.report.routing_table import CONDITION, caption_words

COLUMNS = ("iterations", "trained", "error", "flips", "entropy", "energy")
PANELS = (
    ("error", "error, %"),
    ("flips", "answers that flip, %"),
    ("entropy", "coupling entropy / ln J"),
    ("energy", "energy F / F of the first pass"),
)


def draw(results: Results) -> Drawing:
    """Error, flips, entropy and energy against the passes at test time; the change of the logits pass by pass."""
    runs = [run for run in results.done(TASK) if CONDITION in run.apart]
    passes = read_all(results, runs, f"{CONDITION}/iterations.csv", dict.fromkeys(COLUMNS, float))
    logits = read_all(results, runs, f"{CONDITION}/logits.csv", {"iteration": float, "change": float})
    if passes is None:
        raise NotDrawnError(f"no run of task {TASK} has a {CONDITION}/iterations.csv")
    first = passes.groupby(["variant", "seed"])["energy"].transform("first")
    passes["energy"] = passes["energy"] / first.where(first > 0)
    variants = [v for v in variants_of(results, CONDITION) if v in set(passes["variant"])]
    points = passes.groupby("variant")["iterations"].nunique()
    figure = canvas(WIDTH, 7.8)
    grid = figure.subplots(3, 2)
    for axes, (column, label) in zip(grid.flat, PANELS, strict=False):
        for variant in variants:
            _lines(axes, results, passes[passes["variant"] == variant], column)
        number_axis(axes, sorted(passes["iterations"].unique()))
        tidy(axes)
        axes.set_ylabel(label)
        axes.set_xlabel("passes at test time")
        if column in ("error", "flips"):
            axes.set_ylim(bottom=0)
    _settling(grid.flat[4], results, logits, variants)
    _coupled(grid.flat[5], results, passes, variants)
    key(figure, results, looks(results), variants)
    words = [
        "Trained weights, more or fewer passes of routing at test time; thick lines are means over seeds, thin ones",
        "seeds; a ring marks the number of passes used in training.",
        *(["A routing that knows one pass alone is a single point."] if (points == 1).any() else []),
        "F is an energy that dynamic routing with the paper's squash never lowers; other routings may.",
        "Change of the logits: mean over i, j and images of |b_ij - b_ij of the previous pass|; in the appendix of",
        "Sabour et al. 2017 it falls log-linearly, to about 1e-5 at the fifth pass.",
    ]
    caption = " ".join([*words, *caption_words(results, variants)])
    return Drawing(figure, "Routing under the microscope", caption, ("mnist",))


def _lines(axes: Axes, results: Results, frame: pd.DataFrame, y: str) -> None:
    """One variant: its seeds thin, their mean thick, the trained number of passes ringed."""
    look = looks(results)[str(frame["variant"].iloc[0])]
    seeds_and_mean(axes, look, frame, "iterations", y)
    trained = frame[(frame["trained"] == 1) & frame[y].notna()].groupby("iterations")[y].mean()
    axes.plot(trained.index, trained, "o", color=look.colour, mfc="none", ms=9, mew=1.1)


def _settling(axes: Axes, results: Results, logits: pd.DataFrame | None, variants: list[str]) -> None:
    axes.set_xlabel("pass")
    axes.set_ylabel("mean |change of logits|")
    if logits is None:
        axes.text(0.5, 0.5, "no routing here reports its logits", ha="center", transform=axes.transAxes)
        tidy(axes)
        return
    logits = logits.assign(change=logits["change"].where(logits["change"] > 0))  # settled to the last bit: no logarithm
    for variant in variants:
        of = logits[logits["variant"] == variant]
        seeds_and_mean(axes, looks(results)[variant], of, "iteration", "change", marked=False)
    log_scale(axes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    tidy(axes)


def _coupled(axes: Axes, results: Results, passes: pd.DataFrame, variants: list[str]) -> None:
    """Entropy against error: where couplings decide themselves, does the answer get better?"""
    for variant in variants:
        look, of = looks(results)[variant], passes[passes["variant"] == variant]
        mean = of.groupby("iterations")[["entropy", "error", "trained"]].mean()
        axes.plot(
            mean["entropy"], mean["error"], color=look.colour, linestyle=look.line, marker=look.marker, ms=4, lw=1
        )
        trained = mean[mean["trained"] == 1]
        axes.plot(trained["entropy"], trained["error"], "o", color=look.colour, mfc="none", ms=9, mew=1.1)
    low = float(np.nanmin(passes["entropy"])) if passes["entropy"].notna().any() else 0.0
    axes.set_xlim(1 + 0.04 * max(1 - low, 1e-3), low - 0.04 * max(1 - low, 1e-3))  # from uniform on the left to hard
    axes.set_xlabel("coupling entropy / ln J, from uniform to hard")
    axes.set_ylabel("error, %")
    axes.set_ylim(bottom=0)
    tidy(axes)
