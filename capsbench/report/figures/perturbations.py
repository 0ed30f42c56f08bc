"""Figure: what each dimension of a capsule draws (the paper's figure 4)."""

from __future__ import annotations

import numpy as np

from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.mosaic import headline_arrays, show
from capsbench.report.figures.style import WIDTH, canvas
from capsbench.report.readers import scored
from capsbench.report.results import Results

SHAPES = {"grid": "n d s h w", "labels": "n", "offsets": "s"}
DIGITS = 3


def draw(results: Results) -> Drawing:
    """Rows are the dimensions of the winning capsule, columns the offsets added to one of them before decoding."""
    runs = [run for run in scored(results, "mnist", "test") if run.has_capsules]
    shown = headline_arrays(results, runs, "test/perturbations.npz", SHAPES)
    if shown is None or not len(shown[1]["grid"]):
        raise NotDrawnError("no finished run of task mnist has a perturbations.npz, which needs capsules and a decoder")
    run, found = shown
    count = len(found["grid"])
    chosen = np.linspace(0, count - 1, DIGITS + 2).round().astype(int)[1:-1] if count > DIGITS else np.arange(count)
    grid, labels, offsets = found["grid"][chosen], found["labels"][chosen], found["offsets"]  # [n, 16, 11, H, W]
    n, dimensions, steps = grid.shape[:3]
    figure = canvas(WIDTH, 0.8 + dimensions * (WIDTH - 0.75) / (DIGITS * (steps + 0.3)))
    for i, axes in enumerate(figure.subplots(1, DIGITS, squeeze=False)[0]):
        if i >= n:
            axes.set_axis_off()
            continue
        columns = [f"{offset:.2g}" if k in (0, steps // 2, steps - 1) else "" for k, offset in enumerate(offsets)]
        show(axes, grid[i], [str(d + 1) for d in range(dimensions)] if i == 0 else [], columns, size=7)
        axes.set_title(f"a {labels[i]}", fontsize=9, pad=12)
    figure.supylabel("dimension of the capsule", fontsize=8.5)
    caption = (
        f"Each of the {dimensions} dimensions of the winning capsule (rows) changed by {offsets[0]:.2g} to "
        f"{offsets[-1]:.2g} in {steps} columns and decoded, as in the paper's figure 4; the middle is unchanged. "
        f"{results.plan.title(run.key.variant)}, seed {run.key.seed}. {' '.join(conditions_in_words(results, 'mnist'))}"
    )
    return Drawing(figure, "What the dimensions of a capsule draw", caption, ("mnist",))
