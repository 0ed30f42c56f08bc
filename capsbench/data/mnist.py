"""MNIST as the paper trains and tests it (section 5): 28 x 28, shifts of up to 2 pixels, training only."""

from __future__ import annotations

from torch import Tensor

from capsbench.data.batch import DigitSet
from capsbench.data.placed import PlacedStream, unit

SIDE = 28


def training_stream(digits: DigitSet, *, seed: int, batch: int, max_shift: int = 2) -> PlacedStream:
    """Batches of single digits, each shifted by up to `max_shift` pixels each way with zero fill (section 5)."""
    return PlacedStream(digits, seed=seed, batch=batch, max_shift=max_shift, canvas=SIDE)


def test_images(digits: DigitSet, start: int, stop: int) -> Tensor:
    """Digits start..stop-1 as they are, never shifted: [n, 1, 28, 28] float32 in [0, 1]."""
    return unit(digits.images[start:stop])[:, None]
