"""Where the digits come from: the named folder, the cache, the mirrors, or scikit-learn's digits, in this order.

Imports neither torch nor NumPy: the Snakefile parses with it. What needs them imports them on call.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from capsbench.data import raw
from capsbench.errors import DataError, nearest

DIGITS = "uci-digits"
DIGITS_BADGE = "UCI digits, not MNIST"


@dataclass(frozen=True)
class DataSource:
    """A data set that was found. Its files are checked when they are read, not before."""

    dataset: str  # mnist, fashion-mnist, kmnist, or uci-digits in their place
    folder: Path | None  # where the four files lie; None for uci-digits, which come with scikit-learn
    badge: str  # what tables and figures call the data
    origin: str  # CAPSBENCH_DATA, plan, cache, download or scikit-learn
    notice: str | None = field(default=None, compare=False)  # what the user must be told before the first number


def cache_folder() -> Path:
    """Where downloads are kept: CAPSBENCH_CACHE, else .cache/capsbench/data in the current folder."""
    return _absolute(os.environ.get("CAPSBENCH_CACHE") or ".cache/capsbench/data")


def find_source(
    dataset: str, folder: str | Path | None = None, *, fallback: bool = False, download: bool = True
) -> DataSource:
    """Locate `dataset` without reading it: CAPSBENCH_DATA, then `folder` (the plan's), then the cache, then a download.

    A named folder must hold the data: it is never passed over for another place. Only if nothing is named and MNIST
    cannot be downloaded (or `download` is off) does `fallback` give scikit-learn's digits, with a `notice` that is to
    be shown. Digits stand in for MNIST alone; instead of clothes or Japanese characters they would show nothing.
    Raises DataError.
    """
    if dataset == DIGITS:
        return DataSource(DIGITS, None, DIGITS_BADGE, "scikit-learn")
    if dataset not in raw.TORCHVISION:
        raise DataError(f"There is no data set '{dataset}'{nearest(dataset, [*raw.TORCHVISION, DIGITS])}")
    named = os.environ.get("CAPSBENCH_DATA")
    if named:
        return _named(dataset, _absolute(named), "CAPSBENCH_DATA")
    if folder is not None:
        return _named(dataset, _absolute(folder), "plan")

    cached = cache_folder() / raw.TORCHVISION[dataset] / "raw"
    if missing_file(cached) is None:
        return _source(dataset, cached, "cache")
    reason = f"{raw.BADGES[dataset]} is not in the cache {cache_folder()} and downloading is off"
    if download:
        from capsbench.data.download import DownloadError, download_files

        try:
            return _source(dataset, download_files(dataset, cache_folder()), "download")
        except DownloadError as error:
            reason = str(error)
    if fallback and dataset == "mnist":
        notice = (
            f"{reason}, so this goes on with the handwritten digits that scikit-learn ships (1,797 images of 8x8, "
            f"resized): no number that follows is an MNIST number."
        )
        return DataSource(DIGITS, None, DIGITS_BADGE, "scikit-learn", notice)
    raise DataError(f"{reason}; name a folder that holds its four files with CAPSBENCH_DATA.")


def verify(source: DataSource) -> dict[str, str]:
    """Read every file of `source` and check it; the SHA-256 of each file's unpacked content, by file name.

    Raises DataError on the first file that is missing, truncated or altered. Imports torch only for Fashion-MNIST and
    KMNIST, whose checksums are torchvision's.
    """
    if source.folder is None:
        from capsbench.data.uci import UCI_SHA256, read_uci

        read_uci()
        return {DIGITS: UCI_SHA256}
    return {
        name: hashlib.sha256(raw.read_checked(source.dataset, source.folder, name)).hexdigest() for name in raw.FILES
    }


def source_digest(source: DataSource) -> str:
    """The SHA-256 that stands for these data in the digests of runs: of the content, whatever folder it lies in.

    MNIST's is made of the published checksums, which every load holds the files to, so nothing is read here. For
    Fashion-MNIST and KMNIST the .gz files are hashed as they lie there (the load holds them to torchvision's
    checksums). Never imports torch. Raises DataError if such a .gz cannot be read.
    """
    if source.folder is None:
        from capsbench.data.uci import UCI_RECIPE, UCI_SHA256

        files = {UCI_RECIPE: UCI_SHA256}
    elif source.dataset == "mnist":
        files = raw.MNIST_SHA256
    else:
        files = {name: raw.gz_md5(source.folder, name) for name in raw.FILES}
    return hashlib.sha256(json.dumps([source.dataset, sorted(files.items())]).encode()).hexdigest()


def missing_file(folder: Path) -> str | None:
    """The first of the four files that `folder` lacks, gzipped or unpacked; None if all are there. Raises DataError."""
    return next((name for name in raw.FILES if raw.file_at(folder, name) is None), None)


def _named(dataset: str, folder: Path, origin: str) -> DataSource:
    """The data in a folder that somebody named: in the places where torchvision and people put them."""
    badge = raw.BADGES[dataset]
    by = "CAPSBENCH_DATA names" if origin == "CAPSBENCH_DATA" else "the plan names"
    remedy = "name another folder, or none to have the files downloaded"
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise DataError(f"{folder}, which {by}, cannot be read ({error.strerror}); {remedy}.") from error
    if not is_folder:
        raise DataError(f"{folder}, which {by} for {badge}, is not a folder that exists; {remedy}.")
    places = [folder / raw.TORCHVISION[dataset] / "raw", folder / "raw", folder]
    for place in places:
        if missing_file(place) is None:
            return _source(dataset, place, origin)
    begun = next((place for place in places if any(raw.file_at(place, name) for name in raw.FILES)), None)
    if begun is None:
        raise DataError(
            f"{folder}, which {by} for {badge}, holds none of its four files (nor does "
            f"{raw.TORCHVISION[dataset]}/raw in it); {remedy}."
        )
    raise DataError(
        f"{begun} lacks {missing_file(begun)}, gzipped or not, and {by} this folder for {badge}; "
        f"put the missing file there, {remedy}."
    )


def _absolute(folder: str | Path) -> Path:
    # Path.expanduser raises for a user who does not exist; this leaves the name as it is, to be reported as missing.
    return Path(os.path.expanduser(folder)).absolute()  # noqa: PTH111


def _source(dataset: str, folder: Path, origin: str) -> DataSource:
    return DataSource(dataset, folder, raw.BADGES[dataset], origin)
