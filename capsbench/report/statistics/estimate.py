"""An estimate with its standard error: interval, test, test of equivalence; families of them; seeds still needed."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
MOST_SEEDS = 10_000  # where more than so many would be needed, no number of seeds is named
POWER = 0.8  # the chance of a decision at the number of seeds that is named
_nodes, _weights = np.polynomial.legendre.leggauss(64)
CHANCES, WEIGHTS = (1 + _nodes) / 2, _weights / 2  # to average over all quantiles: [K] of (0, 1)


class Part(NamedTuple):
    """A part of an estimate's variance that shrinks with more seeds: one cell's spread over its seeds."""

    variance: float  # of the mean over the seeds there are
    seeds: int


class Estimate(NamedTuple):
    """A number with its standard error and the degrees of freedom of Student's t, all in the metric's unit.

    Test digits add thousands of degrees of freedom to those of two or three seeds, and Satterthwaite's t is then too
    short in its tails. So nothing is told here that seeds alone, with their own degrees of freedom, would not tell:
    the interval is the wider of the two and each p the larger. Where cells have different numbers of seeds, seeds alone
    have the freedom of the smaller cell: Welch's, by the estimated spreads, promises too much when it is that cell that
    spreads (10 % false positives for 5 with 2 against 5 seeds and three times the spread).
    """

    value: float
    error: float
    freedom: float
    parts: tuple[Part, ...]  # of error ** 2; what they leave over belongs to the test digits
    hides_digits: bool = False  # what the digits add drowns in what seeds do: it is taken for 0, and may not be

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Both ends of the two-sided interval."""
        half = self.reach((1 - confidence) / 2)
        return self.value - half, self.value + half

    def p(self) -> float:
        """The two-sided p of the value being 0 in truth."""
        return min(1.0, 2 * self._beyond(abs(self.value)))

    def p_equivalent(self, delta: float) -> float:
        """The p of two one-sided tests that the truth lies outside (-delta, delta), after Schuirmann 1987."""
        return max(self._beyond(delta - self.value), self._beyond(delta + self.value))

    def reach(self, tail: float) -> float:
        """How far from the truth an estimate falls, to one side, with a chance of `tail`: half an interval's width."""
        if self.error == 0:
            return 0.0
        return max(float(stats.t.ppf(1 - tail, freedom)) * error for error, freedom in self._errors())

    def _beyond(self, distance: float) -> float:
        """The chance that an estimate falls `distance` or more to one side of the truth."""
        return max(_tail(distance, error, freedom) for error, freedom in self._errors())

    def _errors(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The standard error of all parts and that of the seeds' alone, each with its degrees of freedom."""
        over_seeds = sum(part.variance for part in self.parts)
        seeds = [part.seeds for part in self.parts]
        own = [(part.variance, part.seeds - 1.0) for part in self.parts]
        alone = satterthwaite(own) if len(set(seeds)) == 1 else min(seeds) - 1.0
        return (self.error, self.freedom), (math.sqrt(over_seeds), alone)


def _tail(distance: float, error: float, freedom: float) -> float:
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stats.t.sf(distance / error, freedom))


def exact(value: float) -> Estimate:
    """A number that every run has alike, such as a count of parameters."""
    return Estimate(value, 0.0, math.inf, (Part(0.0, 1),))


def satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """The degrees of freedom of a sum of variances, each given with its own."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return min(freedom for _, freedom in parts)
    below = sum(variance**2 / freedom for variance, freedom in parts)
    return total**2 / below if below else math.inf


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p of one family: comparing them with 0.05 keeps the family's false positives under 5 %."""
    # statsmodels has it too, and collects all of Python's garbage at every call: with its import a fifth of a report
    order = np.argsort(p, kind="stable")  # [n]
    stepped = np.asarray(p, dtype=float)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(stepped).clip(max=1.0)
    return [float(value) for value in adjusted]


def seeds_to_decide(estimate: Estimate, rooms: Sequence[float], alpha: float, tails: int = 2) -> int | None:
    """How many seeds a cell give 80 % chance of a decision on the same test digits, if all else stays the same.

    Args:
        rooms: how far the estimate lies from each bound that it must be told from: one, or both bounds of a margin.
        alpha: the level of the test; tails: 1 or 2, how many it has.

    Returns:
        At least the seeds there are plus one. None if no number of seeds (up to MOST_SEEDS) is enough: the estimate
        lies on the bound, or so near to it that the test digits alone leave it open.
    """
    fixed = max(0.0, estimate.error**2 - sum(part.variance for part in estimate.parts))
    now = min(part.seeds for part in estimate.parts)

    def decides(seeds: int) -> bool:
        parts = [Part(part.variance * part.seeds / seeds, seeds) for part in estimate.parts]
        # failing one bound or the other: both at once is the rarest, so the chances are taken to add up
        return 1 - sum(_missed(parts, fixed, room, alpha / tails) for room in rooms) >= POWER

    if min(rooms) <= 0:
        return None
    counts = range(now + 1, MOST_SEEDS + 1)
    first = bisect.bisect_left(counts, True, key=decides)  # where any number of seeds decides, more do too
    return counts[first] if first < len(counts) else None


def _missed(parts: Sequence[Part], fixed: float, distance: float, tail: float) -> float:
    """The chance that a new trial does not tell its estimate from a bound at `distance`, at the level `tail`.

    The test digits brought the estimate to where it is and would bring it there again: it scatters by the seeds alone,
    whose variances are `parts`. Its interval is about other digits too, and has their variance, `fixed`, in it. Where
    there is none this is the noncentral t: averaged over the chi-square by which the seeds' variance is estimated.
    """
    scatter = math.sqrt(sum(part.variance for part in parts))
    if scatter == 0:
        return float(distance <= stats.norm.isf(tail) * math.sqrt(fixed))
    own = [(part.variance, part.seeds - 1.0) for part in parts]
    alone, of_both = satterthwaite(own), satterthwaite([*own, (fixed, math.inf)])
    spread = scatter * np.sqrt(stats.chi2.ppf(CHANCES, alone) / alone)  # as it may be estimated, [K]
    reach = np.maximum(
        stats.t.isf(tail, alone) * spread,
        stats.t.isf(tail, of_both) * np.sqrt(spread**2 + fixed),
    )
    return float(WEIGHTS @ stats.norm.cdf((reach - distance) / scatter))
