"""What a task's stream gives to training."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class DigitSet(NamedTuple):
    """One split of a data set, on any device."""

    images: Tensor  # [N, 28, 28] uint8, ink bright on black
    labels: Tensor  # [N] int64 in 0..9


class Batch(NamedTuple):
    """One training batch."""

    images: Tensor  # [B, 1, H, W] float32 in [0, 1]
    labels: Tensor  # [B, n] int64, the classes of the n digits in each image
    digits: Tensor  # [B, n, H, W] float32 in [0, 1], each digit alone: what the decoder is to draw


class Stream(Protocol):
    """An endless stream of training batches: `batch(step)` is a pure function of the stream's seed and the step."""

    size: int  # examples an epoch
    height: int
    width: int

    def batch(self, step: int) -> Batch:
        """The batch of `step` (counted from 0), made on the stream's device."""
        ...
