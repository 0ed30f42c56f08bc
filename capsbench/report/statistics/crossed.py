"""The crossed bootstrap: over seeds and over test digits at once, for images that are not independent.

320,000 affNIST images are 10,000 digits seen 32 times, and every pair has two of them: what is drawn again is the
digit, with all its images, and beside it the seed (Owen 2007, "The pigeonhole bootstrap"). Variants share the test
digits, so a draw of digits is the same for both sides of a comparison; their seeds are drawn apart. The variance over
all such draws is a sum that can be written down, so nothing is drawn: a test does, and finds it.

Four things keep the interval at its promise with few seeds, each shown by simulation in the tests. One seed fewer than
there are is drawn, which makes the variance over n seeds right where n draws would give (n-1)/n of it. What seeds and
digits do together (this seed fails on that digit) enters a crossed bootstrap three times: two are taken out again. The
interval is Student's t with Satterthwaite's degrees of freedom, for percentiles of 5 seeds cover 84 %, not 95 %. And it
is never narrower than Welch's over the seeds alone, as the digits' thousands of degrees of freedom would else have it
(statistics/estimate.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsbench.report.statistics.estimate import Estimate, Part, satterthwaite
from capsbench.report.statistics.seeds import differ

Array = NDArray[np.float64]


class Scored(NamedTuple):
    """One cell's metric over seeds, and what each test digit does to it."""

    means: Array  # [n], the metric of each seed
    effects: Array  # [n, D], of digit_effects


def digit_effects(values: NDArray[np.generic], bases: NDArray[np.integer], digits: int) -> Array:
    """What each test digit adds to the mean of `values`: [D], summing to 0.

    Args:
        values: of each image, [N]. bases: which digit, [N], or which two, [N, 2].
        digits: how many test digits there are, D.

    Drawing digit d u_d times changes the mean by sum_d (u_d - 1) effect_d: exactly where every digit has as many
    images, and to first order for pairs, which are drawn as often as both their digits together. What a pair has of
    its own then stands with both, so their sum of squares has it twice: too much, up to twice the variance where a
    digit is in one or two pairs, and next to nothing where it is in hundreds.
    """
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)  # [N]
    sides = bases.T if bases.ndim == 2 else bases[None]  # [1 or 2, N]
    effects = np.zeros(digits)  # [D]
    for side in sides:
        effects += np.bincount(side, weights=centred, minlength=digits)
    return effects / len(centred)


def pair_effects(counts: NDArray[np.integer], values: Array) -> Array:
    """As digit_effects, of pairs whose values are a few levels: [D].

    Args:
        counts: of each digit's pairs those with each level, [D, L]; a pair stands with both its digits.
        values: the levels, [L].
    """
    mean = counts.sum(0) @ values / counts.sum()
    return counts @ (values - mean) / (counts.sum() / 2)


def crossed(a: Scored, b: Scored | None = None) -> Estimate | None:
    """The mean of `a` over seeds (less that of `b`) with a crossed bootstrap's standard error.

    None where a side has fewer than two seeds, and where no seed differs from another within a side (see `one_sample`).
    Raises ValueError if the sides have not the same test digits.
    """
    sides = [a] if b is None else [a, b]
    if min(len(side.means) for side in sides) < 2 or not any(differ(side.means) for side in sides):
        return None
    if len({side.effects.shape[1] for side in sides}) > 1:
        raise ValueError("both sides of a crossed bootstrap need the same test digits")
    count = a.effects.shape[1]
    common = np.zeros(count)  # [D]
    together = 0.0
    parts = []
    for sign, side in zip((1.0, -1.0), sides, strict=False):
        n = len(side.means)
        mean_effect = side.effects.mean(0)  # [D]
        common += sign * mean_effect
        together += float(((side.effects - mean_effect) ** 2).sum()) / (n * (n - 1))
        parts.append(Part(float(side.means.var(ddof=1)) / n, n))
    over_seeds, over_digits = sum(part.variance for part in parts), float((common**2).sum())
    drawn = over_seeds + over_digits + together  # the bootstrap's variance
    variance = max(drawn - 2 * together, over_seeds, over_digits)
    value = float(a.means.mean()) - (float(b.means.mean()) if b else 0.0)
    by_seeds = [(part.variance, part.seeds - 1.0) for part in parts]
    rest = max(0.0, variance - over_seeds)
    return Estimate(
        value,
        variance**0.5,
        satterthwaite([*by_seeds, (rest, max(count - 1.0, 1.0))]),
        tuple(parts),
        hides_digits=rest == 0,
    )
