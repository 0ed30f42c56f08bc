"""What of a plan is done: runs by their digests, the report by the numbers that it shows. plan.json."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from capsbench.data.affnist_place import measured_on
from capsbench.evaluation.done import is_evaluated, stored_digest
from capsbench.files import read_json, read_record
from capsbench.plan.done import cost_digest, is_done, is_tuned, run_digests, tuning_digest
from capsbench.plan.load import config_folder
from capsbench.plan.runs import Cell, House
from capsbench.plan.same_bits import same_bits_file
from capsbench.provenance import PACKAGE, digest_of, digest_of_file, source_digest

SHOWN = ("report.html", "plan.json")  # the report, and what it is of
# modules of capsbench.plan, which source_digest leaves out
PLAN_OF_REPORT = ("claims", "load", "outside", "same_bits", "spec", "task", "tasks", "yaml_file")


def finished(house: House, cell: Cell, seed: int, data: str) -> dict[str, Any] | None:
    """The manifest of a run that is done with this plan, source and data (its digest); None where it is not.

    Of a row that waits for tuning no run is: its config is not known yet.
    """
    if cell.waits:
        return None
    return is_done(house.run_folder(cell, seed), run_digests(house, cell, seed, data, measured_on(house, cell)))


def with_current_choice(house: House, cell: Cell, data: str) -> Cell:
    """The cell; a tuned row whose choice was made by other trials than today's (their source, their data) waits."""
    if cell.tuned is None or cell.waits or is_tuned(cell, tuning_digest(house, cell, data)):
        return cell
    return replace(cell, tuned=replace(cell.tuned, point=None))


def is_over(house: House, cell: Cell, seed: int, manifest: dict[str, Any]) -> bool:
    """Whether a run that is done has its metrics too; a failed one has none to have."""
    return manifest["status"] == "failed" or is_evaluated(house.run_folder(cell, seed), cell, manifest)


def described(house: House, data: dict[str, str]) -> dict[str, Any]:
    """plan.json: the plan, and the digest that its cost.json must have (null where the plan wants none)."""
    return {**house.describe(data), "cost": cost_digest(house) if house.plan.cost is not None else None}


def described_now(house: House, data: dict[str, str]) -> dict[str, Any]:
    """`described`, and of each run that is trained the digest that its metrics must have: its options and source.

    They may have changed since it was evaluated, and the source that trained it since it was trained (`outdated`); the
    report then names it.
    """
    said = described(house, data)
    runs = ((cell, seed) for cell in house.cells for seed in cell.seeds)  # as House.describe lists them
    for run, (cell, seed) in zip(said["runs"], runs, strict=True):
        folder = house.run_folder(cell, seed)
        manifest = read_record(folder / "manifest.json")
        if {"digest", "weights"} <= manifest.keys():
            run["evaluation"] = stored_digest(folder, cell, manifest)
            if finished(house, cell, seed, data["digest"]) is None and _is_of_this_plan(
                house, cell, seed, data, manifest
            ):
                run["outdated"] = True
    return said


def _is_of_this_plan(house: House, cell: Cell, seed: int, data: dict[str, str], manifest: dict[str, Any]) -> bool:
    """Whether all but the source that trained a run is as the plan has it now."""
    now = run_digests(house, cell, seed, data["digest"], measured_on(house, cell))
    made = manifest.get("digests")
    return isinstance(made, dict) and all(made.get(key) == now.get(key) for key in ("config", "data", "test_set"))


def report_source() -> str:
    """Digest of what decides how results are shown: the report's code, templates, published figures, claims."""
    templates = sorted((PACKAGE / "report" / "templates").iterdir())
    code = [PACKAGE / "plan" / f"{name}.py" for name in PLAN_OF_REPORT]
    said = [config_folder() / name for name in ("published.yaml", "claims.yaml")]
    words = [*templates, *code, *said, same_bits_file()]
    return digest_of(
        [source_digest(["capsbench.report"]), {path.name: digest_of_file(path) for path in words if path.is_file()}]
    )


def numbers_digest(folder: Path) -> str:
    """Digest of all in a results folder that its report is drawn from (`drawn_from`), by content alone.

    Of a clone, whose files are all newly written, it is the same. Sizes would be quicker to ask for, but damage may
    leave them as they are: a report of damaged predictions would stay when they are back. What a plan's report reads
    is small enough to be read again, since pictures are few and answers are packed.
    """
    total = hashlib.sha256()
    for path in drawn_from(folder):
        total.update(f"{path.relative_to(folder).as_posix()} {_digest_if_readable(path)}\n".encode())
    return total.hexdigest()


def drawn_from(folder: Path) -> Iterator[Path]:
    """The files of runs that a report reads, and cost.json: not weights, checkpoints, logs or scores.npz."""
    for manifest in sorted((folder / "runs").glob("*/*/*/manifest.json")):
        run = manifest.parent
        yield from (manifest, *(path for name in ("history.csv", "curve.csv") if (path := run / name).exists()))
        for metrics in sorted(run.glob("*/metrics.json")):
            beside = [*metrics.parent.glob("*.csv"), *metrics.parent.glob("*.npz")]
            yield from (metrics, *(path for path in sorted(beside) if path.name != "scores.npz"))
    if (folder / "cost.json").exists():
        yield folder / "cost.json"


def _digest_if_readable(path: Path) -> str:
    """A file that cannot be read is left out of the report, which names it: no reason to draw none."""
    try:
        return digest_of_file(path)
    except OSError:
        return "unreadable"


def shown_digests(folder: Path) -> dict[str, str]:
    """Digest of each file in a results folder that tells which plan and claims its report is of."""
    return {name: _digest_if_readable(folder / name) for name in SHOWN}


def is_report_kept(folder: Path) -> bool:
    """Whether every file that the last job's report wrote is there, as it was, and shows the numbers of now.

    A plan (or claims) that was edited, reported by hand and then taken back has left the report of the edit behind: no
    number tells it, and to Snakemake it is the newest. What an edit asks for that is still there Snakemake sees itself.
    """
    try:
        promise = read_json(folder / "cells" / "reported.json")
        if promise["shown"] != shown_digests(folder) or promise["numbers"] != numbers_digest(folder):
            return False
        return all((folder / f).is_file() for f in promise["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False
