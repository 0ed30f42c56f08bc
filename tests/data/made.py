"""Digits that the tests make themselves, and the official affNIST layout."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import scipy.io
import torch

from capsbench.data.affnist import SyntheticAffnist
from capsbench.data.batch import Batch, DigitSet, Stream
from capsbench.data.uci import load_uci


def noise_digits(count: int, classes: int = 10, seed: int = 0) -> DigitSet:
    """Noise in the middle 20 x 20 pixels; labels 0, 1, 2, ... in turn."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, 28, 28, dtype=torch.uint8)
    images[:, 4:24, 4:24] = torch.randint(1, 256, (count, 20, 20), dtype=torch.uint8, generator=generator)
    return DigitSet(images, torch.arange(count) % classes)


def dot_digits(count: int) -> DigitSet:
    """One white pixel each, at (14, 14): where it lands tells the shift."""
    images = torch.zeros(count, 28, 28, dtype=torch.uint8)
    images[:, 14, 14] = 255
    return DigitSet(images, torch.arange(count) % 10)


@functools.cache
def uci_digits(count: int = 40) -> DigitSet:
    """Digits that look like digits."""
    images, labels = load_uci()[1]
    step = len(images) // count
    return DigitSet(
        torch.from_numpy(images[::step][:count].copy()), torch.from_numpy(labels[::step][:count].astype(np.int64))
    )


@functools.cache
def transformed(count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """32 transforms of each of `uci_digits(count)`: pixels [N, 40, 40] uint8, labels [N], originals [N] from 0."""
    made = SyntheticAffnist(uci_digits(count), seed=1)
    pixels = (made.images(0, len(made))[:, 0] * 255).round().to(torch.uint8)
    return pixels.numpy(), made.labels.numpy(), made.source.numpy()


def official_fields(pixels: np.ndarray, labels: np.ndarray, originals: np.ndarray) -> dict[str, np.ndarray]:
    """The struct affNISTdata with the official files' fields in their order; an image a column, row by row."""
    count = len(labels)
    return {
        "afn": np.zeros((9, count)),
        "afn_inv": np.zeros((9, count)),
        "image": pixels.reshape(count, 1600).T,
        "id": np.arange(1.0, count + 1)[None],
        "label_one_of_n": np.eye(10, dtype=np.uint8)[:, labels],
        "label_int": labels[None].astype(np.uint8),
        "human_readable_transform": np.zeros((6, count)),
        "original_index": originals[None] + 1.0,
    }


def mat_bytes(fields: dict[str, np.ndarray], *, compressed: bool = True, name: str = "affNISTdata") -> bytes:
    """The .mat file of one struct."""
    stream = io.BytesIO()
    scipy.io.savemat(stream, {name: fields}, do_compression=compressed)
    return stream.getvalue()


@functools.cache
def official_mat(count: int = 40, compressed: bool = True) -> bytes:
    """A whole official test.mat for `uci_digits(count)`."""
    return mat_bytes(official_fields(*transformed(count)), compressed=compressed)


def assert_made_ahead_is_alike(
    module: ModuleType, stream: Callable[[], Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That sixteen batches made at once, as on a GPU, are those made one at a time; also when a stream goes back."""

    def batches() -> list[Batch]:
        made = stream()
        return [made.batch(step) for step in (*range(40), 3)]

    alone = batches()
    monkeypatch.setattr(module, "made_ahead", lambda batch, _: 16 * batch)
    for one, ahead in zip(alone, batches(), strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, ahead, strict=True))
