"""The image sets of the affNIST task: which affNIST it is, the held-out digits, and parts of a set."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from capsbench.data.affnist import ImageSet, SyntheticAffnist, placed_set
from capsbench.data.affnist_files import PER_DIGIT
from capsbench.data.affnist_source import official_affnist
from capsbench.data.batch import DigitSet
from capsbench.data.digits import first
from capsbench.data.placed import unit
from capsbench.data.testing import TEST_SEED, at_most
from capsbench.errors import DataError

CHUNK = 4096  # images of the whole set in memory at once, where a part is picked from them
KEPT = 1 << 16  # a part of at most so many images is kept as uint8: 105 MB


def affnist_set(
    test: DigitSet, *, dataset: str, transforms: int, count: int | None = None, folder: str | Path | None = None
) -> ImageSet:
    """The affNIST test set, the same in every measurement of a plan: official where its files are, else synthetic.

    Args:
        test: all test digits of the data set named `dataset`; the official set belongs to MNIST alone.
        transforms: affine transforms a digit; count: only those of the first so many digits.
        folder: the plan's data folder; CAPSBENCH_DATA comes before it, the download cache after it.

    Raises:
        DataError: official files are there but damaged or altered, or they have fewer transforms a digit.
    """
    official = official_affnist(test, folder) if dataset == "mnist" else None
    if official is None:
        return SyntheticAffnist(at_most(test, count), per_digit=transforms, seed=TEST_SEED)
    if transforms > PER_DIGIT:
        raise DataError(
            f"The official affNIST has {PER_DIGIT} transforms a digit, and the plan's key transforms asks for "
            f"{transforms}; say at most {PER_DIGIT}, or take the files away to use the synthetic set."
        )
    digits = len(test.labels) if count is None else min(count, len(test.labels))
    if (digits, transforms) == (len(test.labels), PER_DIGIT):
        return official
    source = official.source.cpu()
    index = ((source < digits) & (_turn(source) < transforms)).nonzero().flatten()
    return Part(official, index)


def held_out_set(train: DigitSet, count: int) -> ImageSet:
    """The first `count` training digits, which no run of the task trains on, each at a fixed one of the 169 places.

    Raises DataError if there are not so many.
    """
    return placed_set(first(train, count), TEST_SEED)


class Part:
    """The images `index` ([n] int64, rising) of a set, as a set. Few are kept as uint8, many are made on demand."""

    def __init__(self, whole: ImageSet, index: Tensor) -> None:
        self.name = whole.name
        self._whole, self._index = whole, index.cpu()
        on_device = index.to(whole.labels.device)
        self.labels, self.source = whole.labels[on_device], whole.source[on_device]
        self._kept: Tensor | None = None
        if len(index) <= KEPT:
            pieces = [self._pixels(start, min(start + CHUNK, len(index))) for start in range(0, len(index), CHUNK)]
            self._kept = torch.cat(pieces)  # [n, 40, 40] uint8

    def __len__(self) -> int:
        return len(self._index)

    def images(self, start: int, stop: int) -> Tensor:
        """Images start..stop-1: [n, 1, 40, 40] float32 in [0, 1], bit for bit those of the whole set."""
        return unit(self._pixels(start, stop) if self._kept is None else self._kept[start:stop])[:, None]

    def _pixels(self, start: int, stop: int) -> Tensor:
        """Walk over the whole set from the first wanted image to the last, CHUNK at a time: [n, 40, 40] uint8."""
        wanted = self._index[start:stop]
        pieces = []
        end = int(wanted[-1]) + 1
        for low in range(int(wanted[0]), end, CHUNK):
            here = wanted[(wanted >= low) & (wanted < low + CHUNK)] - low
            if len(here):
                made = self._whole.images(low, min(low + CHUNK, end))[:, 0]  # [<= CHUNK, 40, 40]
                pieces.append((made[here.to(made.device)] * 255).round().to(torch.uint8))
        return torch.cat(pieces)


def evenly(whole: ImageSet, count: int) -> ImageSet:
    """At most `count` images of a set, spread evenly over its digits and over each digit's transforms.

    The set is cut into `count` stretches of (nearly) equal length and one image taken of each, at a place that moves on
    by the golden ratio: whether images lie digit by digit or transform by transform, none is preferred.
    """
    total = len(whole)
    if count >= total:
        return whole
    number = torch.arange(count, dtype=torch.float64)
    low = (number * total / count).floor()
    length = ((number + 1) * total / count).floor() - low
    place = (number * 0.6180339887498949) % 1.0  # in [0, 1)
    return Part(whole, (low + (place * length).floor()).long())


def _turn(source: Tensor) -> Tensor:
    """How often the digit of each image came before: 0 for its first image in the set, [N] int64."""
    order = torch.sort(source, stable=True).indices
    ordered = source[order]
    begins = torch.searchsorted(ordered, ordered)  # where each digit's images begin
    turn = torch.empty_like(source)
    turn[order] = torch.arange(len(source)) - begins
    return turn
