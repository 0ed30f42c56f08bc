"""`capsbench work`: plans run by run, without Snakemake, until time is up; the next call goes on."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from capsbench.cli import DISK
from capsbench.cli.affnist import say_affnist
from capsbench.cli.chosen import Wanted
from capsbench.cli.deadline import Deadline
from capsbench.cli.expected import expected_seconds
from capsbench.cli.inputs import import_all, refuse_shared_folders, try_routings
from capsbench.cli.opening import open_plan
from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.cli.tune import tune_cells
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError, ResourceError, counted, refuse_lost_gpu
from capsbench.locks import claimed, is_held, writable
from capsbench.pipeline import dataset_record, finished, is_over, open_house, with_current_choice, write_plan
from capsbench.plan import Cell, House

OUT_OF_MEMORY = ": out of memory"  # in the sentence of a run that does not fit; the next one may


class Todo(NamedTuple):
    """One run that is asked for; `cell` has the seeds that are asked for of it."""

    house: House
    source: DataSource
    cell: Cell
    seed: int
    alone: bool = False  # not at once with other seeds, with which it failed


class Undone(NamedTuple):
    """How many runs were not done: `waiting` for want of time, `failed` for the reasons that were printed; and of how
    many that are done a loss was not finite.
    """

    waiting: int
    failed: int
    not_finite: int


def work(
    console: Console,
    paths: list[Path],
    minutes: float | None,
    device: str | None,
    threads: int,
    wanted: Wanted,
    lent: float | None = None,
) -> Undone:
    """Train and evaluate what is missing of plans, in their order; returns what is left when time is up.

    A run that fails is named and passed over: it must not keep those after it from being done. A run that another
    process is at work on, or has chosen, is left to it while there are others.

    Args:
        minutes: until this command stops. lent: minutes until the machine is given back with all that is on it. A run
            that is known to take longer (`expected_seconds`) is passed over, and the next that may end in time begun.

    Raises:
        PlanError, DataError, RoutingError: a plan, its data, `wanted` or a routing does not hold.
        ResourceError, OSError: a signal came, there is no room on a disk, or the GPU answers no more: then the next run
            would fare no better.
    """
    deadline, gone = Deadline(minutes), Deadline(lent)
    asked = [(run, _status(run)) for run in _asked_for(console, paths, wanted)]
    left = [run for run, status in asked if status is None]
    not_finite = sum(status == "failed" for _, status in asked)
    passed_over = failed = 0
    console.print(f"{counted(len(left), 'run')} to do")
    for house in {id(run.house): run.house for run in left}.values():
        try_routings(console, house, [run.cell for run in left if run.house is house])
    import_all([run.cell for run in left])
    while left and not deadline.over:
        free = next((run for run in left if not is_held(_place(run))), None)
        run = free or left[0]  # others are at work on every run that is left: this waits for one of them
        its = _with_it(run, left)
        known = None
        if lent is not None:
            known = expected_seconds(run.house, run.source, run.cell, run.seed, len(its))
        if why := gone.why_no_time_for(known):
            console.print(f"{run.cell.label} seed {run.seed}: not begun, {why}", markup=False)
            left.remove(run)
            passed_over += 1
            continue
        try:
            with deadline.saving(), nullcontext(True) if free is None else _claimed(its) as is_ours:
                still = _make(console, its, deadline, device, threads) if is_ours else its
        except Exception as error:
            if isinstance(error, ResourceError) and deadline.over:
                console.print(str(error), markup=False)
                break
            _say_failed(console, its, _why_only_these(error))
            refuse_lost_gpu()
            together = len(its) > 1 and not run.cell.waits  # what one seed's failure is need not be the others'
            still = [one._replace(alone=True) for one in its if _status(one) is None] if together else []
            failed += 0 if together else len(its)
        not_finite += sum(_status(one) == "failed" for one in its)
        place = left.index(its[0])
        left = [one for one in left if one not in its]
        left[place:place] = still
    return Undone(len(left) + passed_over, failed, not_finite)


@contextmanager
def _claimed(runs: list[Todo]) -> Iterator[bool]:
    """Within: no other `capsbench work` chooses one of `runs`. Yields False where one was faster."""
    with ExitStack() as claims:
        # the seeds of a row that is to be tuned have one place
        ours = [claims.enter_context(claimed(place)) for place in dict.fromkeys(_place(run) for run in runs)]
        yield all(ours)


def _make(console: Console, its: list[Todo], deadline: Deadline, device: str | None, threads: int) -> list[Todo]:
    """Train and evaluate runs that go together, or tune the row that they wait for; what is still to do of them."""
    run = its[0]
    if run.cell.waits:
        house, row = _tuned(console, run, device, threads)
        return [Todo(house, run.source, row, one.seed) for one in its]
    at_once = replace(run.cell, seeds=tuple(one.seed for one in its))
    train_cells(console, run.house, run.source, [at_once], device, threads)
    if deadline.over:
        return its
    evaluate_cells(console, run.house, run.source, [at_once], device, threads, None)
    return []


def _why_only_these(error: Exception) -> str:
    """Why runs could not be done. Raises `error` where the next would fare no better: a signal, a disk that is full."""
    if isinstance(error, ResourceError) and OUT_OF_MEMORY not in str(error):
        raise error
    if isinstance(error, CapsbenchError):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK:
        raise error
    return "".join(traceback.format_exception(error))  # a mistake of the program, or a kernel that this GPU has not


def _asked_for(console: Console, paths: list[Path], wanted: Wanted) -> list[Todo]:
    """The runs of plans that are asked for, in the plans' order; each plan is described in its folder."""
    houses = [open_plan(console, path) for path in paths]
    refuse_shared_folders([house for house, _ in houses])
    cells = wanted.of([house for house, _ in houses])
    for house, source in houses:
        _describe(house, source)
    runs = []
    for (house, source), its in zip(houses, cells, strict=True):
        say_affnist(console, house, source, its)
        data = dataset_record(source)["digest"]
        rows = [with_current_choice(house, cell, data) for cell in its]
        runs += [Todo(house, source, cell, seed) for cell in rows for seed in cell.seeds]
    return runs


