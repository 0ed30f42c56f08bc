"""Two-digit transfer: train on single digits, test on two that stand one above the other or side by side."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from capsbench.data.batch import DigitSet
from capsbench.data.pairing import PairMaker, Pairs, PairStream
from capsbench.data.placed import PlacedStream

SIDE = 28
Axis = Literal["height", "width"]


class TwoDigitPairs(PairMaker):
    """`size` pairs of digits of different classes, on 56 x 28 (`height`, as the source has it) or 28 x 56 (`width`)."""

    def __init__(self, digits: DigitSet, *, seed: int, size: int, axis: Axis = "height") -> None:
        stacked = axis == "height"
        super().__init__(
            digits, seed=seed, size=size, height=2 * SIDE if stacked else SIDE, width=SIDE if stacked else 2 * SIDE
        )
        half = SIDE // 2
        places = [[-half, 0], [half, 0]] if stacked else [[0, -half], [0, half]]
        self._places = torch.tensor(places, device=digits.images.device)  # [2, 2]

    def _shifts(self, indices: Tensor, bases: Tensor) -> Tensor:
        return self._places.expand(len(indices), 2, 2).contiguous()


class SqueezedPairs(TwoDigitPairs):
    """The same pairs on 28 x 28, as a model of a fixed size sees them."""

    def make(self, indices: Tensor) -> Pairs:
        """The pairs of `indices` [n] int64, images [n, 1, 28, 28]."""
        return resized(super().make(indices))


def training_stream(digits: DigitSet, *, seed: int, batch: int) -> PlacedStream:
    """Batches of single digits as they are: the source trains without augmentation."""
    return PlacedStream(digits, seed=seed, batch=batch, max_shift=0, canvas=SIDE)


def pair_stream(
    digits: DigitSet, *, seed: int, batch: int, pairs: int | None = None, axis: Axis = "height"
) -> PairStream:
    """Batches of pairs, for the positive control, which trains on what it is tested on: one above the other.

    pairs: examples an epoch; as many as there are digits when not said.
    """
    size = len(digits.labels) if pairs is None else pairs
    return TwoDigitPairs(digits, seed=seed, size=size, axis=axis).stream(batch=batch)


def resized(pairs: Pairs, side: int = SIDE) -> Pairs:
    """The pairs on a canvas of side x side, for models of a fixed size: each pixel the mean of the area it covers.

    Two digits stacked on 56 x 28 come out half as high: the row that uses this says so.
    """
    images = F.interpolate(pairs.images, size=(side, side), mode="area")  # [n, 1, side, side]
    digits = F.interpolate(pairs.digits, size=(side, side), mode="area")  # [n, 2, side, side]
    return pairs._replace(images=images, digits=digits)
