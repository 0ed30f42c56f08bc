"""Where the official affNIST files lie, and which affNIST a run is measured on. No torch: Snakemake parses with it."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from capsbench.data.source import cache_folder
from capsbench.errors import DataError
from capsbench.plan import Cell, House

FOLDER = "affNIST"
FORMS = ("test.mat", "test.mat.zip", "test_batches", "test_batches.zip")
SYNTHETIC = "affnist-synth"


def find_files(folder: Path) -> Path | None:
    """The official files in `folder`/affNIST or `folder`/affNIST/transformed, in any of their forms; None without."""
    for place in (folder / FOLDER, folder / FOLDER / "transformed"):
        for form in FORMS:
            if (place / form).exists():
                return place / form
    return None


def official_path(folder: str | Path | None = None) -> Path | None:
    """The official files: in the folder that CAPSBENCH_DATA names (else `folder`, the plan's), then in the cache."""
    named = os.environ.get("CAPSBENCH_DATA") or folder
    folders = [cache_folder()] if named is None else [Path(named).expanduser().absolute(), cache_folder()]
    return next(filter(None, map(find_files, folders)), None)


def files_digest(path: Path) -> str:
    """SHA-256 of the file, or of the names and digests of a folder's .mat files. Raises DataError if unreadable."""
    try:
        if path.is_dir():
            lines = [f"{file.name} {files_digest(file)}\n" for file in sorted(path.glob("*.mat"))]
            return hashlib.sha256("".join(lines).encode()).hexdigest()
        stat = path.stat()
        return _file_digest(path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error


@functools.cache
def _file_digest(path: Path, size: int, modified: int) -> str:
    """Once a process for each state of a file: a plan asks for every run."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def measured_on(house: House, cell: Cell) -> str | None:
    """Which affNIST a run of `cell` is measured on along training, for its digest; None for other tasks and trials.

    The synthetic set follows from the digits and the source, which have digests of their own: its name says enough.
    """
    if cell.task != "affnist" or cell.trial is not None:
        return None
    path = official_path(house.plan.data_folder) if cell.dataset == "mnist" else None
    return SYNTHETIC if path is None else files_digest(path)
