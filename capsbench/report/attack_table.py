"""Table `attacks`: errors on digits that an adversary has moved towards a wrong answer."""

from __future__ import annotations

from capsbench.report.captions import MEANS, conditions_in_words, range_of
from capsbench.report.diagnostics import TASK, diagnostic_table, frame_of, variants_of
from capsbench.report.results import Results
from capsbench.report.tables import Metric
from capsbench.report.wide import ExtraTable

CONDITION = "attacked"
HUNDREDTHS = (5, 10, 20, 30)
SHOWN = (
    Metric("error", "error", "%"),
    *(Metric(f"fgsm_error_e{n}", f"FGSM {n / 100:g}", "%") for n in HUNDREDTHS),
    *(Metric(f"pgd_error_e{n}", f"PGD {n / 100:g}", "%") for n in HUNDREDTHS),
    Metric("masked", "masked", "%"),
)
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
    return diagnostic_table(results, "attacks", CONDITION, SHOWN, caption)
