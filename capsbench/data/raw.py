"""The four files of an MNIST-like data set: where they lie, what they must hash to, and reading them checked.

Nothing heavier than the standard library is imported here: `capsbench.data.source` is read while the Snakefile parses.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any

from capsbench.errors import DataError

# Name of the unpacked file and its size in bytes: the idx header (16 or 8 bytes), then one byte a pixel or a label.
# Fashion-MNIST and KMNIST have MNIST's shape, so the sizes bound what a .gz of theirs may unpack to as well.
FILES = {
    "train-images-idx3-ubyte": 16 + 60_000 * 28 * 28,
    "train-labels-idx1-ubyte": 8 + 60_000,
    "t10k-images-idx3-ubyte": 16 + 10_000 * 28 * 28,
    "t10k-labels-idx1-ubyte": 8 + 10_000,
}

# Published SHA-256 of MNIST's unpacked files. The content counts: the same file gzipped anew has other .gz bytes.
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

# What plans and tables call a data set, and the name of torchvision's class and folder for it.
TORCHVISION = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "kmnist": "KMNIST"}
BADGES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "kmnist": "KMNIST"}

REMEDY = "put the original file in its place, or delete its folder if that is the download cache"


def torchvision_class(dataset: str) -> Any:
    """torchvision's class of `dataset`: its mirrors and its checksums. Imports torch."""
    import torchvision.datasets

    return getattr(torchvision.datasets, TORCHVISION[dataset])


def file_at(folder: Path, name: str) -> Path | None:
    """`name` in `folder`, the .gz before the unpacked file; None if neither is there.

    Raises DataError where the folder may not be looked into.
    """
    for path in (folder / f"{name}.gz", folder / name):
        try:
            if path.is_file():
                return path
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
    return None


def read_checked(dataset: str, folder: Path, name: str) -> bytes:
    """The unpacked content of the file `name` in `folder`, after its checksum was found right. Writes nothing.

    MNIST's unpacked content is held against its published SHA-256; the .gz of Fashion-MNIST and KMNIST against the MD5
    that the installed torchvision has for it. Raises DataError if the file is missing, unreadable, truncated, altered,
    or unpacks to more than such a file can hold.
    """
    path = _gz_at(folder, name) if dataset != "mnist" else file_at(folder, name)
    if path is None:
        raise DataError(f"{folder} lacks {name}.gz (or the unpacked {name}); {REMEDY}.")
    try:
        with path.open("rb") as stream:
            if dataset != "mnist":
                expected = dict(torchvision_class(dataset).resources)[f"{name}.gz"]
                _compare(path, "MD5", _md5(stream), expected)
                stream.seek(0)
            content = _unpacked(stream, path, FILES[name])
    except EOFError as error:
        raise DataError(f"{path} is truncated: its gzip stream has no end; {REMEDY}.") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is altered or no gzip file ({error}); {REMEDY}.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); {REMEDY}.") from error
    if dataset == "mnist":
        if len(content) < FILES[name]:
            raise DataError(f"{path} is truncated: {len(content):,} bytes of {FILES[name]:,}; {REMEDY}.")
        _compare(path, "SHA-256", hashlib.sha256(content).hexdigest(), MNIST_SHA256[name])
    return content


def gz_md5(folder: Path, name: str) -> str:
    """The MD5 of the .gz of `name` in `folder` as it lies there, not held against anything. Raises DataError."""
    path = _gz_at(folder, name)
    try:
        with path.open("rb") as stream:
            return _md5(stream)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); {REMEDY}.") from error


def _gz_at(folder: Path, name: str) -> Path:
    path = file_at(folder, name)
    if path is not None and path.suffix == ".gz":
        return path
    found = "is there unpacked only" if path else "is not there"
    raise DataError(
        f"{folder / name}.gz is needed, since torchvision's checksum is of the .gz, but {name} {found}; "
        f"put the original .gz there."
    )


def _md5(stream: BufferedReader) -> str:
    return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _unpacked(stream: BufferedReader, path: Path, most: int) -> bytes:
    """All of the stream, gunzipped in memory if `path` says so, and never more than `most` bytes of it (gzip bombs)."""
    if path.suffix == ".gz":
        with gzip.GzipFile(fileobj=stream) as unzipped:
            content = unzipped.read(most + 1)
    else:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path} holds more than the {most:,} bytes that such a file has; {REMEDY}.")
    return content


def _compare(path: Path, kind: str, found: str, expected: str) -> None:
    if found != expected:
        raise DataError(f"{path} is altered: its {kind} is {found}, not the published {expected}; {REMEDY}.")
