"""Two makings of one run, held against each other: where and how far they differ, and what was not the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from capsbench.plan.same_bits import same_sources
from capsbench.provenance import digest_of_file
from capsbench.report.contract import Manifest, Metrics, UnreadableFileError, read
from capsbench.report.readers import load_arrays

Arrays = dict[str, NDArray[Any]]
TIMED = "images_per_second"  # the one column of a run's CSV files that is never the same twice


def weight_differences(stored: Path, again: Path, manifest: Manifest) -> list[str]:
    """How the weights of a run differ from those of its second making; empty if they are the same bits.

    stored, again: the run's two folders; manifest: the stored one. Where the stored weights.safetensors was not kept
    (it is not committed), the manifest's digest of that file decides.
    """
    from capsbench.training.checkpoint import read_tensors, write_tensors

    name = "weights.safetensors"
    found = read_tensors(again / name).tensors
    if not (stored / name).exists():
        as_it_was = again / "as-it-was.safetensors"  # the file names the run's digest, which may be another by now
        write_tensors(as_it_was, found, {"run": manifest.digest})
        if digest_of_file(as_it_was) == manifest.weights:
            return []
        return ["weights differ; by how much is unknown, since the stored weights.safetensors was not kept"]
    try:
        kept = read_tensors(stored / name).tensors
    except ValueError as error:
        return [f"weights cannot be compared: {error}"]
    changed = (
        []
        if digest_of_file(stored / name) == manifest.weights
        else [f"{name} is not the file that its manifest describes"]
    )
    # bf16, which NumPy lacks, is no run's: a file that somebody put there
    first, second = ({key: value.float().numpy() for key, value in side.items()} for side in (kept, found))
    return changed + [f"weights: {words}" for words in array_differences(first, second)]


def array_differences(stored: Arrays, again: Arrays) -> list[str]:
    """How arrays by name differ: a missing one, another shape or type, or how many values and by how much at most.

    Values differ where their bytes do: 0.0 and -0.0 do, by 0.
    """
    words = []
    for name in sorted(stored.keys() | again.keys()):
        if name not in stored or name not in again:
            words.append(f"{name} is only in the {'stored' if name in stored else 'second'} making")
            continue
        a, b = stored[name], again[name]
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            words.append(f"{name} is {a.dtype} {list(a.shape)}, now {b.dtype} {list(b.shape)}")
        elif a.tobytes() != b.tobytes():
            different = (_bytes_of_each(a) != _bytes_of_each(b)).any(axis=1)
            words.append(f"{name} differs in {int(different.sum()):,} of {a.size:,} values{_how_far(a, b, different)}")
    return words


def _bytes_of_each(array: NDArray[Any]) -> NDArray[np.uint8]:
    """[values, bytes a value]."""
    return np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, array.itemsize)


def _how_far(a: NDArray[Any], b: NDArray[Any], different: NDArray[np.bool_]) -> str:
    """`, by 0.5 at most, 2 of them NaN or infinite`: the most over what has a finite difference; of words nothing."""
    if a.dtype.kind not in "biuf":
        return ""
    first, second = (side.reshape(-1)[different].astype(np.float64) for side in (a, b))
    finite = np.isfinite(first) & np.isfinite(second)
    far = f", by {np.abs(first[finite] - second[finite]).max():.3g} at most" if finite.any() else ""
    return far + (f", {int((~finite).sum()):,} of them NaN or infinite" if not finite.all() else "")


def row_differences(stored: Path, again: Path) -> tuple[list[str], list[str]]:
    """How the losses and measurements along training differ, and the files (history.csv, curve.csv) compared."""
    names = sorted({path.name for side in (stored, again) for path in side.glob("*.csv")})
    return [f"{name}: {line}" for name in names for line in _file_differences(stored / name, again / name)], names


def condition_differences(stored: Path, again: Path) -> tuple[list[str], list[str]]:
    """How the evaluations of a run differ, and the conditions that were compared. stored, again: the run's folders.

    scores.npz need not be in the stored one: like the weights it is not committed.
    """
    words: list[str] = []
    names = sorted({path.parent.name for side in (stored, again) for path in side.glob("*/metrics.json")})
    if not any(stored.glob("*/metrics.json")):
        return [], []
    for name in names:
        try:
            first, second = (read(side / name / "metrics.json", Metrics) for side in (stored, again))
        except UnreadableFileError as error:
            words.append(f"{name}: metrics.json {error}")
            continue
        words += [f"{name}: {line}" for line in _metric_differences(first, second)]
        files = {path.name for side in (stored, again) for path in (side / name).glob("*.*") if path.suffix in FILES}
        if not (stored / name / "scores.npz").exists():
            files.discard("scores.npz")
        for file in sorted(files):
            words += [f"{name}/{file}: {line}" for line in _file_differences(stored / name / file, again / name / file)]
    return words, names


def _metric_differences(stored: Metrics, again: Metrics) -> Iterator[str]:
    if stored.status != again.status:
        yield f"status is {stored.status}, now {again.status}"
    if stored.images != again.images:
        yield f"{stored.images:,} images, now {again.images:,}"
    for name in sorted(stored.metrics.keys() | again.metrics.keys()):
        first, second = stored.metrics.get(name), again.metrics.get(name)
        if first is None or second is None:
            yield f"{name} is only in the {'stored' if first else 'second'} making"
        elif first.value != second.value:
            apart = "" if first.value is None or second.value is None else f" ({second.value - first.value:+.3g})"
            yield f"{name} is {first.value} {first.unit}, now {second.value}{apart}"


def _file_differences(stored: Path, again: Path) -> list[str]:
    if not stored.exists() or not again.exists():
        return [f"only in the {'stored' if stored.exists() else 'second'} making"]
    load = FILES[stored.suffix]
    try:
        return array_differences(load(stored), load(again))
    except ValueError as error:  # pandas' own errors are ValueErrors
        return [str(error)]


def _load_columns(path: Path) -> Arrays:
    """The columns of a CSV file but TIMED: float64 where all their cells are numbers or empty, else as written."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False).drop(columns=TIMED, errors="ignore")
    return {str(name): _numbers_or_words(frame[name].to_numpy(str)) for name in frame}


