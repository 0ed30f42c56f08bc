"""`capsbench verify`: a finished run is trained and evaluated again elsewhere and held against what is stored."""

from __future__ import annotations

import contextlib
import random
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from capsbench.cli.held import held_device
from capsbench.cli.options import MOST_THREADS
from capsbench.cli.progress import show_progress
from capsbench.data.affnist_place import measured_on
from capsbench.data.source import DataSource, find_source
from capsbench.errors import CapsbenchError, PlanError, ResourceError, counted, nearest
from capsbench.evaluation.done import evaluation_digest, stored_digest
from capsbench.pipeline import dataset_record
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests
from capsbench.report.contract import Manifest, RunKey, UnreadableFileError, read, read_plan
from capsbench.report.results import run_folder


def choose(console: Console, folder: Path, run: str | None, at_random: bool, draw: int | None) -> RunKey:
    """The run to verify: the one that is named (`task/variant/seed`), or one drawn from those that are trained.

    Raises:
        ResultsError: there is no plan.json. CapsbenchError: no run, both, or a run that is not there is named.
    """
    if folder.suffix in (".yaml", ".yml"):
        raise CapsbenchError(f"{folder} is a plan; name its results folder, such as results/{folder.stem}.")
    planned = [entry.key for entry in read_plan(folder).runs]
    if (run is None) == (not at_random) or (draw is not None and not at_random):
        raise CapsbenchError("Name a run with --run task/variant/seed, or draw one with --random [--draw SEED].")
    if run is not None:
        by_name = {f"{key.task}/{key.variant}/{key.seed}": key for key in planned}
        name = run.replace("/seed-", "/").replace(":", ".")
        if name not in by_name:
            raise CapsbenchError(f"{folder} has no run {run!r}{nearest(name, by_name)}")
        return by_name[name]
    trained = [key for key in planned if (run_folder(folder, key) / "manifest.json").is_file()]
    if not trained:
        raise CapsbenchError(f"{folder} has no trained run; run its plan first.")
    seed = secrets.randbelow(2**32) if draw is None else draw
    key = random.Random(seed).choice(trained)
    console.print(f"drawn from {counted(len(trained), 'trained run')} with --draw {seed}: {key}")
    return key


def verify_run(
    console: Console, folder: Path, key: RunKey, plan: Path | None, device: str | None, threads: int | None
) -> bool:
    """Make the run again in a temporary folder, print what differs, and say whether nothing does.

    Device (if it is there), threads and precision are the stored run's unless said otherwise. What the second making
    is given is not in the stored folder: the plan decides, so a plan that was edited since is named as the reason.

    Raises:
        CapsbenchError: the run, its plan or its data are not there. ResourceError: the making was stopped.
    """
    from capsbench.cli.second_making import (
        circumstances,
        condition_differences,
        other_parts,
        row_differences,
        scored_otherwise,
        weight_differences,
    )

    stored = run_folder(folder, key)
    try:
        manifest = read(stored / "manifest.json", Manifest)
    except UnreadableFileError as error:
        raise CapsbenchError(f"{stored / 'manifest.json'} {error}; there is nothing to compare with.") from None
    house = House.load(_plan_of(folder, plan), manifest.dataset.name)
    if folder.absolute().name == house.name:
        house = replace(house, root=folder.absolute().parent)  # where tuning's choices lie beside the runs
    cell = house.cell(key.task, key.variant)
    if cell.tuned is not None and cell.waits:
        raise CapsbenchError(f"{cell.label}: {cell.tuned.path} is not there, or not a choice by this plan's tuning.")
    if key.seed not in cell.seeds:
        raise PlanError(f"{house.path}: {cell.label} no longer has seed {key.seed}; it has {list(cell.seeds)}.")
    source = find_source(house.dataset, house.plan.data_folder)
    scored = scored_otherwise(stored, stored_digest(stored, cell, manifest.model_dump()))
    _say_what_changed(console, house, cell, key.seed, source, manifest, scored)
    with tempfile.TemporaryDirectory(prefix="capsbench-verify-") as place:
        elsewhere = replace(house, root=Path(place))
        with _not_gone_on_with(key):
            _make(console, elsewhere, cell, key.seed, source, manifest, device, threads)
        second = elsewhere.run_folder(cell, key.seed)
        again = read(second / "manifest.json", Manifest)
        compared = ["weights"]
        words = []
        if (manifest.status, manifest.reason) != (again.status, again.reason):
            words.append(f"status is {_status(manifest)}, now {_status(again)}")
        words += weight_differences(stored, second, manifest)
        in_rows, files = row_differences(stored, second)
        different, conditions = condition_differences(stored, second)
    words += in_rows
    compared += files
    compared += [f"predictions and metrics of {name}" for name in conditions]
    for line in words + different:
        console.print(f"  {line}", markup=False)
    if words or different:
        console.print(f"{key}: not identical.", style="bold red")
        reasons = circumstances(manifest, again) + scored + other_parts(manifest)
        console.print("What else differs:" if reasons else _NO_REASON)
        for line in reasons:
            console.print(f"  {line}", markup=False)
        return False
    console.print(f"{key}: identical ({'; '.join(compared)}).", style="green")
    if again.status == "done" and not conditions:
        console.print("The stored run has not been evaluated: only weights could be compared.")
    for line in circumstances(manifest, again) + scored:
        console.print(f"  although {line}", markup=False)
    return True


