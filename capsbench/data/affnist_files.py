"""The official affNIST test set from its MATLAB files: one file of 320,000 images, or 32 of 10,000, zipped or not."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsbench.data.affnist import CANVAS
from capsbench.data.batch import DigitSet
from capsbench.data.counter import Purpose, below
from capsbench.data.matlab import LIMIT, Field, read_struct
from capsbench.data.orientation import is_transposed
from capsbench.data.placed import unit
from capsbench.errors import DataError

BATCHES = 32
PER_DIGIT = 32
PIXELS = CANVAS * CANVAS
FIELDS = {2: "image", 4: "label_one_of_n", 5: "label_int"}  # the field at position 7, the original index, goes unnamed
ORIGINAL = 7
LOOKED_AT = 512  # images that decide the orientation
REMEDY = "get the original file again, or take it away to use the synthetic set"


class OfficialAffnist:
    """The official test set: every test digit under 32 affine transforms. An ImageSet, as SyntheticAffnist is.

    All of it is held in main memory as uint8: 512 MB, and for a moment 1.8 GB while the one-file form is read. A batch
    goes to the digits' device when it is asked for.
    """

    name = "affnist"

    def __init__(self, pixels: Tensor, labels: Tensor, source: Tensor, digest: str, device: torch.device) -> None:
        self.labels, self.source, self.digest = labels.to(device), source.to(device), digest
        self._pixels, self._device = pixels, device

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, start: int, stop: int) -> Tensor:
        """Images start..stop-1: [n, 1, 40, 40] float32 in [0, 1]."""
        return unit(self._pixels[start:stop].to(self._device))[:, None].contiguous()


class Part(NamedTuple):
    """What one .mat file holds."""

    pixels: NDArray[np.uint8]  # [N, 1600], each image's pixels in the file's order
    labels: NDArray[np.int64]  # [N] 0..9
    originals: NDArray[np.int64]  # [N] which test digit, from 0


def read_files(path: Path, digits: DigitSet, digest: str) -> OfficialAffnist:
    """Read the official test set; `digits` are all of MNIST's test digits, `digest` is what identifies the files.

    Each image must name one of the digits and carry its label, each digit must come 32 times, and the images must look
    like the digits one way round or the other. Raises DataError when anything is missing, damaged or does not fit.
    """
    count = len(digits.labels)
    pixels = np.empty((count * PER_DIGIT, PIXELS), np.uint8)
    labels = np.empty(count * PER_DIGIT, np.int64)
    originals = np.empty(count * PER_DIGIT, np.int64)
    done = 0
    for where, content in _contents(path):
        part = read_part(content, count, where)
        start, done = done, done + len(part.labels)
        if done <= len(labels):  # more than the whole set is counted, and refused below
            pixels[start:done], labels[start:done], originals[start:done] = part
    if done != len(labels) or (np.bincount(originals, minlength=count) != PER_DIGIT).any():
        raise DataError(
            f"{path} is not the whole affNIST test set: it holds {done:,} images, not each of {count:,} test digits "
            f"{PER_DIGIT} times; {REMEDY}."
        )
    wrong = np.flatnonzero(digits.labels.cpu().numpy()[originals] != labels)
    if len(wrong):
        raise DataError(
            f"{path} does not belong to these test digits: image {wrong[0]} has label {labels[wrong[0]]}, the digit it "
            "was made from has another; use it with MNIST, or take it away to use the synthetic set."
        )
    images = torch.from_numpy(pixels).view(-1, CANVAS, CANVAS)
    # At random: every n-th image would show the same few digits again and again, since batches repeat them in order.
    looked_at = below(len(images), 0, Purpose.ORIENTATION, torch.arange(LOOKED_AT))
    source = torch.from_numpy(originals)
    if is_transposed(images[looked_at], digits.images.cpu()[source[looked_at]], str(path)):
        images = images.transpose(1, 2)
    return OfficialAffnist(images, torch.from_numpy(labels), source, digest, digits.images.device)


def read_part(content: bytes, digits: int, where: str) -> Part:
    """The images, labels and originals of one .mat file, whose originals must lie in 1..`digits`. Raises DataError."""
    fields = list(read_struct(content, "affNISTdata", where).items())
    if len(fields) <= ORIGINAL or any(fields[place][0] != name for place, name in FIELDS.items()):
        raise _broken(where, f"its fields are not affNIST's ({', '.join(name for name, _ in fields)})")
    image, one_of_n, label_int, original = (fields[place][1] for place in (*FIELDS, ORIGINAL))
    if image is None or image.dtype != np.uint8 or image.ndim != 2 or image.shape[0] != PIXELS or not image.size:
        shape = "none" if image is None else f"{image.dtype} {' x '.join(map(str, image.shape))}"
        raise _broken(where, f"its field image is {shape}, not uint8 {PIXELS} x N")
    count = image.shape[1]
    labels = _whole(label_int, count, 0, 9, where, "label_int")
    originals = _whole(original, count, 1, digits, where, f"{fields[ORIGINAL][0]} (original index)") - 1
    expected = np.arange(10)[:, None] == labels  # [10, N]
    if one_of_n is None or one_of_n.shape != (10, count) or (one_of_n != expected).any():
        raise _broken(where, f"its field label_one_of_n is not 10 x {count} or disagrees with label_int")
    return Part(np.ascontiguousarray(image.T), labels, originals)


def _whole(field: Field, count: int, low: int, high: int, where: str, name: str) -> NDArray[np.int64]:
    """A field of `count` whole numbers within low..high, as [count] int64."""
    if field is None or field.shape not in ((1, count), (count, 1)):
        raise _broken(where, f"its field {name} is not a list of {count} numbers")
    values: NDArray[Any] = field.reshape(-1)
    if not (np.isfinite(values) & (values >= low) & (values <= high)).all() or (values != np.floor(values)).any():
        raise _broken(where, f"its field {name} holds something else than whole numbers from {low} to {high}")
    return values.astype(np.int64)


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each .mat file of one form, in order. Nothing is ever unpacked to the disk."""
    try:
        if path.is_dir():
            for number in range(1, BATCHES + 1):
                yield str(path / f"{number}.mat"), _read(path / f"{number}.mat")
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for member in _members(archive, path):
                    with archive.open(member) as stream:
                        yield f"{member.filename} in {path}", _bounded(stream.read(LIMIT + 1), path)
        else:
            yield str(path), _read(path)
    except FileNotFoundError as error:
        raise _broken(str(path), f"{Path(str(error.filename)).name} is missing") from error
    except DataError:
        raise
    except Exception as error:  # what zipfile and its decompressors raise on damaged bytes has a dozen kinds
        raise _broken(str(path), str(error) or type(error).__name__) from error


