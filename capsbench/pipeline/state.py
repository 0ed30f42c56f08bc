"""What of a plan is done: runs by their digests, the report by the numbers that it shows. plan.json."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from capsbench.data.affnist_place import measured_on
from capsbench.evaluation.done import evaluation_digest, is_evaluated
from capsbench.files import read_json
from capsbench.plan.done import cost_digest, is_done, run_digests
from capsbench.plan.load import config_folder
from capsbench.plan.runs import Cell, House
from capsbench.provenance import PACKAGE, digest_of, digest_of_file, source_digest


def finished(house: House, cell: Cell, seed: int, data: str) -> dict[str, Any] | None:
    """The manifest of a run that is done with this plan, source and data (its digest); None where it is not.

    Of a row that waits for tuning no run is: its config is not known yet.
    """
    if cell.waits:
        return None
    digest = run_digests(house, cell, seed, data, measured_on(house, cell))["run"]
    return is_done(house.run_folder(cell, seed), digest)


def is_over(house: House, cell: Cell, seed: int, manifest: dict[str, Any]) -> bool:
    """Whether a run that is done has its metrics too; a failed one has none to have."""
    digest = evaluation_digest(cell, manifest)
    return manifest["status"] == "failed" or is_evaluated(house.run_folder(cell, seed), cell, digest)


def described(house: House, data: dict[str, str]) -> dict[str, Any]:
    """plan.json: the plan, and the digest that its cost.json must have (null where the plan wants none)."""
    return {**house.describe(data), "cost": cost_digest(house) if house.plan.cost is not None else None}


def report_source() -> str:
    """Digest of what decides how results are shown: the report's code, templates, published figures, claims."""
    templates = sorted((PACKAGE / "report" / "templates").iterdir())
    words = [*templates, config_folder() / "published.yaml", config_folder() / "claims.yaml"]
    return digest_of(
        [source_digest(["capsbench.report"]), {path.name: digest_of_file(path) for path in words if path.is_file()}]
    )


def numbers_digest(folder: Path) -> str:
    """Digest of every manifest and metrics.json in a results folder, and of cost.json: the numbers of its report."""
    total = hashlib.sha256()
    for pattern in ("*/*/*/manifest.json", "*/*/*/*/metrics.json"):
        for path in sorted((folder / "runs").glob(pattern)):
            total.update(f"{path.relative_to(folder).as_posix()} {_digest_if_readable(path)}\n".encode())
    if (folder / "cost.json").is_file():
        total.update(f"cost.json {_digest_if_readable(folder / 'cost.json')}\n".encode())
    return total.hexdigest()


def _digest_if_readable(path: Path) -> str:
    """A file that cannot be read is left out of the report, which names it: no reason to draw none."""
    try:
        return digest_of_file(path)
    except OSError:
        return "unreadable"


def is_report_kept(folder: Path) -> bool:
    """Whether every file that the last report wrote is there and shows the numbers that are there."""
    try:
        promise = read_json(folder / "cells" / "reported.json")
        return promise["numbers"] == numbers_digest(folder) and all((folder / f).is_file() for f in promise["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False
