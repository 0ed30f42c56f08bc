"""`capsbench bring`: runs that are done on another machine, or for another plan, into a plan's results here."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console

from capsbench.cli.left_out import OF_ANOTHER, damaged, made_otherwise, not_evaluated, plan_here
from capsbench.cli.recounted import altered
from capsbench.errors import CapsbenchError, DataError, ResourceError, counted
from capsbench.files import FULL, read_record, whole_file
from capsbench.locks import is_held, lock, sole, writable
from capsbench.pipeline import dataset_record, finished, is_over, open_results, with_current_choice, write_plan
from capsbench.plan import Cell, House
from capsbench.plan.done import read_again
from capsbench.plan.schema import SAFE_NAME
from capsbench.provenance import digest_of_file

BROUGHT, KEPT = "brought", "kept, done here already"
IN_THE_PLACE = f"{BROUGHT}, in the place of a run here that was not done, damaged, or of another config, source or data"
HELD, OF_NO_ROW = "a process is at work on it", "the plan has no such run"
NAMED = "has the config of this plan's"  # row, which has another name here


def bring(console: Console, places: list[Path], plan: Path | None) -> None:
    """Take the runs of archives or folders that are done by the plan here; one that is done here stays as it is.

    A run counts by the rule of every other command: digests of config, training source and data, metrics of this
    evaluation. So a run that one plan has trained is another plan's too, where both have the row alike: with the other
    plan named, such runs are taken, and the rest are not missed, unless none counts. One with a damaged file, or with
    metrics that its own answers contradict, is left out. A run arrives with its manifest last, so that one that was
    stopped half-way is not done and is taken next time. A tuned row's choice comes along where none is here.

    Args:
        places: archives of `capsbench pack --results`, or folders of results.
        plan: whose runs they are to be; when not said the plan that they were made by, which lies where it lay there,
            from this folder or else from the clone.

    Raises:
        CapsbenchError: runs were left out, each printed with its reason. DataError: a place is damaged or none of
            ours. PlanError: its plan is not here. ResourceError: a Snakemake is at work on these results.
    """
    left_out = 0
    for place in places:
        with tempfile.TemporaryDirectory(prefix="capsbench-") as name:
            results = _folder(place, Path(name)) if place.is_dir() else _unpacked(place, Path(name))
            left_out += _bring(console, place, results, plan)
    if left_out:
        raise CapsbenchError(f"{counted(left_out, 'run')} left out, for the reasons above.")


def _bring(console: Console, archive: Path, results: Path, plan: Path | None) -> int:
    """Take what one archive, unpacked to `results`, holds; how many of its runs were left out."""
    record = read_record(results / "plan.json")
    path, of_data = plan or plan_here(archive, record.get("file")), _name_of_data(record)
    house, source = open_results(path, of_data)
    if results.resolve() == house.folder.resolve():
        raise DataError(
            f"{archive} is the results folder of {path} itself; name another plan for these runs with --plan."
        )
    data = dataset_record(source)["digest"]
    is_other = results.name != house.name or (plan is not None and _is_another(archive, record.get("file"), plan))
    results = results.rename(results.parent / house.name)
    with _nobody_else(house):
        _bring_choices(console, house, replace(house, root=results.parent), data)
        house, _ = open_results(path, of_data)  # with the rates that were brought
        there = replace(house, root=results.parent)
        there_are = [path.parent for path in sorted(results.glob("runs/*/*/*/manifest.json"))]
        done: dict[Path, str] = {} if is_other else dict.fromkeys(there_are, OF_NO_ROW)
        for cell in house.cells:
            for seed in cell.seeds:
                if there.run_folder(cell, seed) in there_are:
                    done[there.run_folder(cell, seed)] = _bring_run(console, house, there, cell, seed, data)
        if is_other:
            done |= _named_otherwise(house, [folder for folder in there_are if folder not in done], data)
        write_plan(house, dataset_record(source))
    _say(console, archive, {folder.relative_to(results / "runs").as_posix(): said for folder, said in done.items()})
    is_any = any(what.startswith((BROUGHT, KEPT)) for what in done.values())
    not_missed = (BROUGHT, KEPT, NAMED, *([OF_ANOTHER] if is_other and is_any else []))
    return sum(not what.startswith(not_missed) for what in done.values())


def _named_otherwise(house: House, runs: list[Path], data: str) -> dict[Path, str]:
    """Which runs of another plan have the config of a row here that is not done, under a name of their own."""
    wanted = {
        cell.config_digest(seed): cell
        for cell in house.cells
        for seed in cell.seeds
        if not finished(house, cell, seed, data)
    }
    configs = {run: read_record(run / "manifest.json").get("digests") for run in runs}
    rows = {run: wanted.get(str(said.get("config"))) for run, said in configs.items() if isinstance(said, dict)}
    return {run: _named(row) for run, row in rows.items() if row}


def _named(row: Cell) -> str:
    """That a run has the config of a row which is called otherwise, and how that row could have it."""
    if row.base is None:
        return f"{NAMED} {row.label}; give that row the name that it has there"
    return f"{NAMED} {row.label}, which an axis, `tuned` or `bf16` makes; to have it, name this variant in its place"


def _say(console: Console, archive: Path, done: dict[str, str]) -> None:
    """What became of each run of an archive; of those that stay as they are how many."""
    for what in dict.fromkeys(done.values()):
        runs = [run for run, said in done.items() if said == what]
        style = None if what.startswith((BROUGHT, KEPT)) else "yellow"
        console.print(f"{archive}: {counted(len(runs), 'run')}: {what}", style=style, markup=False)
        if what != KEPT:
            console.print("\n".join(f"  {run}" for run in runs), markup=False, highlight=False)
    if not done:
        console.print(f"{archive}: it has no run of this plan", markup=False)


def _bring_run(console: Console, house: House, there: House, cell: Cell, seed: int, data: str) -> str:
    """Take one run if it is done there and not here; what became of it."""
    ours, theirs = house.run_folder(cell, seed), there.run_folder(cell, seed)

    def is_done_here() -> bool:
        found = finished(house, cell, seed, data)
        if found is None:
            return False
        weights = ours / "weights.safetensors"
        if weights.is_file() and digest_of_file(weights) == found.get("weights"):  # with which it can be evaluated
            return True
        return is_over(house, cell, seed, found) and not (damaged(ours) or altered(ours, cell.options))

    if is_done_here():
        return KEPT
    manifest = finished(there, cell, seed, data)
    if manifest is None:
        return made_otherwise(there, cell, seed, data)
    if broken := damaged(theirs):
        return f"its {broken}"
    if not is_over(there, cell, seed, manifest):
        return not_evaluated(there, cell, seed, str(manifest.get("weights")))
    if told := altered(theirs, cell.options):
        return f"its {told}"
    if is_held(ours) or is_held(theirs):
        return HELD
    with sole(ours, console.print):
        if is_done_here():  # by a process that came to its end meanwhile
            return KEPT
        are_here = [ours / name for name in ("manifest.json", "weights.safetensors", "checkpoint")]
        said = IN_THE_PLACE if any(path.exists() for path in are_here) else BROUGHT
        (ours / "manifest.json").unlink(missing_ok=True)  # from here on it is not done, until the last file is there
        for old in [path for path in ours.iterdir() if not path.name.startswith(".")]:
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        files = [path for path in sorted(theirs.rglob("[!.]*")) if path.is_file()]  # not the lock of a folder's run
        for file in sorted(files, key=lambda path: path == theirs / "manifest.json"):
            _copy(file, ours / file.relative_to(theirs))
    return said


def _bring_choices(console: Console, house: House, there: House, data: str) -> None:
    """Take the rates that tuning chose there for rows that wait here, with the trials' figures.

    Not of a row that a process is tuning at the moment: it would write its own choice over this one.
    """
    for cell, other in zip(house.cells, there.cells, strict=True):
        if cell.tuned is None or other.tuned is None or not with_current_choice(house, cell, data).waits:
            continue
        if with_current_choice(there, other, data).waits:
            continue
        ours, theirs = (row.path.with_suffix("") for row in (cell.tuned, other.tuned))
        if is_held(ours):
            console.print(f"the tuning of {cell.label}: {HELD}, so its choice is not brought", style="yellow")
            continue
        with sole(ours, console.print):
            if not with_current_choice(house, read_again(cell), data).waits:  # chosen by a process that ended meanwhile
                continue
            for figure in sorted(theirs.rglob("*.json")):
                _copy(figure, ours / figure.relative_to(theirs))
            _copy(other.tuned.path, cell.tuned.path)


def _copy(file: Path, to: Path) -> None:
    with whole_file(to) as temporary:
        shutil.copyfile(file, temporary)


@contextmanager
def _nobody_else(house: House) -> Iterator[None]:
    """Within: no Snakemake is at work on these results, which would train what is brought. Raises ResourceError."""
    with writable(house.folder):
        handle = lock(house.folder)
        if handle is None:
            raise ResourceError(f"Snakemake is at work on {house.folder}; wait for it, or stop it and try again.")
        try:
            yield
        finally:
            os.close(handle)


def _is_another(archive: Path, said: object, plan: Path) -> bool:
    """Whether a plan only has the name of the one that made these results, which is here too."""
    try:
        return not plan_here(archive, said).samefile(plan)
    except (DataError, OSError):
        return False


def _folder(results: Path, to: Path) -> Path:
    """A link to a folder of results in a folder of its own, where it can be called as another plan's."""
    link = to / _name(results)
    link.symlink_to(results.resolve())
    return link


