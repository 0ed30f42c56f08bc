"""Table `routing`: what the couplings of trained models look like, and whether more passes change an answer."""

from __future__ import annotations

import pandas as pd

from capsbench.report.captions import MEANS, conditions_in_words, listing, range_of
from capsbench.report.diagnostics import TASK, diagnostic_table, frame_of, variants_of
from capsbench.report.results import Results
from capsbench.report.tables import Metric
from capsbench.report.wide import ExtraTable

CONDITION = "routing"
SHOWN = (
    Metric("coupling_entropy", "entropy", ""),
    Metric("hard_fraction", "decided", "%"),
    Metric("coupling_spread", "spread over images", ""),
    Metric("coupling_spread_within", "spread in an image", ""),
    Metric("mutual_information", "class", "bits"),
    Metric("dead_capsules", "dead", "%"),
    Metric("error", "error", "%"),
    Metric("flips_r1", "flips r=1", "%"),
    Metric("flips_r10", "flips r=10", "%"),
    Metric("flips_r100", "flips r=100", "%"),
)
WORDS = (
    "Couplings c_ij are shares of each lower capsule i, at the number of passes used in training.",
    "Entropy: divided by ln of the number of classes; 1 is uniform, 0 is hard.",
    "Decided: lower capsules that give more than 0.99 to one output.",
    "Spread over images: standard deviation of a c_ij from image to image, 0 where the image does not matter;",
    "in an image: from lower capsule to lower capsule.",
    "Class: how many bits the favourite output of a lower capsule tells about the image's class, minus what it tells",
    "about shuffled labels.",
    "Dead: lower capsules that do not reach 1 % of the longest one's length on any image.",
    "Flips: images whose answer changes when r passes are made with the same weights.",
)


def caption_words(results: Results, names: list[str]) -> list[str]:
    """What is said under the table and the figure: images, what some variants have not, data, budget, seeds."""
    badge = results.plan.dataset.badge
    frame = frame_of(results, CONDITION)
    words = [f"Data: {badge}, the first {range_of(int(n) for n in frame['images'])} test images."]
    without = {
        "a number of passes to change": [v for v in names if not _has(frame, v, "flips_r100")],
        "lower capsules to look at": [v for v in names if not _has(frame, v, "dead_capsules")],
        "logits from pass to pass": [v for v in names if _has(frame, v, "flips_r100") and not has_trace(results, v)],
    }
    words += [f"Without {what}: {listing(which)}." for what, which in without.items() if which]
    return words + conditions_in_words(results, TASK)[1:]


def has_trace(results: Results, variant: str) -> bool:
    """Whether a variant's routing told its logits pass by pass."""
    return any((run.folder / CONDITION / "logits.csv").exists() for run in results.done(TASK, variant))


def _has(frame: pd.DataFrame, variant: str, metric: str) -> bool:
    return bool(((frame["variant"] == variant) & (frame["metric"] == metric)).any())


def routing_table(results: Results) -> ExtraTable | None:
    """The table, or None if no run was looked at."""
    variants = variants_of(results, CONDITION)
    if not variants:
        return None
    caption = ["Routing under the microscope.", *WORDS, *caption_words(results, variants), MEANS]
    return diagnostic_table(results, "routing", CONDITION, SHOWN, caption)
