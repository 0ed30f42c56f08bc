"""scikit-learn's handwritten digits in MNIST's clothes: what a plan goes on with when MNIST cannot be had.

1,797 images of 8x8 with values 0..16, the test part of UCI's "Optical Recognition of Handwritten Digits". Easier than
MNIST and far fewer: they show that an experiment runs and learns, and nothing about the paper.
"""

from __future__ import annotations

import hashlib
import importlib.util
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capsbench.data.idx import SIDE
from capsbench.errors import DataError

INK = 20  # MNIST fits its ink into 20x20 within 28x28: the border that shifts and placements rely on
TEST_PER_CLASS = 50
UCI_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"  # pixels as uint8, then labels as uint8
UCI_RECIPE = "bilinear 8x8 to 20x20 in 28x28; the last 50 of each class are the test set"  # part of the data's digest


def load_uci() -> tuple[tuple[NDArray[np.uint8], NDArray[np.int64]], tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """(images, labels) of the 1,297 training digits, then of the 500 test digits: [N, 28, 28] uint8 and [N] int64.

    Each digit is enlarged bilinearly to 20x20 and set into the middle of 28x28. The test set is the last fifty of
    each class in scikit-learn's order, so both splits are the same everywhere. Raises DataError if scikit-learn ships
    other digits than those known.
    """
    pixels, labels = read_uci()
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[-TEST_PER_CLASS:]] = True
    images = enlarge(pixels)
    return (images[~test], labels[~test]), (images[test], labels[test])


def read_uci() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The digits as they are: pixels [1797, 8, 8] uint8 in 0..16, labels [1797] int64. Raises DataError if altered."""
    # The file is read by itself: scikit-learn's import takes longer than a small run's training.
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("scikit-learn, which ships these digits, is not there; run `make .venv/.ready`.")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        table = np.loadtxt(path, np.uint8, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); install scikit-learn anew.") from None
    pixels, labels = table[:, :-1], table[:, -1].astype(np.int64)
    found = hashlib.sha256(pixels.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()
    if found != UCI_SHA256:
        raise DataError(
            f"The digits that scikit-learn ships are altered: SHA-256 {found}, not {UCI_SHA256}; install scikit-learn "
            f"anew, or name a folder with MNIST with CAPSBENCH_DATA."
        )
    return pixels.reshape(-1, 8, 8), labels


def enlarge(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[N, 8, 8] with values 0..16 to [N, 28, 28] with values 0..255: bilinear to 20x20 (pixel centres), black border.

    In whole numbers, so that every machine gets the same bytes: at 8/20 source pixels a pixel, all weights are tenths.
    """
    tenths = np.zeros((INK, 8), np.int64)  # [20, 8] each row's weights, in tenths
    for row in range(INK):
        position = min(max(4 * row - 3, 0), 70)  # 10 x ((row + 1/2) x 8/20 - 1/2), kept inside the picture
        low, part = divmod(position, 10)
        tenths[row, low] += 10 - part
        tenths[row, min(low + 1, 7)] += part
    hundredths = tenths @ pixels.astype(np.int64) @ tenths.T  # [N, 20, 20] in 0..1600
    border = (SIDE - INK) // 2
    images = np.zeros((len(pixels), SIDE, SIDE), np.uint8)
    images[:, border : border + INK, border : border + INK] = (255 * hundredths + 800) // 1600  # rounded to nearest
    return images
