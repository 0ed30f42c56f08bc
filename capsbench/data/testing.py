"""What all test sets share: one seed for everything that is drawn for testing, and the digits they are made of."""

from __future__ import annotations

from capsbench.data.batch import DigitSet
from capsbench.data.digits import first

# Runs have seeds of their own, test sets have this one: every run is tested on the same images. It is the number of
# "Dynamic Routing Between Capsules" on arXiv (1710.09829), chosen before anything was measured.
TEST_SEED = 171009829


def at_most(digits: DigitSet, count: int | None) -> DigitSet:
    """The first `count` digits; all of them where there are fewer, or where `count` is None."""
    return digits if count is None or count >= len(digits.labels) else first(digits, count)
