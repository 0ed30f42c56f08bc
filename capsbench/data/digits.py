"""A data set as tensors on one device, and the subsets that experiments take of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from capsbench.data import raw
from capsbench.data.batch import DigitSet
from capsbench.data.idx import read_split
from capsbench.data.source import DataSource
from capsbench.errors import DataError


class Digits(NamedTuple):
    """Both splits of a data set."""

    train: DigitSet
    test: DigitSet


def load_digits(source: DataSource, device: torch.device | str = "cpu") -> Digits:
    """Read `source`, every file checked, onto `device`: images [N, 28, 28] uint8, labels [N] int64.

    Raises DataError if a file is missing, truncated, altered or malformed.
    """
    if source.folder is None:
        from capsbench.data.uci import load_uci

        splits = load_uci()
    else:
        splits = (_read(source.dataset, source.folder, "train"), _read(source.dataset, source.folder, "t10k"))
    train, test = (
        DigitSet(torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)) for images, labels in splits
    )
    return Digits(train, test)


def held_out(train: DigitSet, n: int = 10_000) -> tuple[DigitSet, DigitSet]:
    """(the rest, the first `n`): the digits that choices are made on, since test data decide nothing.

    Raises DataError unless both parts get at least one digit.
    """
    if not 0 < n < len(train.labels):
        raise DataError(f"{n:,} digits cannot be held out of {len(train.labels):,}; hold out fewer, and at least 1.")
    return DigitSet(train.images[n:], train.labels[n:]), first(train, n)


def first(digits: DigitSet, n: int) -> DigitSet:
    """The first `n` digits. Raises DataError if there are not so many."""
    if not 0 < n <= len(digits.labels):
        raise DataError(f"{n:,} digits were asked for, but there are {len(digits.labels):,}; ask for 1 to that many.")
    return DigitSet(digits.images[:n], digits.labels[:n])


def per_class(digits: DigitSet, k: int, seed: int) -> DigitSet:
    """`k` digits of each of the ten classes, drawn by `seed`, in the order they had.

    The same on every device, and nested: with one seed, the digits taken for a smaller `k` are among those of a larger.
    Raises DataError if a class has fewer than `k`.
    """
    if k < 1:
        raise DataError(f"{k} digits a class were asked for; ask for at least 1.")
    labels = digits.labels.cpu()
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for digit in range(10):
        places = (labels == digit).nonzero().flatten()  # [n of this class]
        if len(places) < k:
            raise DataError(
                f"{k:,} digits a class were asked for, but class {digit} has {len(places):,}; ask for fewer."
            )
        chosen.append(places[torch.randperm(len(places), generator=generator)[:k]])
    index = torch.cat(chosen).sort().values.to(digits.labels.device)  # [10 k]
    return DigitSet(digits.images[index], digits.labels[index])


def _read(dataset: str, folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels = f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"
    return read_split(
        raw.read_checked(dataset, folder, images),
        raw.read_checked(dataset, folder, labels),
        str(folder / images),
        str(folder / labels),
    )
