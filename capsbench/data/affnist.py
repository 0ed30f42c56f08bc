"""affNIST: training on digits placed on 40 x 40, testing on affine transforms (the paper's section 5.2).

`SyntheticAffnist` stands in where the official files are missing. It is not the paper's test set, and its name,
`affnist-synth`, says so wherever it is used.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from capsbench.data import affine
from capsbench.data.batch import DigitSet
from capsbench.data.counter import Purpose, below
from capsbench.data.placed import PlacedStream, box, place

CANVAS = 40
MAX_SHIFT = 6  # (40 - 28) / 2: the 13 x 13 places that keep the whole 28 x 28 image on the canvas

# One factor at a time, to beyond the test set's range on both sides. Scale is that of both axes; translation moves by
# as many whole pixels down and right. Training has seen translations of -6..6 and nothing of the other three.
FACTORS: dict[str, tuple[float, ...]] = {
    "rotation": (-40, -30, -20, -10, 0, 10, 20, 30, 40),
    "shear": (-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4),
    "scale": (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4),
    "translation": (-8, -6, -4, -2, 0, 2, 4, 6, 8),
}


class ImageSet(Protocol):
    """Test images that are made, or read, a batch at a time."""

    name: str
    labels: Tensor  # [N] int64
    source: Tensor  # [N] int64: which digit of the DigitSet each image came from

    def __len__(self) -> int:
        """The number of images N."""
        ...

    def images(self, start: int, stop: int) -> Tensor:
        """Images start..stop-1: [n, 1, H, W] float32 in [0, 1], on the digits' device."""
        ...


def training_stream(digits: DigitSet, *, seed: int, batch: int) -> PlacedStream:
    """Batches of digits at a random one of all 169 places on 40 x 40 black pixels, nothing else (section 5.2)."""
    return PlacedStream(digits, seed=seed, batch=batch, max_shift=MAX_SHIFT, canvas=CANVAS)


class SyntheticAffnist:
    """`per_digit` seeded affine transforms of each test digit; image i * per_digit + k is transform k of digit i.

    parameters: float64 [N per_digit] arrays by name (see capsbench.data.affine for their meaning and ranges), the same
    for a digit whatever other digits are there. digest: SHA-256 of the parameters; pixels may differ by one grey level
    between devices, the parameters do not. Raises DataError when a digit fits on the canvas under no transform.
    """

    name = "affnist-synth"

    def __init__(self, digits: DigitSet, *, per_digit: int = 32, seed: int, canvas: int = CANVAS) -> None:
        self.parameters = affine.draw(digits.images, per_digit=per_digit, seed=seed, canvas=canvas)
        self.source = torch.arange(len(digits.labels), device=digits.labels.device).repeat_interleave(per_digit)
        self.labels = digits.labels[self.source]
        self._digits, self._canvas = digits, canvas
        self._back = affine.backward(self.parameters, canvas).to(digits.images.device)  # [N per_digit, 2, 3]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """SHA-256 of the parameters' names and values."""
        hashed = hashlib.sha256()
        for name, values in self.parameters.items():
            hashed.update(name.encode() + b"\0" + values.astype("<f8").tobytes())
        return hashed.hexdigest()

    def images(self, start: int, stop: int) -> Tensor:
        """Images start..stop-1, made now: [n, 1, 40, 40] float32 in [0, 1]."""
        digits = self._digits.images.index_select(0, self.source[start:stop])
        return affine.render(digits, self._back[start:stop], self._canvas)


class PlacedSet:
    """Held-out digits, each once at a random one of the 169 places: what `matched` compares models at.

    Digit i stands where (seed, i) puts it, the same whenever it is looked at.
    """

    name = "placed"

    def __init__(self, digits: DigitSet, *, seed: int) -> None:
        self.labels = digits.labels
        self.source = torch.arange(len(digits.labels), device=digits.labels.device)
        places = below((2 * MAX_SHIFT + 1) ** 2, seed, Purpose.HELD_OUT_PLACE, self.source)
        self._digits, self._shifts = digits, torch.stack(box(MAX_SHIFT, places))  # [2, N]

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, start: int, stop: int) -> Tensor:
        """Images start..stop-1: [n, 1, 40, 40] float32 in [0, 1]."""
        dy, dx = self._shifts[:, start:stop]
        return place(self._digits.images[start:stop], dy, dx, CANVAS, CANVAS)


def placed_set(digits: DigitSet, seed: int) -> PlacedSet:
    """The held-out digits at seeded places."""
    return PlacedSet(digits, seed=seed)


def one_factor(digits: DigitSet, factor: str, value: float) -> Tensor:
    """The digits under one factor of FACTORS, otherwise centred and unchanged: [N, 1, 40, 40] float32 in [0, 1]."""
    count = len(digits.labels)
    if factor == "translation":
        offset = torch.full((count,), int(value), device=digits.images.device)
        return place(digits.images, offset, offset, CANVAS, CANVAS)
    names = {"rotation": ("rotation",), "shear": ("shear",), "scale": ("scale_y", "scale_x")}[factor]
    values = {"rotation": 0.0, "shear": 0.0, "scale_y": 1.0, "scale_x": 1.0, "translation_y": 0.0, "translation_x": 0.0}
    values |= dict.fromkeys(names, value)
    back = affine.backward({name: np.full(1, number) for name, number in values.items()}, CANVAS)
    return affine.render(digits.images, back.to(digits.images.device).expand(count, 2, 3), CANVAS)
