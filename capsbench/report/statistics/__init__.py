"""Statistics of the report: over seeds, over seeds and test digits, over a family of claims. No torch, no files."""

from capsbench.report.statistics.crossed import Scored, crossed, digit_effects, pair_effects
from capsbench.report.statistics.description import ThreeTrials, disagreements, three_trials
from capsbench.report.statistics.estimate import CONFIDENCE, Estimate, exact, holm, seeds_to_decide
from capsbench.report.statistics.seeds import Summary, difference, one_sample, paired, summarise

__all__ = [
    "CONFIDENCE",
    "Estimate",
    "Scored",
    "Summary",
    "ThreeTrials",
    "crossed",
    "difference",
    "digit_effects",
    "disagreements",
    "exact",
    "holm",
    "one_sample",
    "pair_effects",
    "paired",
    "seeds_to_decide",
    "summarise",
    "three_trials",
]
