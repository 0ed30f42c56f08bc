"""Small files in MNIST's format, written by the tests themselves."""

from __future__ import annotations

import gzip
import hashlib
import struct

import numpy as np


def idx(array: np.ndarray) -> bytes:
    """The idx file of a uint8 array."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def small_set() -> dict[str, bytes]:
    """Four small .gz files: 40 training and 20 test images of noise, each class equally often."""
    noise = np.random.default_rng(0)
    files = {}
    for split, count in (("train", 40), ("t10k", 20)):
        images = noise.integers(0, 256, (count, 28, 28))
        files[f"{split}-images-idx3-ubyte.gz"] = gzip.compress(idx(images), mtime=0)
        files[f"{split}-labels-idx1-ubyte.gz"] = gzip.compress(idx(np.arange(count) % 10), mtime=0)
    return files


def resources_of(files: dict[str, bytes]) -> list[tuple[str, str]]:
    """torchvision's list of files and checksums, as it would be if `files` were the official ones."""
    return [(name, hashlib.md5(content).hexdigest()) for name, content in files.items()]
