"""Opening a plan for a command: what stands in for its data is said before the first number."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from capsbench.data.source import DataSource
from capsbench.pipeline import STAND_IN, open_house, open_results
from capsbench.plan import House
from capsbench.provenance import git_state


def open_plan(console: Console, path: Path, *, data: bool = True) -> tuple[House, DataSource]:
    """As open_house; prints what stands in for MNIST, unless the process that began this one has said so.

    `data`: False where results alone are read, as open_results. Raises PlanError or DataError as these two do.
    """
    git_state()  # kept: the commit whose code this process runs, whatever is committed by the time a run ends
    is_said = bool(os.environ.get(STAND_IN))  # before open_house sets it, for jobs that this command begins
    house, source = open_house(path) if data else open_results(path)
    if source.notice and not is_said:
        console.print(source.notice, style="bold yellow")
    return house, source
