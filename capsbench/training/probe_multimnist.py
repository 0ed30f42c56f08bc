"""MultiMNIST is measured at the end alone. What stands here is what must hold before it is trained: its test pairs."""

from __future__ import annotations

from capsbench.data.batch import DigitSet, Stream
from capsbench.data.digits import Digits
from capsbench.data.multimnist import PairSet
from capsbench.data.testing import TEST_SEED, at_most
from capsbench.plan.tasks import MultimnistTask


def make_probe(options: MultimnistTask, digits: Digits, stream: Stream, batch: int) -> None:
    """No probe. Raises DataError, before the first step, when the test digits do not suffice for the test pairs."""
    make_pairs(options, digits.test)


def make_pairs(options: MultimnistTask, test: DigitSet) -> PairSet:
    """The test pairs, placed as the training pairs are. Raises DataError when the test digits do not suffice."""
    digits = at_most(test, options.test_images)
    return PairSet(digits, seed=TEST_SEED, size=options.test_pairs, placement=options.placement)
