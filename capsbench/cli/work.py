"""`capsbench work`: plans run by run, without Snakemake, until time is up; the next call goes on."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from capsbench.cli.affnist import say_affnist
from capsbench.cli.opening import open_plan
from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.cli.tune import tune_cells
from capsbench.cli.wanted import EVERYTHING, Wanted, expected_seconds
from capsbench.data.affnist_place import measured_on
from capsbench.data.source import DataSource
from capsbench.errors import ResourceError
from capsbench.evaluation.done import evaluation_digest, is_evaluated
from capsbench.files import write_json
from capsbench.pipeline import dataset_record, described, open_house
from capsbench.plan import Cell, House
from capsbench.plan.done import is_done, run_digests


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

    def too_early_for(self, seconds: float | None) -> str | None:
        """Why work of so many seconds does not end before it, in words; None where it does, or nobody knows."""
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
    wanted: Wanted = EVERYTHING,
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
        house.folder.mkdir(parents=True, exist_ok=True)
        write_json(house.folder / "plan.json", described(house, dataset_record(source)))
    chosen = zip(houses, cells, strict=True)
    for (house, source), its in zip(houses, cells, strict=True):
        say_affnist(console, house, source, its)
    left = [(*house, cell, seed) for house, its in chosen for cell in its for seed in cell.seeds]
    left = [run for run in left if not _is_finished(*run)]
    passed_over = 0
    console.print(f"{len(left)} runs to do")
    from capsbench.training.together import most_at_once

    while left and not deadline.over:
        house, source, cell, seed = first = left[0]
        if lent is not None and (why := gone.too_early_for(expected_seconds(house, source, cell, seed))):
            console.print(f"{cell.label} seed {seed}: not begun, {why}", markup=False)
            left, passed_over = left[1:], passed_over + 1
            continue
        # None: the cell's, as many at once as are asked for
        one = None if most_at_once(len(cell.seeds)) > 1 else seed
        try:
            with deadline.saving():
                if cell.waits:
                    house, cell = _tuned(console, house, source, cell, device, threads)
                    left = [
                        (house, source, replace(cell, seeds=run[2].seeds), run[3]) if run[2] is first[2] else run
                        for run in left
                    ]
                train_cells(console, house, source, [cell], one, device, threads, False, None)
                if deadline.over:
                    break
                evaluate_cells(console, house, source, [cell], one, device, threads, None)
        except ResourceError as error:
            if not deadline.over:
                raise
            console.print(str(error), markup=False)
            break
        left = [run for run in left[1:] if one is not None or run[2].label != cell.label or run[0] is not house]
    return len(left) + passed_over


def _tuned(
    console: Console, house: House, source: DataSource, cell: Cell, device: str | None, threads: int
) -> tuple[House, Cell]:
    """The plan and the row again, with the rate that tuning chose."""
    tune_cells(console, house, source, [cell], device, threads, None)
    fresh, _ = open_house(house.path)
    fresh.custom_sources.update(house.custom_sources)  # a routing of the user's, imported already, stays what it was
    row = next(other for other in fresh.cells if other.label == cell.label)
    return fresh, replace(row, seeds=cell.seeds)


def _is_finished(house: House, source: DataSource, cell: Cell, seed: int) -> bool:
    """Whether a run is trained and evaluated, or failed."""
    if cell.waits:
        return False
    digests = run_digests(house, cell, seed, dataset_record(source)["digest"], measured_on(house, cell))
    manifest = is_done(house.run_folder(cell, seed), digests["run"])
    if manifest is None:
        return False
    digest = evaluation_digest(cell, manifest)
    return manifest["status"] == "failed" or is_evaluated(house.run_folder(cell, seed), cell, digest)
