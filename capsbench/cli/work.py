"""`capsbench work`: plans run by run, without Snakemake, until time is up; the next call goes on."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from rich.console import Console

from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.cli.tune import tune_cells
from capsbench.data.affnist_place import measured_on
from capsbench.data.source import DataSource
from capsbench.errors import ResourceError
from capsbench.evaluation.done import evaluation_digest, is_evaluated
from capsbench.files import write_json
from capsbench.pipeline import dataset_record, described, open_house
from capsbench.plan import Cell, House
from capsbench.plan.done import is_done, run_digests


class Deadline:
    """A time at which training is stopped, saved, and nothing new begun. An evaluation that runs is let finish.

    Args:
        minutes: from now; None is never.
    """

    def __init__(self, minutes: float | None) -> None:
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return self.end is not None and time.monotonic() >= self.end

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Within: at the deadline this process gets SIGTERM, at which a run saves and stops."""
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
        if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN):  # the loop's own handler is there
            signal.raise_signal(signal.SIGTERM)


def work(console: Console, paths: list[Path], minutes: float | None, device: str | None, threads: int) -> int:
    """Train and evaluate what is missing of plans, in their order; returns how many runs are left when time is up.

    Raises:
        PlanError, DataError, ResourceError: as training and evaluation do.
    """
    deadline = Deadline(minutes)
    houses = [open_house(path) for path in paths]
    for house, source in houses:
        if source.notice:
            console.print(f"[bold yellow]{source.notice}[/]")
        house.folder.mkdir(parents=True, exist_ok=True)
        write_json(house.folder / "plan.json", described(house, dataset_record(source)))
    left = [(house, source, cell, seed) for house, source in houses for cell in house.cells for seed in cell.seeds]
    left = [run for run in left if not _is_finished(*run)]
    console.print(f"{len(left)} runs to do")
    from capsbench.training.together import most_at_once

    while left and not deadline.over:
        house, source, cell, seed = first = left[0]
        chosen = (
            None if most_at_once(len(cell.seeds)) > 1 else seed
        )  # None: the cell's, as many at once as are asked for
        try:
            with deadline.training():
                if cell.waits:
                    house, cell = _tuned(console, house, source, cell, device, threads)
                train_cells(console, house, source, [cell], chosen, device, threads, False, None)
        except ResourceError as error:
            if not deadline.over:
                raise
            console.print(str(error), markup=False)
            break
        if not deadline.over:
            evaluate_cells(console, house, source, [cell], chosen, device, threads, None)
            left = [run for run in left[1:] if chosen is not None or run[2] is not first[2]]
    return len(left)


def _tuned(
    console: Console, house: House, source: DataSource, cell: Cell, device: str | None, threads: int
) -> tuple[House, Cell]:
    """The plan and the row again, with the rate that tuning chose."""
    tune_cells(console, house, source, [cell], device, threads, None)
    fresh, _ = open_house(house.path)
    return fresh, next(other for other in fresh.cells if other.label == cell.label)


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
