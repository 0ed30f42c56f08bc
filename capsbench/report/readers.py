"""Read the CSV and array files of a run, for figures and verdicts; what cannot be read becomes a problem."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from capsbench.report.results import Results, Run

Arrays = dict[str, np.ndarray]
OVERLAP = {"overlap_low": float, "overlap_high": float, "pairs": float, "metric": str, "value": float}  # overlap.csv
# metrics alone say whether a run is evaluated
AGAIN = "remove its metrics.json and evaluate the run again (without its weights: bring it again)"
LIMIT = 1 << 30  # bytes that a file may unpack to; ten million pairs take a hundredth of it


def scored(results: Results, task: str, condition: str) -> list[Run]:
    """The runs of a task that count under a condition, in the plan's order."""
    return [
        run for run in results.done(task) if condition in run.metrics and run.metrics[condition].status == "done"
    ]  # fmt: skip


def read_series(results: Results, run: Run, name: str, columns: Mapping[str, type]) -> pd.DataFrame | None:
    """The CSV file `name` in a run's folder with at least `columns` (name -> float or str), or None if it is not there.

    A file that is truncated or has other columns is a problem and gives None, as is an infinite number in one of the
    training. Empty cells of numbers are NaN, and infinite ones of evaluations.
    """
    path = run.folder / name
    if not path.exists():
        return None
    try:
        frame = pd.read_csv(path, usecols=list(columns), dtype=dict.fromkeys(columns, object))
        for column, kind in columns.items():
            frame[column] = frame[column].fillna("").astype(str) if kind is str else pd.to_numeric(frame[column])
            if kind is float and np.isinf(frame[column]).any():
                if path.parent == run.folder:  # no run that ended well measured that along its training
                    raise ValueError(f"{column} is infinite")
                frame[column] = frame[column].replace([np.inf, -np.inf], np.nan)  # a routing after many passes may
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors
        _report(results, run, path, f"{path.name} is truncated or not what a run writes ({_short(error)})")
        return None
    return frame


def read_all(results: Results, runs: Sequence[Run], name: str, columns: Mapping[str, type]) -> pd.DataFrame | None:
    """The CSV file `name` of every run that has rows in it, with the run's variant and seed; None where none has."""
    parts = []
    for run in runs:
        part = read_series(results, run, name, columns)
        if part is not None and len(part):
            parts.append(part.assign(variant=run.key.variant, seed=run.key.seed))
    return pd.concat(parts, ignore_index=True) if parts else None


def read_arrays(results: Results, run: Run, name: str, shapes: dict[str, str]) -> Arrays | None:
    """The arrays of the npz file `name` in a run's folder, or None if it is not there.

    `shapes` names each array's dimensions, `{"images": "n h w", "labels": "n 2"}`: a letter has one size in the whole
    file, a number is that size. A file that is truncated, lacks an array or has another shape is a problem and gives
    None. Nothing is ever unpickled.
    """
    path = run.folder / name
    if not path.exists():
        return None
    try:
        arrays = load_arrays(path, list(shapes))
    except ValueError as error:
        _report(results, run, path, str(error))
        return None
    sizes: dict[str, int] = {}
    for key, dimensions in shapes.items():
        names, shape = dimensions.split(), arrays[key].shape
        fits = len(names) == len(shape) and all(
            size == (int(name) if name.isdecimal() else sizes.setdefault(name, size))
            for name, size in zip(names, shape, strict=True)
        )
        if not fits or arrays[key].dtype.kind not in "uif":
            found = f"{arrays[key].dtype} {list(shape)}"
            _report(results, run, path, f"{path.name}: {key} is {found}, but should be numbers [{', '.join(names)}]")
            return None
    return arrays


def load_arrays(path: Path, names: Sequence[str] | None = None) -> Arrays:
    """The arrays of an npz file, all of them or those of `names`. Nothing is ever unpickled or unpacked to the disk.

    Raises ValueError in words where the file is truncated, lacks an array, holds objects or unpacks to more than LIMIT.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LIMIT:
            raise ValueError(f"it unpacks to {size:,} bytes, more than {LIMIT:,}")
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in (stored.files if names is None else names)}
    except MemoryError:
        raise ValueError(f"{path.name} is not what evaluation writes (an array too large for any memory)") from None
    except Exception as error:  # what zipfile, its decompressors and NumPy raise on damaged bytes has a dozen kinds
        reason = f"{path.name} is truncated or is not what evaluation writes ({_short(error)})"
        raise ValueError(reason) from None


def _report(results: Results, run: Run, path: Path, reason: str) -> None:
    of_run = path.parent == run.folder  # and not of a condition, which can be evaluated again
    results.problem(
        "not drawn", path, run.key, reason if of_run else f"{reason}: {AGAIN}", None if of_run else path.parent.name
    )


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
