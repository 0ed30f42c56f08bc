"""Table `attacks`: errors on digits that an adversary has moved towards a wrong answer."""

from __future__ import annotations

import re

from capsbench.report.captions import MEANS, conditions_in_words, range_of
from capsbench.report.diagnostics import TASK, diagnostic_table, frame_of, variants_of
from capsbench.report.results import Results
from capsbench.report.tables import Metric
from capsbench.report.wide import ExtraTable

CONDITION = "attacked"
ATTACKS = {"fgsm": "FGSM", "pgd": "PGD"}
WORDS = (  # of table and figure
    "Pixels were moved towards a wrong answer, along the model's own gradient (white is 1): by one step along its sign",
    "(FGSM), or by 20 smaller ones (PGD). Every variant is attacked through the difference between the true score and",
    "the best other one.",
)
OF_THE_TABLE = (
    "Error: of the same digits as they are. The number in a heading is the most that a pixel moves.",
    "Masked: digits whose gradient is zero everywhere, which neither attack moves.",
)


def caption_words(results: Results) -> list[str]:
    """What is said under the table and the figure: images, data, budget, seeds."""
    images = range_of(int(n) for n in frame_of(results, CONDITION)["images"])
    words = f"Data: {results.plan.dataset.badge}, the first {images} test images."
    return [words, *conditions_in_words(results, TASK)[1:]]


def attack_table(results: Results) -> ExtraTable | None:
    """The table, or None if no run was attacked."""
    if not variants_of(results, CONDITION):
        return None
    caption = ["White-box attacks.", *WORDS, *OF_THE_TABLE, *caption_words(results), MEANS]
    return diagnostic_table(results, "attacks", CONDITION, _shown(results), caption)


def _shown(results: Results) -> list[Metric]:
    """The error without attacks, under each attack by size as far as measured, and how many digits none can move."""
    names = [
        re.fullmatch(r"([a-z]+)_error_e(\d+)", str(name)) for name in frame_of(results, CONDITION)["metric"].unique()
    ]
    found = sorted(
        (list(ATTACKS).index(name[1]), int(name[2]), name[0]) for name in names if name and name[1] in ATTACKS
    )
    sizes = [Metric(name, f"{list(ATTACKS.values())[k]} {size / 100:g}", "%") for k, size, name in found]
    return [Metric("error", "error", "%"), *sizes, Metric("masked", "masked", "%")]
