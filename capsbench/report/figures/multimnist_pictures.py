"""Figure: two overlapping digits taken apart (the paper's figure 5), wrong cases, decodes of digits not there."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.mosaic import grid, headline_arrays, show
from capsbench.report.figures.style import WIDTH, canvas
from capsbench.report.readers import Arrays, scored
from capsbench.report.results import Results

SHAPES = {
    "merged": "n h w",
    "digits": "n 2 h w",
    "reconstructions": "n 2 h w",
    "labels": "n 2",
    "predicted": "n 2",
    "absent": "n h w",
    "absent_class": "n",
}
COLUMNS = (6, 5, 5)  # right, wrong, absent
ROWS = ["input", "digit 1", "digit 2", "decoded 1", "decoded 2"]


def draw(results: Results) -> Drawing:
    """Three blocks: pairs that were recognised, pairs that were not, and what the decoder draws for an absent class."""
    shown = headline_arrays(results, scored(results, "multimnist", "test"), "test/segmentation.npz", SHAPES)
    if shown is None or not len(shown[1]["merged"]):
        raise NotDrawnError(
            "no finished run of task multimnist has a segmentation.npz, which needs a variant with a decoder"
        )
    run, found = shown
    right = (np.sort(found["labels"], axis=1) == np.sort(found["predicted"], axis=1)).all(axis=1)  # [n]
    figure = canvas(WIDTH, 3.15)
    panels = figure.subplots(1, 3, width_ratios=COLUMNS)
    _pairs(panels[0], found, np.flatnonzero(right)[: COLUMNS[0]], "right", COLUMNS[0], True)
    _pairs(panels[1], found, np.flatnonzero(~right)[: COLUMNS[1]], "wrong: label, then answer", COLUMNS[1], False)
    chosen = np.arange(min(len(found["absent"]), COLUMNS[2]))
    words = [f"{_pair(found['labels'][i])}\n{found['absent_class'][i]}?" for i in chosen]
    lines = {(0, 0): found["merged"][chosen], (3, 0): found["absent"][chosen]}
    show(panels[2], grid(len(ROWS), COLUMNS[2], lines), [], words)
    panels[2].set_title("asked for an absent digit", loc="left", fontsize=8.5)
    caption = (
        "From top to bottom: the merged input, its two digits, and what the decoder draws for each digit "
        "of the model's answer; on the left pairs that were recognised, in the middle pairs that were not (what they "
        "are, and below it what the model said), on the right the decoder asked for a digit that is not there. "
        f"{results.plan.title(run.key.variant)}, seed {run.key.seed}. "
        f"{' '.join(conditions_in_words(results, 'multimnist'))}"
    )
    return Drawing(figure, "Two overlapping digits taken apart", caption, ("multimnist",))


def _pairs(axes: Axes, found: Arrays, chosen: np.ndarray, title: str, columns: int, is_right: bool) -> None:
    """One block of merged inputs, digits and reconstructions."""
    axes.set_title(title if len(chosen) else f"{title.split(':')[0]}: none stored", loc="left", fontsize=8.5)
    if not len(chosen):
        axes.set_axis_off()
        return
    lines = {(0, 0): found["merged"][chosen]}
    for k in (0, 1):
        lines |= {(1 + k, 0): found["digits"][chosen, k], (3 + k, 0): found["reconstructions"][chosen, k]}
    words = [_pair(found["labels"][i]) + "\n" + ("" if is_right else _pair(found["predicted"][i])) for i in chosen]
    show(axes, grid(len(ROWS), columns, lines), ROWS if is_right else [], words)


def _pair(classes: np.ndarray) -> str:
    return f"{classes[0]}+{classes[1]}"
