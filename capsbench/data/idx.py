"""The idx format of MNIST's files: two zero bytes, the type, the number of dimensions, the dimensions, the values."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from capsbench.errors import DataError

UINT8 = 0x08  # the only type that MNIST's files have
SIDE = 28


def read_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """The array in the bytes of an idx file: [N] labels or [N, H, W] images, uint8, writable.

    `name` is the file's name for the error. Raises DataError if the bytes are anything but one whole idx file of
    uint8 with one or three dimensions and at least one value.
    """
    if len(data) < 4 or data[:2] != b"\0\0":
        raise DataError(f"{name} is not an idx file: it begins with {data[:4].hex() or 'nothing'}; get the file anew.")
    kind, dimensions = data[2], data[3]
    if kind != UINT8 or dimensions not in (1, 3):
        raise DataError(
            f"{name} is an idx file of type 0x{kind:02x} with {dimensions} dimensions, not of bytes (0x08) with "
            f"1 (labels) or 3 (images); get the file anew."
        )
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise DataError(f"{name} ends within its header, after {len(data)} bytes of {start}; get the file anew.")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    expected = start + math.prod(shape)
    if expected == start:
        raise DataError(f"{name} holds no values: its header says {_times(shape)}; get the file anew.")
    if len(data) != expected:
        raise DataError(
            f"{name} has {len(data):,} bytes, but its header says {_times(shape)}, which are {expected:,}; "
            f"get the file anew."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()


def read_split(
    images: bytes, labels: bytes, images_name: str, labels_name: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, 28, 28] uint8 and labels [N] int64 of one split, from the bytes of its two idx files.

    Raises DataError if either file is malformed, the images are not 28x28, a label is above 9, or the counts differ.
    """
    pixels = read_idx(images, images_name)
    if pixels.ndim != 3 or pixels.shape[1:] != (SIDE, SIDE):
        raise DataError(f"{images_name} holds {_times(pixels.shape)} values, not images of 28 x 28; get the file anew.")
    classes = read_idx(labels, labels_name)
    if classes.ndim != 1:
        raise DataError(
            f"{labels_name} holds {_times(classes.shape)} values, not one label an image; get the file anew."
        )
    if classes.max() > 9:
        where = int(classes.argmax())
        raise DataError(f"{labels_name} has the label {classes[where]} at place {where}, beyond 9; get the file anew.")
    if len(pixels) != len(classes):
        raise DataError(
            f"{images_name} holds {len(pixels):,} images, but {labels_name} {len(classes):,} labels; get both anew."
        )
    return pixels, classes.astype(np.int64)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape)