def _unpacked(archive: Path, to: Path) -> Path:
    """Unpack the files of an archive below its one folder; that folder, called as the plan's results are."""
    try:
        with tarfile.open(archive) as stored:
            for member in stored:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or "\0" in member.name:
                    raise DataError(
                        f"{archive} was not made by `capsbench pack`: {member.name} would end up outside the results."
                    )
                content = stored.extractfile(member) if member.isreg() else None
                if content is not None and len(path.parts) > 1:
                    file = to.joinpath("unpacked", *path.parts[1:])
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content.read())
            assert stored.fileobj is not None
            while stored.fileobj.read(1 << 20):  # behind tar's end lies gzip's checksum of all that was read
                pass
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"{archive} is not a complete archive ({error}); copy it again.") from None
    except OSError as error:
        if error.errno in FULL:
            raise ResourceError(
                f"{tempfile.gettempdir()} has no room to unpack {archive} ({error.strerror}); make room there, or set "
                "TMPDIR to a folder on another disk."
            ) from None
        raise DataError(f"{error.filename or archive} cannot be read or unpacked: {error.strerror or error}.") from None
    return (to / "unpacked").rename(to / _name(to / "unpacked", archive))


def _name_of_data(record: dict[str, Any]) -> str | None:
    """The data set that results are of, by their plan.json."""
    dataset = record.get("dataset")
    return str(dataset.get("name")) if isinstance(dataset, dict) else None


def _name(results: Path, archive: Path | None = None) -> str:
    """What plan.json calls the results. Raises DataError: there is none, so that these are no results of ours."""
    name = read_record(results / "plan.json").get("name")
    if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
        is_none = f"{archive} was not made by `capsbench pack --results`" if archive else f"{results} holds no results"
        raise DataError(f"{is_none}: it has no plan.json that names a plan.")
    return name
