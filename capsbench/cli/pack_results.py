"""`capsbench pack --results`: one archive of what was done on a machine, for the way back."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal

from rich.console import Console

from capsbench.cli.options import file_to_write, is_archive
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.evaluation.done import is_evaluated
from capsbench.files import read_json, read_record, whole_file
from capsbench.locks import is_held
from capsbench.plan import House

# Of results: nothing that a table or a figure needs. Neither is what begins with a dot: locks, Snakemake's own, and
# what a process that was killed had not finished writing.
LEFT_OUT = ("weights.safetensors", "scores.npz", "checkpoint", "logs")


def pack_results(console: Console, results: Path, to: Path) -> None:
    """Write a results folder but for weights, scores and checkpoints as one archive; it unpacks to that folder's name.

    A run that is trained and not evaluated is left out: it would count as done, and no weights be there to evaluate.
    So is one that a process is at work on. Raises CapsbenchError: the folder holds no results.
    """
    if not (results / "plan.json").is_file():
        raise CapsbenchError(
            f"{results} holds no results (plan.json is missing); name a folder such as results/paper; if a "
            "`capsbench run` was stopped before its report, run `capsbench report PLAN` first."
        )
    to = file_to_write("--to", to, "results.tar.gz", is_archive)
    if not read_record(results / "plan.json").get("name"):  # packed all the same: more may never leave this machine
        console.print(
            f"{results / 'plan.json'} cannot be read, and `capsbench bring` takes no archive without it; write it anew "
            "with `capsbench report PLAN` and pack again.",
            markup=False,
        )
    house = _house_of(results)
    waiting, judged = {}, set()
    for manifest in sorted(results.glob("runs/*/*/*/manifest.json")):
        judged.add(manifest)
        if _is_at_work(manifest.parent):
            waiting[manifest.parent] = "a process is at work on it."
        elif not _is_over(manifest, house):
            waiting[manifest.parent] = "it is not evaluated yet, and its weights stay here."
    for run, why in waiting.items():
        console.print(f"{run} is left out: {why}", markup=False)
    name = archived_name(results)

    # Listed before the archive is begun, which may lie in the folder itself; nor is an earlier one of its name packed.
    kept = [path for path in _kept(results, waiting) if not (to.exists() and path.samefile(to))]
    # A run that was trained since is not evaluated; a trial of tuning never is.
    judged |= {path for path in kept if path.is_relative_to(results / "tuning")}
    kept = [path for path in kept if path in judged or path.name != "manifest.json"]

    def fill(out: tarfile.TarFile) -> None:
        for path in kept:
            out.add(path, Path(name) / path.relative_to(results), recursive=False)

    try:
        size = write_archive(fill, to)
    except FileNotFoundError as error:
        raise ResourceError(f"{error.filename} disappeared while it was being packed; try again.") from None
    console.print(f"{to}: {size:.1f} MB", markup=False)


def archived_name(results: Path) -> str:
    """What a results folder is called in its archive: as it was said, also where that is a link to another disk."""
    return Path(os.path.abspath(results)).name  # noqa: PTH100  (Path.resolve follows links, absolute keeps `..`)


def _kept(folder: Path, waiting: Collection[Path]) -> Iterator[Path]:
    """Every file below a results folder but those LEFT_OUT, of runs that are `waiting`, and links to nowhere."""
    for place, folders, files in os.walk(folder, followlinks=True):
        here = Path(place)
        inside = (folder.resolve(), here.resolve())
        folders[:] = sorted(
            name
            for name in folders
            if _travels(name)
            and here / name not in waiting
            # a link to where the way came from: it would go round
            and not ((here / name).is_symlink() and any(p.is_relative_to((here / name).resolve()) for p in inside))
        )
        yield from (here / name for name in sorted(files) if _travels(name) and (here / name).is_file())


def _is_at_work(run: Path) -> bool:
    try:
        return is_held(run)
    except ResourceError:  # in a folder that may only be read nobody works
        return False


def _travels(name: str) -> bool:
    return name not in LEFT_OUT and not name.startswith(".")


def _house_of(results: Path) -> House | None:
    """The plan that made a results folder, where it is still there: it says what an evaluation consists of."""
    try:
        plan = read_json(results / "plan.json")
        house = House.load(Path(plan["file"]), plan["dataset"]["name"])
        return house if house.digest == plan["digest"] else None
    except (CapsbenchError, ValueError, KeyError, TypeError):
        return None


def _is_over(manifest: Path, house: House | None) -> bool:
    """Whether nothing is left to do of the run that has this file: it is evaluated, or failed.

    Where its weights are here and its plan knows it, by the rule that `capsbench evaluate` has; else its metrics are to
    be of these weights and of one evaluation.
    """
    try:
        said = read_json(manifest)
        status, weights = said["status"], said["weights"]
    except (ValueError, KeyError, TypeError):
        return True  # a broken manifest counts as done nowhere: that run is made again
    if status != "done":
        return True
    place = manifest.parent
    rows = house.cells if house is not None else ()
    cell = next((row for row in rows if (row.task, row.folder_name) == (place.parts[-3], place.parts[-2])), None)
    try:
        if cell is not None and (place / "weights.safetensors").is_file():
            return is_evaluated(place, cell, said)
        found = [read_json(path) for path in place.glob("*/metrics.json")]
        scored = {(metrics["weights"], metrics["digest"]) for metrics in found}
    except (ValueError, KeyError, TypeError):
        return False
    return len(scored) == 1 and weights in scored.pop()  # metrics of an earlier training are none of this one's


def write_archive(fill: Callable[[tarfile.TarFile], None], to: Path) -> float:
    """Write what `fill` adds, links as what they lead to, gzip or (.xz) xz; megabytes."""
    mode: Literal["w:xz", "w:gz"] = "w:xz" if to.suffix == ".xz" else "w:gz"
    with whole_file(to) as temporary, tarfile.open(temporary, mode, dereference=True) as out:
        fill(out)
    return to.stat().st_size / 1e6
