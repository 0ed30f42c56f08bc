"""Figure: two overlapping digits taken apart (the paper's figure 5), wrong cases, decodes of digits not there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.mosaic import HEADLINE, grid, not_shown, of_each_variant, show
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
VARIANTS = 3
ROWS = ["input", "digit 1", "digit 2", "decoded 1", "decoded 2"]


def draw(results: Results) -> Drawing:
    """Of each variant with a decoder, the paper's model first, three blocks: pairs that were recognised, that were
    not, and what the decoder draws for an absent class.
    """
    runs = sorted(scored(results, "multimnist", "test"), key=lambda run: run.key.variant != HEADLINE)
    found, more = of_each_variant(results, runs, "test/segmentation.npz", SHAPES, VARIANTS)
    if not found:
        raise NotDrawnError(
            "no finished run of task multimnist has a segmentation.npz, which needs a variant with a decoder"
        )
    figure = canvas(WIDTH, 3.15 * len(found))
    panels = figure.subplots(len(found), 3, squeeze=False, width_ratios=COLUMNS)
    for line, (run, arrays) in zip(panels, found, strict=True):
        _blocks(line, arrays, f"{results.plan.title(run.key.variant)}, seed {run.key.seed}")
    caption = (
        "From top to bottom: the merged input, its two digits, and what the decoder draws for each digit "
        "of the model's answer; on the left pairs that were recognised, in the middle pairs that were not (what they "
        "are, and below it what the model said), on the right the decoder asked for a digit that is not there. "
        f"{not_shown(more)}{' '.join(conditions_in_words(results, 'multimnist'))}"
    )
    return Drawing(figure, "Two overlapping digits taken apart", caption, ("multimnist",))


def _blocks(line: Sequence[Axes], found: Arrays, whose: str) -> None:
    """A variant's three blocks, side by side, with its name above the first."""
    right = (np.sort(found["labels"], axis=1) == np.sort(found["predicted"], axis=1)).all(axis=1)  # [n]
    _pairs(line[0], found, np.flatnonzero(right)[: COLUMNS[0]], "right", COLUMNS[0], True)
    _pairs(line[1], found, np.flatnonzero(~right)[: COLUMNS[1]], "wrong: label, then answer", COLUMNS[1], False)
    line[0].set_title(f"{whose}\n{line[0].get_title(loc='left')}", loc="left", fontsize=8.5)
    chosen = np.arange(min(len(found["absent"]), COLUMNS[2]))
    words = [f"{_pair(found['labels'][i])}\n{found['absent_class'][i]}?" for i in chosen]
    lines = {(0, 0): found["merged"][chosen], (3, 0): found["absent"][chosen]}
    show(line[2], grid(len(ROWS), COLUMNS[2], lines), [], words)
    line[2].set_title("asked for an absent digit", loc="left", fontsize=8.5)


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
