"""Figure: accuracy when an adversary may move every pixel a little."""

from __future__ import annotations

import pandas as pd

from capsbench.report.attack_table import CONDITION, WORDS, caption_words
from capsbench.report.diagnostics import TASK
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import groups, key_beside, looks_of, panel_grid, seeds_and_mean, tidy
from capsbench.report.readers import read_all
from capsbench.report.results import Results

COLUMNS = {"attack": str, "epsilon": float, "error": float}
PANELS = {"fgsm": "fast gradient sign", "pgd": "projected gradient descent, 20 steps"}


def draw(results: Results) -> Drawing:
    """A column of panels for each attack, one line a variant: accuracy against epsilon, thin lines the seeds."""
    runs = [run for run in results.done(TASK) if CONDITION in run.apart]
    frame = read_all(results, runs, f"{CONDITION}/attacks.csv", COLUMNS)
    if frame is None:
        raise NotDrawnError("no run of task mnist was attacked (attack_images of the plan)")
    frame["accuracy"] = 100 - frame["error"]
    kinds = groups(results, TASK, list(dict.fromkeys(frame["variant"])))
    figure, panels = panel_grid(len(PANELS) * len(kinds), len(PANELS), 2.5, above=0.1, sharey=True)
    places = [(kind, variants, attack) for kind, variants in kinds.items() for attack in PANELS]
    for axes, (kind, variants, attack) in zip(panels, places, strict=True):
        looks = looks_of(variants)
        for variant in variants:
            seeds_and_mean(axes, looks[variant], _line(frame, variant, attack), "epsilon", "accuracy")
        axes.set_title(f"{PANELS[attack]}: {kind}" if kind else PANELS[attack])
        axes.set_xlabel("largest change of a pixel (white is 1)")
        tidy(axes)
        if attack == list(PANELS)[-1]:
            key_beside(axes, looks, {variant: results.plan.title(variant) for variant in variants})
    figure.supylabel("accuracy, %", fontsize=9)
    words = ["Accuracy on attacked digits: thick lines are means, thin ones seeds.", *WORDS, *caption_words(results)]
    return Drawing(figure, "What an adversary can do", " ".join(words), (TASK,))


def _line(frame: pd.DataFrame, variant: str, attack: str) -> pd.DataFrame:
    """The points of one variant under one attack, from the accuracy without any."""
    return frame[(frame["variant"] == variant) & frame["attack"].isin(["none", attack])].sort_values("epsilon")
