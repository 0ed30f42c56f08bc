"""plan.json, and copies of what a plan of the user's own is made of: the file, and the routings beside it.

The suite's plans and routings are those of the commit that manifests name. What lies outside it is nowhere else, and a
digest says only that it has changed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from capsbench.files import read_record, whole_file, write_json
from capsbench.locks import READING, lock
from capsbench.pipeline.house import WHOSE, note_place, refuse_another_s
from capsbench.pipeline.state import described_now
from capsbench.plan import House, config_folder
from capsbench.plan.custom import custom_files
from capsbench.plan.routings import is_custom

COPIES = "plan"  # the folder of them in the results
COPIED = (".py", ".yaml", ".yml")  # what they end in; whatever else lies there is somebody's


def begin_results(house: House, data: dict[str, str]) -> None:
    """Before runs are trained: let the results' folder be this plan's, and hold what these runs are made of.

    plan.json is written where nothing says yet whose the folder is, or where it is of the plan before an edit. Plans
    that begin at once come here one after the other. Raises PlanError where the folder is another plan's; OSError.
    """
    held = lock(house.folder, wait=True, name=READING)  # for a moment
    try:
        refuse_another_s(house)
        stored = read_record(house.folder / "plan.json").get("digest")
        is_begun = any((house.folder / name).is_file() for name in WHOSE)
        if not is_begun or stored not in (None, house.digest):
            write_plan(house, data)
        else:
            note_place(house)
            _keep_copies(house)
    finally:
        if held is not None:
            os.close(held)


def write_plan(house: House, data: dict[str, str]) -> None:
    """Write plan.json (docs/results-format.md) and, of a plan that is not the suite's own, `plan/` beside it."""
    note_place(house)
    write_json(house.folder / "plan.json", described_now(house, data))
    _keep_copies(house)


def _keep_copies(house: House) -> None:
    """Keep `plan/`, but of a plan that lies with its results already, or is such a copy."""
    if not house.path.resolve().is_relative_to(house.folder.resolve()):
        _keep(house.folder / COPIES, sources_outside(house))


def sources_outside(house: House) -> dict[str, Path]:
    """A plan's files that no commit of the suite has, by what they are called in one folder, where they would run."""
    if house.path.resolve().parent == config_folder().resolve():
        return {}
    found = {house.path.name: house.path}
    routings = {getattr(cell.spec, "routing", "") for cell in house.cells}
    for routing in filter(is_custom, routings):
        for module, path in custom_files(routing, house.path.parent).items():
            parts = module.split(".")
            found["/".join([*parts, "__init__.py"] if path.stem == "__init__" else [*parts[:-1], path.name])] = path
    return found


def _keep(folder: Path, sources: dict[str, Path]) -> None:
    """Make `folder` hold these files and no other plan or routing; those that are the same already stay as they are."""
    for name, path in sources.items():
        content, copy = path.read_bytes(), folder / name
        if not copy.is_file() or copy.read_bytes() != content:
            with whole_file(copy) as temporary:
                temporary.write_bytes(content)
    kept = {folder / name for name in sources}
    if not folder.is_dir() or folder.is_symlink():  # a link leads to a folder that is not ours to clear
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        with contextlib.suppress(OSError):  # a folder that is not empty; or another process removes it too
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path not in kept and path.suffix in COPIED:
                path.unlink()
    if not sources:
        with contextlib.suppress(OSError):
            folder.rmdir()
