"""MultiMNIST (the paper's section 6): two overlapping digits of different classes on 36 x 36."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from capsbench.data.batch import DigitSet
from capsbench.data.counter import Purpose, below
from capsbench.data.pairing import PairMaker, Pairs, PairStream
from capsbench.data.placed import box

CANVAS = 36
Placement = Literal["paper", "official"]
MAX_SHIFT: dict[Placement, int] = {"paper": 4, "official": 6}  # section 6; the command in the authors' code


class PairSet(PairMaker):
    """`size` pairs: the paper makes 1,000 of each digit, 60M to train on and 10M to test on.

    placement: `paper` shifts both digits of each pair independently; `official`, as the authors' code does, gives a
    digit one shift for all the pairs in which it comes first. max_shift: in pixels each way, by default 4 for `paper`
    and 6 for `official`; what leaves the canvas is cut.
    """

    def __init__(
        self,
        digits: DigitSet,
        *,
        seed: int,
        size: int,
        max_shift: int | None = None,
        canvas: int = CANVAS,
        placement: Placement = "paper",
    ) -> None:
        super().__init__(digits, seed=seed, size=size, height=canvas, width=canvas)
        self._max_shift = MAX_SHIFT[placement] if max_shift is None else max_shift
        self._placement = placement

    def _shifts(self, indices: Tensor, bases: Tensor) -> Tensor:
        places = (2 * self._max_shift + 1) ** 2
        both = below(places**2, self._seed, Purpose.PAIR_SHIFT, indices)  # [n]
        first, second = both // places, both % places
        if self._placement == "official":
            first = below(places, self._seed, Purpose.BASE_SHIFT, bases[:, 0])
        dy, dx = box(self._max_shift, torch.stack([first, second], dim=1))  # [n, 2] each
        return torch.stack([dy, dx], dim=2)


def training_stream(
    digits: DigitSet,
    *,
    seed: int,
    batch: int,
    pairs: int,
    max_shift: int | None = None,
    placement: Placement = "paper",
) -> PairStream:
    """Batches of pairs; an epoch is `pairs` examples."""
    return PairSet(digits, seed=seed, size=pairs, max_shift=max_shift, placement=placement).stream(batch=batch)


def overlap(pairs: Pairs, side: int = 28) -> Tensor:
    """How much of a digit's box the other's covers: [n] float64 in [0, 1].

    side: 28 for the whole images, 20 for the boxes that hold the ink (the "bounding boxes" of the paper's section 6).
    """
    apart = (pairs.shifts[:, 0] - pairs.shifts[:, 1]).abs()  # [n, 2]
    return (side - apart).clamp(min=0).to(torch.float64).prod(dim=1) / side**2
