"""Digits as tensors, and the subsets that experiments take."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from small_data import idx, resources_of

from capsbench.data.batch import DigitSet
from capsbench.data.digits import first, held_out, load_digits, per_class
from capsbench.data.source import find_source
from capsbench.errors import DataError


@pytest.fixture
def digits() -> DigitSet:
    """200 digits whose first pixel is their place; class c has 11 + 2 c of them, in mixed order."""
    labels = torch.repeat_interleave(torch.arange(10), 11 + 2 * torch.arange(10))
    labels = labels[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    images = torch.zeros(200, 28, 28, dtype=torch.uint8)
    images[:, 0, 0] = torch.arange(200)
    return DigitSet(images, labels)


def places(part: DigitSet) -> list[int]:
    return part.images[:, 0, 0].tolist()


def test_the_real_mnist(mnist_folder):
    train, test = load_digits(find_source("mnist", mnist_folder))
    assert (train.images.shape, test.images.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert (train.images.dtype, train.labels.dtype) == (torch.uint8, torch.int64)
    # Known of MNIST: how often each class comes, how the labels begin, and the training pixels' mean.
    assert train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert train.images.double().mean().item() / 255 == pytest.approx(0.1307, abs=5e-5)
    rest, held = held_out(train)
    assert (len(rest.labels), len(held.labels)) == (50_000, 10_000)
    assert held.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_fashion_mnist_loads_with_torchvisions_checksums(small_fashion, small_files):
    train, test = load_digits(find_source("fashion-mnist", small_fashion))
    raw = gzip.decompress(small_files["t10k-images-idx3-ubyte.gz"])[16:]
    assert test.images.numpy().tobytes() == raw
    assert train.labels.tolist() == [*range(10)] * 4


def test_a_label_beyond_nine_is_refused_even_if_its_checksum_is_right(small_fashion, small_files, monkeypatch):
    import torchvision

    small_files["t10k-labels-idx1-ubyte.gz"] = gzip.compress(idx(np.full(20, 11)))
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "resources", resources_of(small_files))
    path = small_fashion / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(small_files[path.name])
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte has the label 11"):
        load_digits(find_source("fashion-mnist", small_fashion))


def test_uci_digits_load_by_their_source():
    train, test = load_digits(find_source("uci-digits"))
    assert (train.images.shape, test.images.shape) == ((1297, 28, 28), (500, 28, 28))
    assert (train.images.dtype, test.labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_digits_on_the_gpu_are_the_same(digits):
    there = load_digits(find_source("uci-digits"), "cuda")
    here = load_digits(find_source("uci-digits"))
    assert there.train.images.is_cuda
    assert torch.equal(there.train.images.cpu(), here.train.images)
    chosen = per_class(there.train, 5, seed=3)
    assert chosen.images.is_cuda
    assert torch.equal(chosen.images.cpu(), per_class(here.train, 5, seed=3).images)


def test_held_out_are_the_first(digits):
    rest, held = held_out(digits, 30)
    assert places(held) == [*range(30)]
    assert places(rest) == [*range(30, 200)]
    assert torch.equal(held.labels, digits.labels[:30])
    assert torch.equal(rest.labels, digits.labels[30:])


def test_first(digits):
    assert places(first(digits, 7)) == [*range(7)]
    assert places(first(digits, 200)) == [*range(200)]


@pytest.mark.parametrize("n", [-1, 0, 201])
def test_subsets_that_are_not_there(digits, n):
    with pytest.raises(DataError, match="200"):
        first(digits, n)
    with pytest.raises(DataError, match="200"):
        held_out(digits, n)


def test_holding_out_everything_leaves_nothing_to_train_on(digits):
    with pytest.raises(DataError, match="200 digits cannot be held out of 200"):
        held_out(digits, 200)


def test_per_class_is_balanced_seeded_and_keeps_labels_with_images(digits):
    chosen = per_class(digits, 8, seed=1)
    assert chosen.labels.bincount().tolist() == [8] * 10
    assert torch.equal(chosen.labels, digits.labels[places(chosen)])
    assert places(chosen) == sorted(set(places(chosen)))
    assert places(chosen) == places(per_class(digits, 8, seed=1))
    assert places(chosen) != places(per_class(digits, 8, seed=2))


def test_per_class_is_nested(digits):
    small, large = (set(places(per_class(digits, k, seed=1))) for k in (3, 11))
    assert small < large


def test_per_class_with_too_few(digits):
    assert per_class(digits, 11, seed=0).labels.bincount().tolist() == [11] * 10
    with pytest.raises(DataError, match="12 digits a class were asked for, but class 0 has 11"):
        per_class(digits, 12, seed=0)
    with pytest.raises(DataError, match="at least 1"):
        per_class(digits, 0, seed=0)
    none = digits.labels != 4
    with pytest.raises(DataError, match="class 4 has 0"):
        per_class(DigitSet(digits.images[none], digits.labels[none]), 1, seed=0)
