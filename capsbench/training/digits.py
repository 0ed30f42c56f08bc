"""Which digits a run trains on."""

from __future__ import annotations

from capsbench.data.batch import DigitSet
from capsbench.data.digits import first, held_out, per_class
from capsbench.plan import Cell


def training_digits(cell: Cell, train: DigitSet, seed: int) -> DigitSet:
    """The digits a run trains on: without the held-out ones, and as few as the plan says, the same for every variant.

    So many of each class are drawn by the run's seed; with one seed the fewer are among the more. Raises DataError if
    there are not as many.
    """
    options = cell.options
    if cell.held_out:
        train, _ = held_out(train, cell.held_out)
    if options.train_images is not None:
        train = first(train, options.train_images)
    return per_class(train, options.train_per_class, seed) if options.train_per_class is not None else train