def _members(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """The .mat members of an archive: test.mat alone, or 1.mat to 32.mat in any one folder."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts or re.search(r"[\\:\0]", member.filename):
            raise _broken(str(path), f"its member {member.filename!r} points outside its folder")
        if member.file_size > LIMIT:
            raise _broken(str(path), f"its member {member.filename!r} is larger than {LIMIT:,} bytes")
        if name.suffix == ".mat" and name.parts[0] != "__MACOSX":
            if name.name in found:
                raise _broken(str(path), f"it holds {name.name} twice")
            found[name.name] = member
    wanted = ["test.mat"] if "test.mat" in found else [f"{number}.mat" for number in range(1, BATCHES + 1)]
    missing = [name for name in wanted if name not in found]
    if missing or len(found) != len(wanted):
        raise _broken(str(path), f"it should hold test.mat, or 1.mat to {BATCHES}.mat, and nothing else of this kind")
    return [found[name] for name in wanted]


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return _bounded(stream.read(LIMIT + 1), path)


def _bounded(content: bytes, path: Path) -> bytes:
    if len(content) > LIMIT:
        raise _broken(str(path), f"it holds more than {LIMIT:,} bytes")
    return content


def _broken(where: str, reason: str) -> DataError:
    return DataError(f"{where} cannot be read as affNIST: {reason}; {REMEDY}.")
