"""Figure: accuracy against each factor of an affine transform alone."""

from __future__ import annotations

import numpy as np

from capsbench.report.captions import conditions_in_words, range_of
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import key, looks, panel_grid, room_for_key, seeds_and_mean, tidy
from capsbench.report.readers import read_all, scored
from capsbench.report.results import Results

COLUMNS = {"factor": str, "value": float, "accuracy": float, "images": float}
UNITS = {"rotation": "degrees", "translation": "pixels", "scale": "factor", "shear": "factor"}


def draw(results: Results) -> Drawing:
    """One panel a factor, one line a variant (the mean over its seeds), thin lines the seeds."""
    frame = read_all(results, scored(results, "affnist", "converged"), "converged/factors.csv", COLUMNS)
    if frame is None:
        raise NotDrawnError("no run of task affnist that was scored when converged has a factors.csv")
    frame["accuracy"] *= 100
    factors = list(dict.fromkeys(frame["factor"]))
    variants = list(dict.fromkeys(frame["variant"]))
    columns = min(len(factors), 3 if len(factors) in (3, 5, 6) else 2)
    figure, panels = panel_grid(len(factors), columns, 2.5, above=0.5 + room_for_key(results, variants), sharey=True)
    for axes, factor in zip(panels, factors, strict=True):
        for variant in variants:
            of = frame[(frame["factor"] == factor) & (frame["variant"] == variant)]
            seeds_and_mean(axes, looks(results)[variant], of, "value", "accuracy")
        unit = next((words for name, words in UNITS.items() if name in factor), "")
        axes.set_xlabel(f"{factor.replace('_', ' ')}, {unit}" if unit else factor)
        tidy(axes)
    figure.supylabel("accuracy, %", fontsize=9)
    key(figure, results, looks(results), variants)
    words = [
        "Accuracy of the converged models when one factor alone is changed: thick lines are means, thin ones seeds.",
        f"Each point: {range_of(int(images) for images in frame['images'] if np.isfinite(images))} test digits.",
        *conditions_in_words(results, "affnist"),
    ]
    return Drawing(figure, "What a transformation costs, factor by factor", " ".join(words), ("affnist",))
