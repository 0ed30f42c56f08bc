"""Random numbers by counter: a draw depends on integers alone, never on a device, a batch size or an earlier draw.

A number is the hash of (seed, purpose, counters). The mixing step is a bijection of 32-bit words: two multiplications
and three xor-shifts, with constants that the hash-prospector search found to have a low avalanche bias. Both constants
are below 2^31, so every product fits int64 and all devices agree bit by bit.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
_FIRST, _SECOND = 0x21F0AAAD, 0x735A2D97
_LANES = (0x243F6A88, 0x13198A2E)  # digits of pi: two keys that start apart

Word = TypeVar("Word", int, Tensor)


class Purpose(enum.IntEnum):
    """What a number is drawn for. One entry a use: two uses of one seed never share numbers."""

    ORDER = 1  # the order of examples within an epoch
    BLOCK_ORDER = 2  # the order of an epoch's blocks
    PLACE = 3  # where a training digit is placed
    HELD_OUT_PLACE = 4  # where a held-out digit is placed
    FIRST_DIGIT = 5  # the order in which digits become the first of a pair
    PARTNER_START = 6  # the first partner of a digit
    PARTNER_STRIDE = 7  # the step from one partner to the next
    PAIR_SHIFT = 8  # where both digits of a pair are placed
    BASE_SHIFT = 9  # where the first digit of all its pairs is placed (the authors' way)
    AFFINE = 10  # the affine transforms of the synthetic affNIST
    ORIENTATION = 11  # which images of the official affNIST decide the way round


def random_u32(seed: int, purpose: Purpose, *counters: int | Tensor) -> Tensor:
    """Uniform integers in [0, 2^32), int64, one for each entry of the counters broadcast together, on their device.

    seed: 0 <= seed < 2^64. counters: integers or int64 tensors of values in [0, 2^32), integers before tensors, and at
    least one tensor; raises ValueError otherwise.
    """
    tensors = [counter for counter in counters if isinstance(counter, Tensor)]
    integers = [counter for counter in counters if isinstance(counter, int)]
    if not tensors or any(isinstance(counter, Tensor) for counter in counters[: len(integers)]):
        raise ValueError("random_u32 takes integers first, then at least one tensor of counters.")
    if not 0 <= seed < 2**64 or not all(0 <= counter <= MASK for counter in integers):
        raise ValueError("random_u32 takes a seed in [0, 2^64) and counters in [0, 2^32).")
    key, second_key = _LANES
    for word in (seed & MASK, seed >> 32, int(purpose), *integers):  # cheap: host integers, not tensors
        key = _mix(key ^ word)
        second_key = _mix((second_key + word) & MASK)
    value: Tensor = torch.full((), key, dtype=torch.int64, device=tensors[0].device)
    for counter in tensors:
        # Two rounds with two keys: with one key alone, two seeds would give the same numbers in another order.
        value = _mix((_mix(value ^ counter) + second_key) & MASK)
    return value


def uniform(seed: int, purpose: Purpose, *counters: int | Tensor) -> Tensor:
    """Uniform float64 in [0, 1), exact multiples of 2^-32: equal on every device that has float64."""
    return random_u32(seed, purpose, *counters).to(torch.float64) * 2.0**-32


def below(limit: int | Tensor, seed: int, purpose: Purpose, *counters: int | Tensor) -> Tensor:
    """Uniform integers in [0, limit), int64, for 1 <= limit < 2^31; each has a share within 2^-32 of 1/limit."""
    return (random_u32(seed, purpose, *counters) * limit) >> 32


def permutation(size: int, seed: int, purpose: Purpose, *counters: int, device: torch.device | str) -> Tensor:
    """A random order of 0..size-1, int64 [size]: the indices sorted by their hashes, equal hashes by index."""
    indices = torch.arange(size, device=device)
    keys = (random_u32(seed, purpose, *counters, indices) << 31) | indices  # unique, so any sort gives the same order
    return torch.sort(keys).values & 0x7FFFFFFF


def _mix(word: Word) -> Word:
    word = word ^ (word >> 16)
    word = (word * _FIRST) & MASK
    word = word ^ (word >> 15)
    word = (word * _SECOND) & MASK
    return word ^ (word >> 15)
