"""Pairs of digits of different classes: which two, where, and their picture. Shared by MultiMNIST and two_digit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from capsbench.data.batch import Batch, DigitSet
from capsbench.data.counter import Purpose, below, permutation
from capsbench.data.order import DrawnAhead, EpochOrder, made_ahead
from capsbench.data.placed import place_pixels, unit
from capsbench.errors import DataError


class Pairs(NamedTuple):
    """Pairs of digits and where they came from."""

    images: Tensor  # [n, 1, H, W] float32 in [0, 1]: the sum of both digits, clipped at 255
    digits: Tensor  # [n, 2, H, W] float32 in [0, 1]: each digit alone, where it stands in the image
    labels: Tensor  # [n, 2] int64, always two different classes
    bases: Tensor  # [n, 2] int64: which digits of the DigitSet
    shifts: Tensor  # [n, 2, 2] int64: (down, right) from the centre of the canvas, in pixels


class PairMaker(ABC):
    """`size` pairs on a canvas; pair i is made from (seed, i) alone, so none is stored and any can be made again.

    Both digits come from the DigitSet given: pairs of training digits and pairs of test digits share none.
    Raises DataError when the digits do not suffice (see Partners).
    """

    def __init__(self, digits: DigitSet, *, seed: int, size: int, height: int, width: int) -> None:
        self.size, self.height, self.width = size, height, width
        self._digits, self._seed = digits, seed
        self._partners = Partners(digits.labels, seed=seed, size=size)

    def make(self, indices: Tensor) -> Pairs:
        """The pairs `indices`, [n] int64 in [0, size), on the digits' device."""
        return self.compose(*self.draw(indices))

    def draw(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Which digits [n, 2] and where [n, 2, 2]: the fields `bases` and `shifts` of Pairs, without the pictures."""
        bases = self._partners.bases(indices)
        return bases, self._shifts(indices, bases)

    def compose(self, bases: Tensor, shifts: Tensor) -> Pairs:
        """The pictures: both digits placed, added, clipped at 255 (the paper's section 6)."""
        n = len(bases)
        images = self._digits.images.index_select(0, bases.view(-1))  # [2n, 28, 28] uint8
        dy, dx = shifts.view(-1, 2).unbind(1)  # [2n] each
        pixels = place_pixels(images, dy, dx, self.height, self.width).view(n, 2, self.height, self.width)
        merged = pixels.sum(1, keepdim=True, dtype=torch.int16).clamp_(max=255)  # [n, 1, H, W]
        return Pairs(unit(merged), unit(pixels), self._digits.labels[bases], bases, shifts)

    def stream(self, *, batch: int) -> PairStream:
        """Training batches of these pairs."""
        return PairStream(self, seed=self._seed, batch=batch, device=self._digits.images.device)

    @abstractmethod
    def _shifts(self, indices: Tensor, bases: Tensor) -> Tensor:
        """Where the digits `bases` [n, 2] of pairs `indices` [n] stand: [n, 2, 2] int64."""


class PairStream:
    """Training batches of pairs: every pair once an epoch, in an order from (seed, epoch)."""

    def __init__(self, pairs: PairMaker, *, seed: int, batch: int, device: torch.device) -> None:
        self.size, self.height, self.width = pairs.size, pairs.height, pairs.width
        self._pairs, self._batch = pairs, batch
        self._order = EpochOrder(pairs.size, seed=seed, device=device)
        self._drawn = DrawnAhead(self._draw, size=self.size, batch=batch)
        self._made = DrawnAhead(self._make, size=self.size, batch=batch, ahead=made_ahead(batch, device))

    def batch(self, step: int) -> Batch:
        """The batch of `step`: images [B, 1, H, W], labels [B, 2], digits [B, 2, H, W]."""
        return Batch(*self._made.take(step * self._batch, (step + 1) * self._batch))

    def _make(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        pairs = self._pairs.compose(*self._drawn.take(start, stop))
        return pairs.images, pairs.labels, pairs.digits

    def _draw(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self._pairs.draw(self._order.indices(start, stop))


class Partners:
    """The two digits of pair i, from (seed, i) and the labels alone.

    In each round of N pairs every one of the N digits is the first digit once, in a seeded order. As in the authors'
    code a digit meets no partner twice: over the digits sorted by class, its own class left out, digit b starts
    anywhere and steps on by a stride that shares no divisor with their number. So no pair is ever drawn and rejected.

    Raises DataError with fewer than two classes, and when `size` asks more pairs of a digit than it has partners.
    """

    def __init__(self, labels: Tensor, *, seed: int, size: int) -> None:
        counts = torch.bincount(labels, minlength=10)  # [10]
        _check(counts.tolist(), size)
        self._labels, self._seed = labels, seed
        self._first = permutation(len(labels), seed, Purpose.FIRST_DIGIT, device=labels.device)  # [N]
        self._by_class = torch.sort(labels, stable=True).indices  # [N]
        self._class_start, self._class_count = counts.cumsum(0) - counts, counts
        self._others = len(labels) - counts  # [10] digits of other classes
        strides = [_coprime(number) for number in self._others.tolist()]
        lengths = torch.tensor([len(stride) for stride in strides], device=labels.device)
        self._strides, self._stride_count = torch.cat(strides).to(labels.device), lengths
        self._stride_start = lengths.cumsum(0) - lengths

    def bases(self, indices: Tensor) -> Tensor:
        """The digits of pairs `indices`: [n, 2] int64, of different classes."""
        turn = indices // len(self._labels)  # [n] how many partners the first digit has met before
        first = self._first[indices % len(self._labels)]  # [n]
        own = self._labels[first]  # [n]
        others = self._others[own]
        start = below(others, self._seed, Purpose.PARTNER_START, first)
        stride = below(self._stride_count[own], self._seed, Purpose.PARTNER_STRIDE, first)
        stride = self._strides[self._stride_start[own] + stride]
        rank = (start + turn * stride) % others
        rank = rank + self._class_count[own] * (rank >= self._class_start[own])  # step over its own class
        return torch.stack([first, self._by_class[rank]], dim=1)


def _check(counts: list[int], size: int) -> None:
    digits = sum(counts)
    classes = sum(count > 0 for count in counts)
    if classes < 2:
        raise DataError(
            f"Pairs need digits of at least two classes, but these {digits} digits hold {classes}: use more digits."
        )
    largest = max(range(len(counts)), key=counts.__getitem__)
    pairs, partners = math.ceil(size / digits), digits - counts[largest]
    if pairs > partners:
        raise DataError(
            f"{size} pairs of {digits} digits are {pairs} pairs a digit, but a digit of class {largest} can have only "
            f"{partners} partners of other classes: ask for fewer pairs or use more digits."
        )


def _coprime(number: int) -> Tensor:
    """The strides that visit all of `number` places before any twice: int64, at least one."""
    strides = torch.arange(1, max(1, number) + 1)
    return strides[torch.gcd(strides, torch.tensor(number)) == 1]
