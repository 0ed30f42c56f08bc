"""What is told beside a test and decides nothing: McNemar's counts a seed, and what three trials would have shown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from capsbench.report.statistics.seeds import ROUNDING

TRIALS = 3  # what the paper's Table 1 rests on
ALL_DRAWS = 2000  # up to so many draws of three seeds all are looked at, beyond as many are drawn


class ThreeTrials(NamedTuple):
    """How often three seeds a side show the claimed ordering of the means."""

    share: float
    draws: int  # how many draws of three (against three) were looked at
    exact: bool  # all there are


def three_trials(a: Sequence[float], b: Sequence[float] | float, sign: int) -> ThreeTrials | None:
    """Would three trials have told? The share of draws of three seeds whose means are ordered as claimed.

    Args:
        a, b: one value a run; `b` may be a constant. sign: 1 if `a` is claimed to be the greater, -1 if the smaller.

    None where a side has fewer than three seeds. A tie shows nothing, so it does not count as the ordering; of errors
    in hundredths of a percent many means tie, but for rounding.
    """
    if len(a) < TRIALS or (not isinstance(b, float) and len(b) < TRIALS):
        return None
    first, all_first = _means_of_three(a, 0)
    second, all_second = (np.array([b]), True) if isinstance(b, float) else _means_of_three(b, 1)
    least = ROUNDING * max(1.0, float(np.abs(first).max()), float(np.abs(second).max()))
    shown = sign * (first[:, None] - second[None, :]) > least  # [draws of a, draws of b]
    return ThreeTrials(float(shown.mean()), shown.size, all_first and all_second)


def _means_of_three(values: Sequence[float], stream: int) -> tuple[NDArray[np.float64], bool]:
    array = np.asarray(values, dtype=np.float64)
    if math.comb(len(array), TRIALS) <= ALL_DRAWS:
        return array[list(itertools.combinations(range(len(array)), TRIALS))].mean(1), True
    order = np.random.default_rng([len(array), stream]).random((ALL_DRAWS, len(array))).argsort(1)[:, :TRIALS]
    return array[order].mean(1), False


def disagreements(a: NDArray[np.bool_], b: NDArray[np.bool_], independent: bool) -> tuple[int, int, float | None]:
    """Images that only `a` has right, images that only `b` has right, and McNemar's exact p; both [N].

    The p is None where images are not independent of each other: then it would not mean what it says.
    """
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    if not independent:
        return only_a, only_b, None
    tail = float(stats.binom.cdf(min(only_a, only_b), only_a + only_b, 0.5))
    return only_a, only_b, min(1.0, 2 * tail)
