"""The stand-in for MNIST: scikit-learn's digits in MNIST's shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from capsbench.data import uci
from capsbench.data.source import find_source, source_digest, verify
from capsbench.errors import DataError


@pytest.fixture(scope="module")
def splits():
    return uci.load_uci()


def test_splits_are_stratified_whole_and_disjoint(splits):
    (train, train_labels), (test, test_labels) = splits
    assert train.shape == (1297, 28, 28)
    assert test.shape == (500, 28, 28)
    assert train.dtype == test.dtype == np.uint8
    assert train_labels.dtype == test_labels.dtype == np.int64
    assert np.bincount(test_labels).tolist() == [50] * 10
    assert np.bincount(train_labels).tolist() == [128, 132, 127, 133, 131, 132, 131, 129, 124, 130]
    known = {image.tobytes() for image in train}
    assert sum(image.tobytes() in known for image in test) == 0


def test_the_test_set_is_the_last_fifty_of_each_class(splits):
    pixels, labels = uci.read_uci()
    sevens = np.flatnonzero(labels == 7)
    (_, _), (test, test_labels) = splits
    assert np.array_equal(test[test_labels == 7], uci.enlarge(pixels[sevens[-50:]]))


def test_enlarging_is_the_bilinear_that_torch_knows():
    pixels, _ = uci.read_uci()
    source = torch.from_numpy(pixels)[:, None].double() * 255 / 16
    expected = torch.nn.functional.interpolate(source, (20, 20), mode="bilinear", align_corners=False)[:, 0]
    images = torch.from_numpy(uci.enlarge(pixels)).double()
    assert (images[:, 4:24, 4:24] - expected).abs().max() <= 0.5 + 1e-9  # the rounding to whole numbers, no more
    assert images.sum() == images[:, 4:24, 4:24].sum()  # a black border
    assert images.max() == 255


def test_the_digits_can_be_told_apart(splits):
    (train, train_labels), (test, test_labels) = splits
    distances = torch.cdist(*(torch.from_numpy(part).flatten(1).float() for part in (test, train)))  # [500, 1297]
    right = train_labels[distances.argmin(1).numpy()] == test_labels
    assert right.mean() > 0.93  # the nearest neighbour: images and labels belong together in both splits


def test_other_digits_are_refused(monkeypatch):
    from sklearn import datasets

    bunch = datasets.load_digits()
    bunch.target[3] = 8
    monkeypatch.setattr(datasets, "load_digits", lambda: bunch)  # stands in for an altered scikit-learn
    for read in (uci.load_uci, lambda: verify(find_source("uci-digits"))):
        with pytest.raises(DataError, match="scikit-learn ships are altered"):
            read()


def test_they_are_found_by_their_own_name_and_have_a_digest(monkeypatch):
    monkeypatch.setenv("CAPSBENCH_DATA", "/nowhere")  # no folder is asked for them
    source = find_source("uci-digits")
    assert (source.badge, source.origin, source.notice) == ("UCI digits, not MNIST", "scikit-learn", None)
    assert verify(source) == {"uci-digits": uci.UCI_SHA256}
    digest = source_digest(source)
    monkeypatch.setattr(uci, "UCI_RECIPE", "another way of making 28x28 of them")
    assert source_digest(source) != digest