def _numbers_or_words(cells: NDArray[np.str_]) -> NDArray[Any]:
    try:
        return np.where(cells == "", "nan", cells).astype(np.float64)
    except ValueError:
        return cells


FILES = {".npz": load_arrays, ".csv": _load_columns}  # what of an evaluation is compared beside its metrics


def decided_otherwise(stored: Manifest, config: Mapping[str, Any], digests: Mapping[str, str | None]) -> list[str]:
    """What of config, source and data decides a run's weights and is another now than when `stored` was made."""
    words = []
    if stored.digests.get("config") != digests.get("config"):
        keys = list(_changed(stored.config, config)) or ["the digests differ but the recorded config does not"]
        words.append(f"config: {'; '.join(keys)}")
    were, now = (str(made.get("training_source")) for made in (stored.digests, digests))
    if were not in same_sources(now, stored.model_dump()):
        words.append("training source: the digests differ")
    for key, name in (("data", "data"), ("test_set", "affNIST test set")):
        if stored.digests.get(key) != digests.get(key):
            words.append(f"{name}: the digests differ")
    return words


def scored_otherwise(stored: Path, digest: str) -> list[str]:
    """Whether a run was evaluated with other options or by other source than those of `digest`, in words."""
    for path in stored.glob("*/metrics.json"):
        with contextlib.suppress(UnreadableFileError):  # which condition_differences names
            found = read(path, Metrics).digest
            if found is not None and found != digest:
                return ["evaluation: its options or its source differ"]
    return []


def circumstances(stored: Manifest, again: Manifest) -> list[str]:
    """What was not the same when the two were made: config, source, data, device, threads, precision, versions."""
    words = decided_otherwise(stored, again.config, again.digests)
    were, now = (str(making.digests.get("training_source")) for making in (stored, again))
    if were != now and were in same_sources(now, stored.model_dump()):
        words.append("training source: different, but shown to give the same bits (config/same-bits.json)")
    words += _changed({"versions": stored.versions}, {"versions": again.versions})
    parts = (
        (("device", "threads", "precision", "routing", "convolutions"), stored.resolved, again.resolved),
        (("processor", "gpu", "driver", "cuda", "environment"), stored.machine, again.machine),
    )
    for names, first, second in parts:
        words += _changed({name: first.get(name) for name in names}, {name: second.get(name) for name in names})
    return words


def other_parts(stored: Manifest) -> list[str]:
    """That a stored run was stopped and gone on with: what it was begun with and on is nowhere."""
    if not stored.resumed:
        return []
    return [f"resumed: {stored.resumed}; the manifest names only the versions and the machine of the last part"]


def _changed(stored: Mapping[str, Any], again: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """`key: was, now is` for every value that is not the same, by the path of its keys."""
    for key in sorted(stored.keys() | again.keys()):
        first, second, path = stored.get(key), again.get(key), f"{where}{key}"
        if isinstance(first, dict) and isinstance(second, dict):
            yield from _changed(first, second, f"{path}.")
        elif first != second:
            yield f"{path}: was {first}, now {second}"
