"""Digits placed on a canvas: integer shifts with zero fill, one shift an image, made on the images' device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from capsbench.data.batch import Batch, DigitSet
from capsbench.data.counter import Purpose, below
from capsbench.data.order import DrawnAhead, EpochOrder, made_ahead
from capsbench.errors import DataError

SCALE = 1 / 255


def unit(pixels: Tensor) -> Tensor:
    """Pixels 0..255 as float32 in [0, 1]. A product, not a quotient: CUDA turns the quotient into one, CPUs do not."""
    return pixels.to(torch.float32) * SCALE


def place(images: Tensor, dy: Tensor, dx: Tensor, height: int, width: int) -> Tensor:
    """Put each image on a black canvas, moved `dy` down and `dx` right of the centre; what leaves the canvas is cut.

    images: [B, h, w] uint8; dy, dx: [B] int64. Returns [B, 1, height, width] float32 in [0, 1].
    """
    return unit(place_pixels(images, dy, dx, height, width))[:, None]


def place_pixels(images: Tensor, dy: Tensor, dx: Tensor, height: int, width: int) -> Tensor:
    """As `place`, but the pixels stay uint8: [B, height, width]."""
    count, h, w = images.shape
    y = torch.arange(height, device=images.device) - (height - h) // 2 - dy[:, None]  # [B, H] row in the image
    x = torch.arange(width, device=images.device) - (width - w) // 2 - dx[:, None]  # [B, W] column in the image
    y = torch.where((y >= 0) & (y < h), y, h)  # every place outside is the black row below the image
    x = torch.where((x >= 0) & (x < w), x, w)
    # Rows first, then columns: three times faster on a CPU than one gather with three index tensors.
    rows = F.pad(images, (0, 1, 0, 1)).view(count * (h + 1), w + 1)
    y = y + (h + 1) * torch.arange(count, device=images.device)[:, None]
    rows = rows.index_select(0, y.view(-1)).view(count, height, w + 1)
    return rows.gather(2, x[:, None, :].expand(count, height, width))


def box(max_shift: int, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Both shifts, each in -max_shift..max_shift, from one draw below (2 max_shift + 1)^2."""
    side = 2 * max_shift + 1
    return draw // side - max_shift, draw % side - max_shift


class PlacedStream:
    """Training batches of single digits, each placed on the canvas with a shift of its own.

    The shift is drawn from (seed, epoch, index of the digit): all (2 max_shift + 1)^2 shifts are equally likely.
    Raises DataError when there are no digits.
    """

    def __init__(self, digits: DigitSet, *, seed: int, batch: int, max_shift: int, canvas: int) -> None:
        if len(digits.labels) == 0:
            raise DataError("There are no digits to train on: the training set is empty; check how it was cut.")
        self.size, self.height, self.width = len(digits.labels), canvas, canvas
        self._digits, self._seed, self._batch, self._max_shift = digits, seed, batch, max_shift
        self._order = EpochOrder(self.size, seed=seed, device=digits.images.device)
        self._drawn = DrawnAhead(self._draw, size=self.size, batch=batch)
        ahead = made_ahead(batch, digits.images.device)
        self._made = DrawnAhead(self._make, size=self.size, batch=batch, ahead=ahead)

    def batch(self, step: int) -> Batch:
        """The batch of `step`: images and digits [B, 1, H, W], labels [B, 1]."""
        images, labels = self._made.take(step * self._batch, (step + 1) * self._batch)
        return Batch(images, labels, images)

    def _make(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        index, dy, dx = self._drawn.take(start, stop)  # [n] each
        images = place(self._digits.images.index_select(0, index), dy, dx, self.height, self.width)  # [n, 1, H, W]
        return images, self._digits.labels.index_select(0, index)[:, None]

    def _draw(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        index = self._order.indices(start, stop)
        epoch = torch.arange(start, stop, device=index.device) // self.size
        shifts = (2 * self._max_shift + 1) ** 2
        dy, dx = box(self._max_shift, below(shifts, self._seed, Purpose.PLACE, epoch, index))
        return index, dy, dx
