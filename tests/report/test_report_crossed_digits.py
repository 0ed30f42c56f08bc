"""What the test digits put into a crossed interval is never taken out of it again."""

from __future__ import annotations

import numpy as np
import pytest

from capsbench.report.statistics import Scored, crossed


@pytest.mark.parametrize("both", [True, False])
def test_a_crossed_interval_is_never_narrower_than_that_of_the_digits_alone(both: bool) -> None:
    """Seeds that are right about other digits and as often: what they do together is taken out, the digits stay."""
    rng, means = np.random.default_rng(0), np.array([1.0, 1.001, 0.999])
    drawn = rng.normal(size=(2, 3, 200))
    effects = drawn - drawn.mean(2, keepdims=True)  # [2, seeds, digits]
    a, b = (Scored(means, side) for side in effects)
    estimate = crossed(a, b) if both else crossed(a)
    assert estimate is not None
    common = effects[0].mean(0) - effects[1].mean(0) if both else effects[0].mean(0)
    over_digits = float((common**2).sum())
    assert over_digits > 100 * sum(part.variance for part in estimate.parts)  # no other floor holds it
    assert estimate.error**2 >= over_digits * (1 - 1e-9)
