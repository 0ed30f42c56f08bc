"""Numbers and seeds in the sentences of verdicts."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

from capsbench.report.statistics.estimate import MOST_SEEDS
from capsbench.report.wide import NOTHING

if TYPE_CHECKING:
    from capsbench.plan.claims import Claim
    from capsbench.report.verdicts.judged import Judgement

SHARES = ("error", "accuracy")  # metrics that are a share of images, so from 0 to 100 %
MOST_DECIMALS = 8  # further digits tell nobody anything
ENOUGH = 5  # seeds of the full plan; below, the sentence says so
UNPUBLISHED = "Question of the write-ups"  # the source of a question that came from texts nobody can look up
# how the source of a claim begins that nobody but this suite makes (config/claims.yaml)
OURS = ("Positive control", UNPUBLISHED, "Question of this suite", "This suite", "Control:")


def is_ours(claim: Claim) -> bool:
    """Whether a claim is a question or a threshold of this suite's own, which nobody has published."""
    return claim.source.startswith(OURS)


def number(value: float, decimals: int | None = None) -> str:
    """With so many decimals; where none are said three significant digits, and whole numbers from a thousand on."""
    if decimals is not None:
        text = f"{value:,.{decimals}f}"
        return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def decimals_of(judgement: Judgement) -> int | None:
    """The decimals of a claim's estimate and of both ends of its intervals; None where there is no interval.

    Its 95 % interval gives them, two significant digits of its width, but one decimal at least. An end by which the
    verdict is found gets as many as tell it from the claimed number: -0.04 must not read as 0.0.
    """
    if judgement.estimate is None:
        return None
    low, high = judgement.estimate.interval()
    if not high > low:
        return None
    if max(abs(low), abs(high)) >= 1000:
        return 0
    decimals = max(1, 1 - math.floor(math.log10(high - low)))
    while decimals < MOST_DECIMALS and not _tells(judgement, decimals):
        decimals += 1
    return decimals


def _tells(judgement: Judgement, decimals: int) -> bool:
    """Whether each end that decides is printed on the side of the claimed numbers on which it lies."""
    claim, estimate = judgement.claim, judgement.estimate
    assert estimate is not None  # asked where there is one
    ends, bounds = [*(judgement.adjusted or ())], [0.0]
    if claim.kind != "direction":
        ends += estimate.interval()
        bounds = [(claim.expected or 0.0) + sign * (claim.delta or 0.0) for sign in (-1, 1)]
    pairs = [(end, round(end, decimals), bound) for end in ends for bound in bounds]
    return all((end > bound, end < bound) == (shown > bound, shown < bound) for end, shown, bound in pairs)


def unit_of(judgement: Judgement) -> str:
    """The unit of the estimate: what lies between two percentages are points."""
    unit = judgement.sides[0].unit
    compared = len(judgement.sides) > 1 or judgement.claim.kind == "direction"
    return "points" if unit == "%" and compared else unit


def possible(judgement: Judgement, low: float, high: float) -> tuple[float, float]:
    """An interval of the estimate, cut for the eye where shares of images end: over few seeds t goes beyond."""
    if judgement.sides[0].unit != "%" or not any(word in (judgement.claim.metric or "") for word in SHARES):
        return low, high
    constant = _constant(judgement)
    floor = -100.0 if len(judgement.sides) > 1 else 0.0 - constant
    return max(low, floor), min(high, 100.0 - constant)


def span(judgement: Judgement, low: float, high: float, unit: str = "") -> str:
    """`-0.09 to -0.01 %`: an interval of the estimate as it is shown, cut and with the claim's decimals."""
    decimals = decimals_of(judgement)
    first, last = (number(end, decimals) for end in possible(judgement, low, high))
    return with_unit(f"{first} to {last}", unit)


def with_unit(text: str, unit: str) -> str:
    """`5.2 points`; of a plain number, whose unit is empty, the text alone: no space before what follows it."""
    return f"{text} {unit}".rstrip()


def few_seeds(n: int, planned: int) -> str:
    """How many seeds a verdict stands on; fewer than planned, or than five, are marked as few."""
    if n < planned:
        return f" (on {n} of {planned} planned seeds)"
    return f" (on only {n} seeds)" if n < ENOUGH else f" (on {n} seeds)"


def needed(seeds: int | None, hides_digits: bool) -> str:
    """How many seeds would decide it: in a new trial, since seeds added to these would be a second look.

    What the test digits add does not shrink with more seeds. Where it was too small to be seen, this is the least.
    """
    if seeds is None:
        return f"no trial of up to {MOST_SEEDS:,} seeds has an 80 % chance of deciding it, if the estimate is right"
    if hides_digits:
        return (
            f"a new trial would need at least {seeds:,} seeds per cell for an 80 % chance of deciding it, if the "
            "estimate is right; what the test digits add cannot be told from what these seeds do, and may ask for more"
        )
    return f"a new trial of {seeds:,} seeds per cell would have an 80 % chance of deciding it, if the estimate is right"


def ours(judgement: Judgement) -> str:
    """`-0.04 (-0.09 to 0.01) %`: a difference; of a claim about one cell that cell's mean."""
    if judgement.estimate is None:
        alone = shown_value(judgement)
        return NOTHING if alone is None else f"{number(alone)} {judgement.sides[0].unit}".rstrip() + " (no interval)"
    constant = _constant(judgement)
    ends = possible(judgement, *judgement.estimate.interval())
    mean, low, high = (value + constant for value in (judgement.estimate.value, *ends))
    unit = unit_of(judgement) if len(judgement.sides) > 1 else judgement.sides[0].unit
    decimals = decimals_of(judgement)
    said = number(mean, decimals)
    if decimals is not None:  # None: a count
        said += f" ({number(low, decimals)} to {number(high, decimals)})"
    return with_unit(said, unit)


def shown_value(judgement: Judgement) -> float | None:
    """The number that `ours` begins with, by which a table sorts."""
    if judgement.estimate is not None:
        return judgement.estimate.value + _constant(judgement)
    one_cell = judgement.verdict != "not run" and len(judgement.sides) == 1
    return fmean(judgement.sides[0].values) if one_cell else None


def _constant(judgement: Judgement) -> float:
    """The number that a direction claim's cell is to beat, which its estimate has taken off; else 0."""
    claim = judgement.claim
    return (claim.expected or 0.0) if claim.kind == "direction" else 0.0


def claimed(judgement: Judgement) -> str:
    """`0.25 ± 0.05`, `< 0`, `> 90`, `0 ± 0.05`."""
    claim = judgement.claim
    if claim.kind == "value":
        return NOTHING if claim.expected is None else _around(claim.expected, claim.delta)
    if claim.kind == "no_difference":
        return NOTHING if claim.delta is None else _around(0, claim.delta)
    sign = "<" if claim.direction == "less" else ">"
    return NOTHING if claim.direction is None else f"{sign} {number(_constant(judgement))}"


def _around(value: float, delta: float | None) -> str:
    return number(value) + (f" ± {number(delta)}" if delta is not None else "")
