"""Why a run that was made elsewhere does not count in a plan here, in words that say what to do about it."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from capsbench.cli.again import what_changed
from capsbench.errors import CapsbenchError, DataError
from capsbench.evaluation.done import has_its_answers
from capsbench.files import read_record
from capsbench.plan import Cell, House
from capsbench.provenance import PACKAGE, digest_of_file
from capsbench.report.contract import Manifest, Metrics, UnreadableFileError, read

OF_ANOTHER = "made with another"
NOT_EVALUATED = "it is not evaluated"
OTHERWISE = "it was evaluated with other options, or by other code, than here"


def made_otherwise(there: House, cell: Cell, seed: int, data: str) -> str:
    """What a run was made with that is another here, and which keys of the config; or that its manifest is none."""
    changed = what_changed(there, cell, seed, data)
    if not changed:
        return "its manifest is broken, or its row waits for tuning"
    config = read_record(there.run_folder(cell, seed) / "manifest.json").get("config")
    keys = "; ".join(_other_keys(config, cell.config())) if isinstance(config, dict) else ""
    return f"{OF_ANOTHER} {changed} than here{f': {keys}' if keys else ''}"


def not_evaluated(there: House, cell: Cell, seed: int, weights: str) -> str:
    """Why the metrics of a run with these weights, if there are any, are not those of its evaluation here."""
    folder, conditions = there.run_folder(cell, seed), cell.options.conditions(cell.spec)
    stored = [read_record(folder / name / "metrics.json").get("weights") == weights for name in conditions]
    if any(stored) and (options := _other_options(there, cell)):
        none = " (None: leave the key out)" if any(": None (" in words for words in options) else ""
        return f"it was evaluated with {'; '.join(options)}; say the same in the task here{none}"
    return OTHERWISE if all(stored) else NOT_EVALUATED


def _other_options(there: House, cell: Cell) -> list[str]:
    """What the plan of these results asks of a row's evaluation and the plan here does not; none if it is not here."""
    plan = read_record(there.folder / "plan.json")
    try:
        other = House.load(plan_here(there.folder, plan.get("file")), there.dataset)
    except CapsbenchError:
        return []
    if other.digest != plan.get("digest"):  # it was edited since
        return []
    options = cell.options.evaluation_options()
    theirs = next((row.options.evaluation_options() for row in other.cells if row.label == cell.label), options)
    return _other_keys(theirs, options)


def _other_keys(theirs: object, ours: object, key: str = "") -> list[str]:
    """The keys in which two configs differ, `training.batch: 64 (here 128)`; those of one alone are there too."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return [f"{key}: {theirs} (here {ours})"] if theirs != ours else []
    names = [name for name in {**theirs, **ours} if key or name != "steps"]  # which follow from other keys
    found = [_other_keys(theirs.get(name), ours.get(name), f"{key}.{name}".lstrip(".")) for name in names]
    return [words for one in found for words in one]


def damaged(run: Path) -> str:
    """What is wrong with a file of a finished run, `test/predictions.npz is damaged`; empty if nothing is.

    Each file is read as the report reads it; weights, where they are there, must be the manifest's. A number that was
    altered shows in none of this: `altered` counts it again.
    """
    return next((f"{path.relative_to(run).as_posix()} {what}" for path, what in _faults(run)), "")


def _faults(run: Path) -> Iterator[tuple[Path, str]]:
    """Files of a run that are damaged or gone."""
    conditions: dict[Path, Metrics] = {}
    path = run / "manifest.json"
    try:
        manifest = read(path, Manifest)
        for path in sorted(run.glob("*/metrics.json")):
            conditions[path.parent] = read(path, Metrics)
    except UnreadableFileError as error:
        yield path, str(error)
        return
    weights, history = run / "weights.safetensors", run / "history.csv"
    if weights.is_file() and digest_of_file(weights) != manifest.weights:
        yield weights, "is damaged, or of another training"
    if manifest.status == "done" and not history.is_file():
        yield history, "is not there"
    for folder, metrics in conditions.items():
        if metrics.status == "done" and not metrics.metrics:
            yield folder / "metrics.json", "has no metric"
        if not has_its_answers(folder, metrics.status):
            yield folder / "predictions.npz", "is not there"
    tables = (*run.glob("*.csv"), *run.glob("*/*.csv"))
    yield from ((path, "is cut off") for path in sorted(tables) if not path.read_bytes().endswith(b"\n"))
    yield from ((path, "is damaged") for path in sorted(run.glob("*/*.npz")) if not _is_whole(path))


def _is_whole(path: Path) -> bool:
    """Whether each array of a .npz file has its checksum."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError):  # what zipfile says of damage
        return False


def plan_here(archive: Path, said: object) -> Path:
    """The plan that plan.json names, here. Raises DataError."""
    if not isinstance(said, str):
        raise DataError(f"{archive} was not made by `capsbench pack --results`: it has no plan.json that names a plan.")
    for path in (Path(said), PACKAGE.parent / said):
        if path.is_file():
            return path
    raise DataError(f"{archive} belongs to the plan {said}, which is not here; name it with --plan.")
