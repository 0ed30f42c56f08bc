"""Digits that were recognised and digits that were not, each above its reconstruction."""

from __future__ import annotations

import numpy as np

from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.mosaic import grid, not_shown, of_each_variant, show
from capsbench.report.figures.style import WIDTH, canvas
from capsbench.report.readers import scored
from capsbench.report.results import Results

COLUMNS = 9  # of right and of wrong digits
VARIANTS = 4


def reconstruction_figure(results: Results, task: str, condition: str, title: str) -> Drawing:
    """Pictures of each variant with a decoder, from its first seed; right digits left, wrong ones right."""
    shapes = {"images": "n h w", "reconstructions": "n h w", "labels": "n", "predicted": "n"}
    runs = scored(results, task, condition)
    found, more = of_each_variant(results, runs, f"{condition}/reconstructions.npz", shapes, VARIANTS)
    if not found:
        raise NotDrawnError(
            f"no finished run of task {task} has a reconstructions.npz, which needs a variant with a decoder"
        )
    figure = canvas(WIDTH, 1.32 * len(found))
    panels = figure.subplots(len(found), 2, squeeze=False)
    for line, (run, arrays) in zip(panels, found, strict=True):
        right = arrays["labels"] == arrays["predicted"]
        whose = f"{results.plan.title(run.key.variant)}, seed {run.key.seed}:"
        for axes, chosen in zip(line, (right, ~right), strict=True):
            indices = np.flatnonzero(chosen)[:COLUMNS]
            if not len(indices):
                axes.set_axis_off()
                said = f"{whose} none right" if chosen is right else "none wrong"
                axes.set_title(f"{said} among those stored", loc="left", fontsize=8.5)
                continue
            labels, predicted = arrays["labels"][indices], arrays["predicted"][indices]
            words = [f"{a}" if a == b else f"{a}→{b}" for a, b in zip(labels, predicted, strict=True)]
            lines = {(0, 0): arrays["images"][indices], (1, 0): arrays["reconstructions"][indices]}
            show(axes, grid(2, COLUMNS, lines), ["input", "decoded"] if chosen is right else [], words)
            axes.set_title(f"{whose} right" if chosen is right else "wrong: label→answer", loc="left", fontsize=8.5)
    caption = (
        "Test digits (above) and what the decoder makes of the predicted class's vector, or capsule where the model "
        "has them (below): up to "
        f"{COLUMNS} that were recognised and up to {COLUMNS} that were not, in the order of the test set. "
        f"{not_shown(more)}{' '.join(conditions_in_words(results, task))}"
    )
    return Drawing(figure, title, caption, (task,))
