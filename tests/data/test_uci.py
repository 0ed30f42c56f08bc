"""The stand-in for MNIST: scikit-learn's digits in MNIST's shape."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_they_are_the_digits_that_scikit_learn_would_give():
    from sklearn.datasets import load_digits

    pixels, labels = uci.read_uci()
    bunch = load_digits()
    assert np.array_equal(pixels, bunch.images)
    assert np.array_equal(labels, bunch.target)


def test_nothing_of_scikit_learn_is_imported_for_them():
    command = "import sys\nfrom capsbench.data.uci import load_uci\nload_uci()\nprint('sklearn' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


@pytest.fixture
def altered(tmp_path, monkeypatch):
    """A scikit-learn that is nothing but its file of digits, for a test to alter, before the real one on the path."""
    real = Path(importlib.util.find_spec("sklearn").origin).parent
    path = tmp_path / "sklearn" / "datasets" / "data" / "digits.csv.gz"
    path.parent.mkdir(parents=True)
    (tmp_path / "sklearn" / "__init__.py").touch()
    shutil.copy(real / "datasets" / "data" / "digits.csv.gz", path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)  # else find_spec tells where that one lies
    monkeypatch.syspath_prepend(tmp_path)
    return path


READERS = (uci.load_uci, lambda: verify(find_source("uci-digits")))


@pytest.mark.parametrize("read", READERS)
def test_other_digits_are_refused(altered, read):
    read()
    lines = gzip.decompress(altered.read_bytes()).splitlines(keepends=True)
    altered.write_bytes(gzip.compress(b"".join([*lines[:-1], lines[0]])))
    with pytest.raises(DataError, match="scikit-learn ships are altered"):
        read()


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "text", "words"])
def test_a_file_that_cannot_be_read_is_named(altered, read, damage: str):
    content = altered.read_bytes()
    half = len(content) // 2
    flipped = bytes(255 - byte for byte in content[half : half + 40])
    damaged = {
        "cut": content[:half],
        "flipped": content[:half] + flipped + content[half + 40 :],
        "text": b"no gzip at all",
        "words": gzip.compress(b"one,two\n"),
    }
    altered.unlink()
    if damage in damaged:
        altered.write_bytes(damaged[damage])
    with pytest.raises(DataError, match=r"digits\.csv\.gz cannot be read .* install scikit-learn anew"):
        read()


def test_without_scikit_learn_there_are_no_digits(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # stands in for a machine without it
    with pytest.raises(DataError, match="scikit-learn, which ships these digits, is not there"):
        uci.read_uci()


def test_they_are_found_by_their_own_name_and_have_a_digest(monkeypatch):
    monkeypatch.setenv("CAPSBENCH_DATA", "/nowhere")  # no folder is asked for them
    source = find_source("uci-digits")
    assert (source.badge, source.origin, source.notice) == ("UCI digits, not MNIST", "scikit-learn", None)
    assert verify(source) == {"uci-digits": uci.UCI_SHA256}
    digest = source_digest(source)
    monkeypatch.setattr(uci, "UCI_RECIPE", "another way of making 28x28 of them")
    assert source_digest(source) != digest
