"""Figure: accuracy against each factor of an affine transform alone."""

from __future__ import annotations

import numpy as np
import pandas as pd

from capsbench.report.captions import conditions_in_words, span
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import WIDTH, canvas, key, looks, seeds_and_mean, tidy
from capsbench.report.readers import read_series, scored
from capsbench.report.results import Results

UNITS = {"rotation": "degrees", "translation": "pixels", "scale": "factor", "shear": "factor"}


def draw(results: Results) -> Drawing:
    """One panel a factor, one line a variant (the mean over its seeds), thin lines the seeds."""
    parts = []
    for run in scored(results, "affnist", "converged"):
        columns = {"factor": str, "value": float, "accuracy": float, "images": float}
        part = read_series(results, run, "converged/factors.csv", columns)
        if part is not None and len(part):
            part = part.assign(accuracy=100 * part["accuracy"], variant=run.key.variant, seed=run.key.seed)
            parts.append(part)
    if not parts:
        raise NotDrawnError("no run of task affnist that was scored when converged has a factors.csv")
    frame = pd.concat(parts, ignore_index=True)
    factors = list(dict.fromkeys(frame["factor"]))
    variants = list(dict.fromkeys(frame["variant"]))
    columns_shown = min(len(factors), 3 if len(factors) in (3, 5, 6) else 2)
    lines = -(-len(factors) // columns_shown)
    figure = canvas(WIDTH, 2.5 * lines + 0.5)
    panels = figure.subplots(lines, columns_shown, sharey=True, squeeze=False).flat
    for axes, factor in zip(panels, factors, strict=False):
        for variant in variants:
            of = frame[(frame["factor"] == factor) & (frame["variant"] == variant)]
            seeds_and_mean(axes, looks(results)[variant], of, "value", "accuracy")
        unit = next((words for name, words in UNITS.items() if name in factor), "")
        axes.set_xlabel(f"{factor.replace('_', ' ')}, {unit}" if unit else factor)
        tidy(axes)
    for axes in list(figure.axes)[len(factors) :]:
        axes.set_visible(False)
    figure.supylabel("accuracy, %", fontsize=9)
    key(figure, looks(results), variants)
    words = [
        "Accuracy of the converged models when one factor alone is changed: thick lines are means, thin ones seeds.",
        f"Each point: {span(int(images) for images in frame['images'] if np.isfinite(images))} test digits.",
        *conditions_in_words(results, "affnist"),
    ]
    return Drawing(figure, "What a transformation costs, factor by factor", " ".join(words), ("affnist",))