def _place(run: Todo) -> Path:
    """The folder that is held while a run is worked on, or while its row is tuned."""
    if run.cell.waits and run.cell.tuned is not None:
        return run.cell.tuned.path.with_suffix("")
    return run.house.run_folder(run.cell, run.seed)


def _with_it(run: Todo, left: list[Todo]) -> list[Todo]:
    """The runs that are done in one go with this one: its row's where the row is tuned or its seeds train at once."""
    from capsbench.training.together import most_at_once

    its = [one for one in left if one.cell is run.cell]
    if run.cell.waits:
        return its
    if run.alone or most_at_once(len(run.cell.seeds)) == 1:
        return [run]
    return [one for one in its if one is run or not (one.alone or is_held(_place(one)))]


def _say_failed(console: Console, runs: list[Todo], why: str) -> None:
    """Name runs that could not be done."""
    seeds = ", ".join(str(run.seed) for run in runs)
    said = f"{runs[0].cell.label} seed {seeds}: could not be done: {why}"
    console.print(said, style="bold red", markup=False, highlight=False)


def _describe(house: House, source: DataSource) -> None:
    with writable(house.folder):
        write_plan(house, dataset_record(source))


def _tuned(console: Console, run: Todo, device: str | None, threads: int) -> tuple[House, Cell]:
    """The plan and the row again, with the rate that tuning chose."""
    house, cell = run.house, run.cell
    tune_cells(console, house, run.source, [cell], device, threads, None)
    fresh, _ = open_house(house.path)
    fresh.custom_sources.update(house.custom_sources)  # a routing of the user's, imported already, stays what it was
    _describe(fresh, run.source)  # the row's runs are to have the config that tuning chose
    return fresh, replace(fresh.cell(cell.task, cell.variant), seeds=cell.seeds)


def _status(run: Todo) -> str | None:
    """`done` of a run that is trained and evaluated, `failed` where its loss was not finite; None of what is to do."""
    if run.cell.waits:
        return None
    manifest = finished(run.house, run.cell, run.seed, dataset_record(run.source)["digest"])
    if manifest is None or not is_over(run.house, run.cell, run.seed, manifest):
        return None
    return str(manifest["status"])