def _say_what_changed(
    console: Console, house: House, cell: Cell, seed: int, source: DataSource, stored: Manifest, scored: list[str]
) -> None:
    """Name at once what will hardly let the second making be identical: it may take hours until that is seen."""
    from capsbench.cli.second_making import decided_otherwise

    digests = run_digests(house, cell, seed, dataset_record(source)["digest"], measured_on(house, cell))
    # how many steps an epoch makes is known once the data are read
    changed = decided_otherwise(stored, {**cell.config(), "steps": stored.config.get("steps")}, digests) + scored
    if changed:
        console.print(
            "Things that determine the run have changed since it was made; expect a difference (Ctrl-C stops):"
        )
    for line in changed:
        console.print(f"  {line}", style="yellow", markup=False)


_NO_REASON = (
    "Nothing else that is recorded differs (config, source, data, evaluation, device, threads, precision, versions): "
    "please report it, unless a stored file was changed or damaged."
)


def _status(manifest: Manifest) -> str:
    return manifest.status + (f" ({manifest.reason})" if manifest.reason else "")


def _plan_of(folder: Path, said: Path | None) -> Path:
    """The plan that a results folder was made from.

    A plan can name code of its own, so one that came with the results is not read unasked. Raises CapsbenchError.
    """
    if said is not None:
        return said
    path = Path(read_plan(folder).file)
    if path.resolve().is_relative_to(folder.resolve()):
        raise CapsbenchError(
            f"{path}, the plan of {folder}, is inside that folder; look at it first, then give --plan {path}."
        )
    if not path.is_file():
        raise CapsbenchError(f"{path}, the plan of {folder}, does not exist; say where it is with --plan.")
    return path


@contextlib.contextmanager
def _not_gone_on_with(key: RunKey) -> Iterator[None]:
    """Training promises that the same command goes on from what it saved; here nothing is kept."""
    try:
        yield
    except ResourceError as error:
        raise ResourceError(f"{key} was not verified: {str(error).split(';')[0]}; start over.") from None


def _make(
    console: Console,
    house: House,
    cell: Cell,
    seed: int,
    source: DataSource,
    stored: Manifest,
    device: str | None,
    threads: int | None,
) -> None:
    """Train and evaluate one run into `house.folder`, with the stored run's device, threads and precision."""
    from capsbench.data.digits import load_digits
    from capsbench.evaluation.run import evaluate_run
    from capsbench.training.run import Setting, train_run

    threads = threads or _threads_of(stored)
    resolved = None
    if cell.training.precision == "auto" and stored.resolved.get("precision") in ("float32", "bf16"):
        resolved = {key: stored.resolved.get(key) for key in ("precision", "precision_timings")}
    with held_device(console, device or _as_stored(stored), threads) as chosen:
        digits = load_digits(source, chosen)
        setting = Setting(house, cell, digits, dataset_record(source), chosen, threads, say=console.print)
        with show_progress(console, cell, seed) as show:
            manifest = train_run(setting, seed, show, resolved)
        console.print(f"{cell.label} seed {seed}: made again in {manifest['seconds']:.0f} s on {chosen}")
        if manifest["status"] == "done":
            evaluate_run(house, cell, seed, manifest, evaluation_digest(cell, manifest), digits, chosen)


def _threads_of(stored: Manifest) -> int:
    """The CPU threads that the stored run had. Raises CapsbenchError where its manifest says no number of them."""
    threads = stored.resolved.get("threads", 1)
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise CapsbenchError(
            f"{stored.run.key}: its manifest says {threads!r} for resolved.threads, which is no number of CPU threads; "
            "give one with --threads."
        )
    return threads


def _as_stored(stored: Manifest) -> str | None:
    """The kind of device that the stored run had, if this machine has one; None leaves the choice open."""
    import torch

    kind = str(stored.resolved.get("device", "")).partition(":")[0]
    return kind if kind == "cpu" or (kind == "cuda" and torch.cuda.is_available()) else None
