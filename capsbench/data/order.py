"""The order of training examples: an endless stream of positions, every example exactly once an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from capsbench.data.counter import Purpose, permutation

# 60,000 digits are ordered as one. The 60,000,000 pairs of MultiMNIST are ordered in blocks of this many, which keeps
# the order of an epoch at 2 MiB instead of half a gigabyte.
BLOCK = 1 << 18
AHEAD = 1 << 16


class EpochOrder:
    """Which example stands at a position. Position p lies in epoch p // size, and batches run on across epochs.

    Each epoch has an order of its own, from (seed, epoch). More than `block` examples are ordered in blocks of
    consecutive examples: the blocks in random order (an incomplete last one stays last), each block within itself.
    """

    def __init__(self, size: int, *, seed: int, device: torch.device, block: int = BLOCK) -> None:
        self.size, self._seed, self._device = size, seed, device
        self._block = min(block, size)
        self._orders: dict[tuple[int, int], Tensor] = {}
        self._block_orders: dict[int, list[int]] = {}

    def indices(self, start: int, stop: int) -> Tensor:
        """The examples at positions start..stop-1, int64 [stop - start] in [0, size)."""
        pieces = []
        for epoch, low, high in epochs(start, stop, self.size):
            while low < high:
                slot = low // self._block
                end = min(high, (slot + 1) * self._block, self.size)
                pieces.append(self._slot(epoch, slot)[low - slot * self._block : end - slot * self._block])
                low = end
        return torch.cat(pieces)

    def _slot(self, epoch: int, slot: int) -> Tensor:
        """The examples of one slot of an epoch in their order, made once and kept while its neighbour may be needed."""
        if (epoch, slot) not in self._orders:
            block = self._block_order(epoch)[slot]
            length = min(self._block, self.size - block * self._block)
            order = permutation(length, self._seed, Purpose.ORDER, epoch, block, device=self._device)
            _keep_two(self._orders)
            self._orders[epoch, slot] = order + block * self._block
        return self._orders[epoch, slot]

    def _block_order(self, epoch: int) -> list[int]:
        if epoch not in self._block_orders:
            full = self.size // self._block
            order = permutation(full, self._seed, Purpose.BLOCK_ORDER, epoch, device="cpu").tolist()
            _keep_two(self._block_orders)
            self._block_orders[epoch] = order if full * self._block == self.size else [*order, full]
        return self._block_orders[epoch]


class DrawnAhead:
    """Draws for positions, made for many positions at once: a batch then costs a slice, not a chain of small kernels.

    draw: gives for positions start..stop-1 a tuple of tensors whose first dimension is the position. size: examples an
    epoch; no more than a few epochs are drawn ahead. batch: positions taken at a time. ahead: positions drawn at once.
    """

    def __init__(
        self, draw: Callable[[int, int], tuple[Tensor, ...]], *, size: int, batch: int, ahead: int = AHEAD
    ) -> None:
        self._draw, self._ahead = draw, max(batch, min(4 * size, ahead))
        self._straddles = self._ahead % batch > 0  # a batch may need the end of one drawing and the start of the next
        self._drawn: dict[int, tuple[Tensor, ...]] = {}

    def take(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """What `draw(start, stop)` gives."""
        pieces = []
        for number, low, high in epochs(start, stop, self._ahead):
            if number not in self._drawn:
                if self._straddles:
                    _keep_two(self._drawn)
                else:
                    self._drawn.clear()
                self._drawn[number] = self._draw(number * self._ahead, (number + 1) * self._ahead)
            pieces.append(tuple(tensor[low:high] for tensor in self._drawn[number]))
        return pieces[0] if len(pieces) == 1 else tuple(torch.cat(column) for column in zip(*pieces, strict=True))


def made_ahead(batch: int, device: torch.device) -> int:
    """Examples whose pictures are made at once: on a GPU those of sixteen batches, since there a chain of small kernels
    costs as much for one; on a CPU those of one, which its cache holds.
    """
    return 16 * batch if device.type == "cuda" else batch


def epochs(start: int, stop: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Cut positions start..stop-1 at multiples of `size`: (epoch, first, end), the latter two counted in the epoch."""
    while start < stop:
        epoch, first = divmod(start, size)
        end = min(size, first + stop - start)
        yield epoch, first, end
        start += end - first


def _keep_two(cache: dict[Any, Any]) -> None:
    """Make room in a cache of at most two entries: what a batch that straddles a border needs again next time."""
    while len(cache) > 1:
        del cache[next(iter(cache))]
