"""Figure: how often an answer is right against its score, a reliability diagram (Guo et al. 2017, figure 1)."""

from __future__ import annotations

import pandas as pd

from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import MUTED, groups, key_beside, looks_of, panel_grid, tidy
from capsbench.report.readers import read_all, scored
from capsbench.report.results import Results

COLUMNS = {"confidence_low": float, "images": float, "confidence": float, "accuracy": float}
LEAST = 20  # images of a point, over all seeds: the share right of fewer is mostly chance


def draw(results: Results) -> Drawing:
    """One line a variant, its seeds' images taken together; what lies under the diagonal is overconfident."""
    frame = read_all(results, scored(results, "mnist", "test"), "test/reliability.csv", COLUMNS)
    if frame is None:
        raise NotDrawnError("no run of task mnist that was scored has a reliability.csv")
    points = together(frame)
    kinds = groups(results, "mnist", list(dict.fromkeys(frame["variant"])))
    figure, panels = panel_grid(len(kinds), 1, 2.9, above=0.1)
    for axes, (kind, variants) in zip(panels, kinds.items(), strict=True):
        looks = looks_of(variants)
        axes.plot([0, 1], [0, 100], color=MUTED, linestyle=(0, (1, 1)), lw=1.2)
        for variant in variants:
            look, of = looks[variant], points[points["variant"] == variant]
            axes.plot(
                of["confidence"], 100 * of["accuracy"], color=look.colour, linestyle=look.line, marker=look.marker,
                lw=1.5, ms=4.5,
            )  # fmt: skip
        axes.set_title(kind)
        axes.set_ylabel("right answers, %")
        axes.set_xlabel("score of the answer")
        tidy(axes)
        key_beside(axes, looks, {variant: results.plan.title(variant) for variant in variants})
    words = [
        "How often an answer is right, by its score: the length of the longest capsule, or the highest probability.",
        "On the dotted diagonal a model is right as often as its score says, below it less often (overconfident).",
        f"A point is one of 15 bins of equal width, the seeds taken together; bins with fewer than {LEAST} images are",
        "left out. The margin loss asks for lengths of 0.9, not 1, and so for less confidence than the cross entropy.",
        *conditions_in_words(results, "mnist"),
    ]
    return Drawing(figure, "Calibration: does a score say how often it is right", " ".join(words), ("mnist",))


def together(frame: pd.DataFrame) -> pd.DataFrame:
    """The bins of a variant's seeds as one: means weighted by their images, bins with fewer than LEAST left out."""
    sums = frame.assign(
        confidence=frame["confidence"] * frame["images"], accuracy=frame["accuracy"] * frame["images"]
    ).groupby(["variant", "confidence_low"], sort=True)[["images", "confidence", "accuracy"]].sum()  # fmt: skip
    sums = sums[sums["images"] >= LEAST]
    return sums[["confidence", "accuracy"]].div(sums["images"], axis=0).reset_index()
