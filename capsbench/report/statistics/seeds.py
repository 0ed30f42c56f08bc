"""Over seeds: mean, spread and Student's t interval of one cell; the difference of two by Welch's t."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsbench.report.statistics.estimate import Estimate, Part, satterthwaite

ROUNDING = 1e-9  # of the greatest value, or of 1: values that differ by less are the same


class Summary(NamedTuple):
    """What n runs of one cell say about one metric, in the metric's own unit. What cannot be had is None."""

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation (ddof 1) and Student's t interval of the mean of `values`, one value a run.

    Student's t is the interval that keeps its promise at 3 to 10 seeds; a percentile bootstrap does not. Values that
    are all the same have no interval (see `one_sample`), no value has nothing.
    Raises ValueError if a value is not finite: that run has failed.
    """
    array = _finite(values)  # [n]
    if len(array) == 0:
        return Summary(0, None, None, None, None)
    estimate = one_sample(values)
    if estimate is None:
        return Summary(len(array), float(array.mean()), 0.0 if len(array) > 1 else None, None, None)
    return Summary(len(array), estimate.value, float(array.std(ddof=1)), *estimate.interval())


def one_sample(values: Sequence[float], against: float = 0.0) -> Estimate | None:
    """The mean of `values`, one a run, less a constant. Raises ValueError as summarise.

    None where no value differs from another, so for one value too: errors come in steps of an image, two seeds of a
    good model often have the same, and Student's t would make a certainty of that.
    """
    array = _finite(values)
    if not differ(array):
        return None
    part = _part(array)
    return Estimate(float(array.mean()) - against, part.variance**0.5, len(array) - 1.0, (part,))


def difference(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Mean of `a` less mean of `b`, one value a run, by Welch's t.

    Over seeds alone: the test images count as given. None where either has fewer than two, and where no value differs
    from another within either (see `one_sample`). Raises ValueError if a value is not finite.
    """
    first, second = _finite(a), _finite(b)
    if min(len(first), len(second)) < 2 or not (differ(first) or differ(second)):
        return None
    parts = (_part(first), _part(second))
    error = sum(part.variance for part in parts) ** 0.5
    freedom = satterthwaite([(part.variance, part.seeds - 1.0) for part in parts])
    return Estimate(float(first.mean() - second.mean()), error, freedom, parts)


def paired(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Mean of a[i] - b[i], two metrics of the same runs; None and ValueError as `one_sample`."""
    return one_sample([x - y for x, y in zip(a, b, strict=True)])


def differ(array: NDArray[np.float64]) -> bool:
    """Whether two of the values differ by more than rounding."""
    return len(array) > 1 and bool(np.ptp(array) > ROUNDING * max(1.0, np.abs(array).max()))


def _part(array: NDArray[np.float64]) -> Part:
    return Part(float(array.var(ddof=1)) / len(array), len(array))


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"a summary takes finite values only, not {list(values)}")
    return array
