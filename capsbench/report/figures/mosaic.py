"""Pictures of digits in rows and columns, dark ink on white."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from capsbench.report.figures.style import INK, MUTED, PALE
from capsbench.report.readers import Arrays, read_arrays
from capsbench.report.results import Results, Run

GAP = 2  # pixels of the digits
HEADLINE = "capsnet-r3-recon"  # the paper's own model: where one variant stands for all, this one does


def headline_run(runs: Sequence[Run]) -> Run:
    """The run shown where there is room for one: the paper's model if it is there, else the last variant's."""
    ours = [run for run in runs if run.key.variant == HEADLINE]
    return (ours or [run for run in runs if run.key.variant == runs[-1].key.variant])[0]


def headline_arrays(
    results: Results, runs: Sequence[Run], name: str, shapes: dict[str, str]
) -> tuple[Run, Arrays] | None:
    """The run shown where there is room for one, of those whose file `name` can be had, and its arrays."""
    left = list(runs)
    while left:
        left.remove(run := headline_run(left))
        if (found := read_arrays(results, run, name, shapes)) is not None:
            return run, found
    return None


def of_each_variant(
    results: Results, runs: Sequence[Run], name: str, shapes: dict[str, str], most: int
) -> tuple[list[tuple[Run, Arrays]], list[str]]:
    """Of each variant the first run whose file `name` has pictures, and these; the titles of variants beyond `most`.

    The file has pictures where the first key of `shapes` is not empty there.
    """
    (pictures, *_) = shapes
    found: dict[str, tuple[Run, Arrays]] = {}
    more: dict[str, str] = {}
    for run in runs:
        variant = run.key.variant
        if variant in found or variant in more:
            continue
        if len(found) == most:
            if (run.folder / name).exists():
                more[variant] = results.plan.title(variant)
        elif (arrays := read_arrays(results, run, name, shapes)) is not None and len(arrays[pictures]):
            found[variant] = (run, arrays)
    return [*found.values()], [*more.values()]


def not_shown(titles: Sequence[str]) -> str:
    """A caption's sentence on the variants for which there is no room, or nothing."""
    return f"Not shown, for lack of space: {'; '.join(titles)}. " if titles else ""


def tile(pictures: np.ndarray) -> np.ndarray:
    """Pictures [R, C, H, W] in 0..255 as one image [R*(H+GAP)-GAP, C*(W+GAP)-GAP] float, NaN in the gaps."""
    rows, columns, height, width = pictures.shape
    image = np.full((rows * (height + GAP), columns * (width + GAP)), np.nan)  # [R*(H+G), C*(W+G)]
    for r in range(rows):
        for c in range(columns):
            top, left = r * (height + GAP), c * (width + GAP)
            image[top : top + height, left : left + width] = pictures[r, c]
    return image[:-GAP, :-GAP]


def grid(rows: int, columns: int, parts: Mapping[tuple[int, int], np.ndarray]) -> np.ndarray:
    """Pictures [rows, columns, H, W] float: at each place of `parts` begins a line [n, H, W]; the rest is free."""
    height, width = next(iter(parts.values())).shape[1:]
    pictures = np.full((rows, columns, height, width), np.nan)
    for (row, column), line in parts.items():
        pictures[row, column : column + len(line)] = line
    return pictures


def show(
    axes: Axes,
    pictures: np.ndarray,
    row_labels: Sequence[str] = (),
    column_labels: Sequence[str] = (),
    size: float = 7.5,
) -> None:
    """Draw pictures [R, C, H, W], labels beside rows and above columns. A picture of NaN is a free place."""
    rows, columns, height, width = pictures.shape
    cmap = mpl.colormaps["gray_r"].with_extremes(bad=(1, 1, 1, 0))
    axes.imshow(tile(pictures), cmap=cmap, vmin=0, vmax=255, interpolation="nearest")
    frames = []
    for r in range(rows):
        for c in range(columns):
            if np.isnan(pictures[r, c]).all():
                continue
            left, top = c * (width + GAP) - 0.5, r * (height + GAP) - 0.5
            frame = [(left, top), (left + width, top), (left + width, top + height), (left, top + height), (left, top)]
            frames.append(frame)
    axes.add_collection(LineCollection(frames, colors=PALE, linewidths=0.4))
    axes.grid(False)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xticks([c * (width + GAP) + width / 2 for c in range(len(column_labels))], column_labels)
    axes.set_yticks([r * (height + GAP) + height / 2 for r in range(len(row_labels))], row_labels)
    axes.tick_params(length=0, labelsize=size, labeltop=True, labelbottom=False, top=False, bottom=False, pad=1.5)
    axes.tick_params(axis="x", labelcolor=INK)
    axes.tick_params(axis="y", labelcolor=MUTED)
    axes.set_xlim(-1, columns * (width + GAP) - GAP)
    axes.set_ylim(rows * (height + GAP) - GAP, -1)
