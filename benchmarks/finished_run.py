"""A finished run's folder and the plan that trains it, for the scripts here that look at one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError
from capsbench.files import read_json
from capsbench.pipeline import open_results
from capsbench.plan import Cell, House


def manifest_of(run: Path) -> dict[str, Any]:
    """The manifest of a run's folder. Ends this process with a sentence where there is none."""
    try:
        return dict(read_json(run / "manifest.json"))
    except (OSError, ValueError) as error:
        sys.exit(f"{run} is no finished run: {error}")


def as_planned(manifest: dict[str, Any], plan: Path) -> tuple[House, DataSource, Cell]:
    """The plan, its data and the run's cell.

    Ends this process with a sentence where plan or data are wrong, or the plan trains that row in another way.
    """
    task, variant = manifest["run"]["task"], manifest["run"]["variant"]
    try:
        house, source = open_results(plan)
        cell = house.cell(task, variant)
    except CapsbenchError as error:
        sys.exit(str(error))
    if {key: value for key, value in manifest["config"].items() if key != "steps"} != cell.config():
        sys.exit(f"{plan} trains {task}/{variant} in another way than this run; name the run's own plan with --plan.")
    return house, source, cell
