"""`capsbench work`: plans run by run, without Snakemake, until time is up; the next call goes on."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rich.console import Console

from capsbench.cli.affnist import say_affnist
from capsbench.cli.opening import open_plan
from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.cli.tune import tune_cells
from capsbench.cli.wanted import Wanted, expected_seconds
from capsbench.data.source import DataSource
from capsbench.errors import ResourceError, counted
from capsbench.files import write_json
from capsbench.pipeline import dataset_record, described, finished, is_over, open_house, writable
from capsbench.plan import Cell, House


class Todo(NamedTuple):
    """One run that is asked for; `cell` has the seeds that are asked for of it."""

    house: House
    source: DataSource
    cell: Cell
    seed: int


class Deadline:
    """A time at which what can save itself is stopped and nothing new begun; an evaluation that cannot is let finish.

    Args:
        minutes: from now; None is never.
    """

    def __init__(self, minutes: float | None) -> None:
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return self.end is not None and time.monotonic() >= self.end

    def why_no_time_for(self, seconds: float | None) -> str | None:
        """Why work of so many seconds would not end before the deadline; None where it would, or nobody knows."""
        if self.end is None or seconds is None or (left := self.end - time.monotonic()) >= seconds:
            return None
        return (
            f"as another of its seeds took {seconds / 60:.1f} minutes and the machine is lent for {left / 60:.1f} more"
        )

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Within: at the deadline this process gets SIGTERM, at which whatever can save itself does and stops."""
        if self.end is None:
            yield
            return
        before = signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.monotonic(), 0.001), 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @staticmethod
    def _stop(_: int, __: FrameType | None) -> None:
        if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN):  # a handler that saves is there
            signal.raise_signal(signal.SIGTERM)


def work(
    console: Console,
    paths: list[Path],
    minutes: float | None,
    device: str | None,
    threads: int,
    wanted: Wanted,
    lent: float | None = None,
) -> int:
    """Train and evaluate what is missing of plans, in their order; returns how many runs are left when time is up.

    Args:
        minutes: until this command stops. lent: minutes until the machine is given back with all that is on it. A run
            that is known to take longer (`expected_seconds`) is passed over, and the next that may end in time begun.

    Raises:
        PlanError, DataError, ResourceError: as training and evaluation do, and PlanError as `Wanted.of`.
    """
    deadline, gone = Deadline(minutes), Deadline(lent)
    houses = [open_plan(console, path) for path in paths]
    cells = wanted.of([house for house, _ in houses])
    for house, source in houses:
        _describe(house, source)
    left = []
    for (house, source), its in zip(houses, cells, strict=True):
        say_affnist(console, house, source, its)
        left += [Todo(house, source, cell, seed) for cell in its for seed in cell.seeds]
    left = [run for run in left if not _is_finished(run)]
    passed_over = 0
    console.print(f"{counted(len(left), 'run')} to do")
    from capsbench.training.together import most_at_once

    while left and not deadline.over:
        house, source, cell, seed = left[0]
        if lent is not None and (why := gone.why_no_time_for(expected_seconds(house, source, cell, seed))):
            console.print(f"{cell.label} seed {seed}: not begun, {why}", markup=False)
            left, passed_over = left[1:], passed_over + 1
            continue
        try:
            with deadline.saving():
                if cell.waits:
                    fresh, row = _tuned(console, house, source, cell, device, threads)
                    left = [Todo(fresh, source, row, run.seed) if run.cell is cell else run for run in left]
                    house, cell = fresh, row
                at_once = cell if most_at_once(len(cell.seeds)) > 1 else replace(cell, seeds=(seed,))
                train_cells(console, house, source, [at_once], device, threads, False, None)
                if deadline.over:
                    break
                evaluate_cells(console, house, source, [at_once], device, threads, None)
        except ResourceError as error:
            if not deadline.over:
                raise
            console.print(str(error), markup=False)
            break
        left = [run for run in left if run.cell is not cell or run.seed not in at_once.seeds]
    return len(left) + passed_over


def _describe(house: House, source: DataSource) -> None:
    with writable(house.folder):
        write_json(house.folder / "plan.json", described(house, dataset_record(source)))


def _tuned(
    console: Console, house: House, source: DataSource, cell: Cell, device: str | None, threads: int
) -> tuple[House, Cell]:
    """The plan and the row again, with the rate that tuning chose."""
    tune_cells(console, house, source, [cell], device, threads, None)
    fresh, _ = open_house(house.path)
    fresh.custom_sources.update(house.custom_sources)  # a routing of the user's, imported already, stays what it was
    _describe(fresh, source)  # the row's runs are to have the config that tuning chose
    return fresh, replace(fresh.cell(cell.task, cell.variant), seeds=cell.seeds)


def _is_finished(run: Todo) -> bool:
    """Whether a run is trained and evaluated, or failed."""
    if run.cell.waits:
        return False
    manifest = finished(run.house, run.cell, run.seed, dataset_record(run.source)["digest"])
    return manifest is not None and is_over(run.house, run.cell, run.seed, manifest)
