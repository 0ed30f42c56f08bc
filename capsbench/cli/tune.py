"""`capsbench tune`: the trials of every tuned row, and the choice that they make, stored."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from capsbench.cli.held import held_device
from capsbench.cli.inputs import import_all, try_routings
from capsbench.cli.precision import precision_of
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError
from capsbench.files import write_json
from capsbench.locks import sole, writable
from capsbench.pipeline import dataset_record
from capsbench.plan import Cell, House
from capsbench.plan.done import is_tuned, read_again, trial_digest, tuning_digest
from capsbench.plan.tuning import Point

if TYPE_CHECKING:
    import torch

    from capsbench.data.digits import Digits

Figures = dict[Point, list[dict[str, Any]]]  # what the trials of each point of the grid gave, by seed


def tune_cells(
    console: Console,
    house: House,
    source: DataSource,
    cells: list[Cell],
    device: str | None,
    threads: int,
    done: Path | None,
) -> None:
    """Choose learning rate and schedule for the tuned rows among `cells` that have none yet; then say so in `done`.

    Raises CapsbenchError where there is nothing to tune, or where the loss was not finite at any point of the grid.
    """
    tuned = [cell for cell in cells if cell.tuned is not None]
    if not tuned:
        raise CapsbenchError(
            f"{house.path} asks for no tuning here; write `tuned: true` in a task, and add a key `tuning`."
        )
    dataset = dataset_record(source)
    digests = {cell.label: tuning_digest(house, cell, dataset["digest"]) for cell in tuned}
    waiting = [cell for cell in tuned if not is_tuned(cell, digests[cell.label])]
    for cell in tuned:
        if cell not in waiting and cell.tuned and cell.tuned.point:
            console.print(f"{cell.label}: {_words(cell.tuned.point)} already chosen")
    try_routings(console, house, waiting)
    if waiting:
        with writable(house.folder):
            house.folder.mkdir(parents=True, exist_ok=True)
        _tune(console, house, source, dataset, waiting, digests, device, threads)
    if done:
        write_json(done, [{"task": cell.task, "variant": cell.base, "digest": digests[cell.label]} for cell in tuned])


def _tune(
    console: Console,
    house: House,
    source: DataSource,
    dataset: dict[str, str],
    waiting: list[Cell],
    digests: dict[str, str],
    device: str | None,
    threads: int,
) -> None:
    from capsbench.data.digits import load_digits

    import_all(waiting)
    with held_device(console, device, threads) as chosen:
        digits = load_digits(source, chosen)
        for cell in waiting:
            assert cell.tuned is not None
            with sole(cell.tuned.path.with_suffix(""), console.print):
                row = read_again(cell)
                if is_tuned(row, digests[cell.label]) and row.tuned and row.tuned.point:
                    console.print(f"{cell.label}: {_words(row.tuned.point)} chosen meanwhile by another process")
                    continue
                figures = _figures(console, house, cell, digits, dataset, chosen, threads)
                point = _store(house, cell, figures, digests[cell.label])
            console.print(f"{cell.label}: {_words(point)} chosen")


def _figures(
    console: Console,
    house: House,
    cell: Cell,
    digits: Digits,
    dataset: dict[str, str],
    device: torch.device,
    threads: int,
) -> Figures:
    """What each trial of a row gives, by point of the grid; those that are done are read."""
    from capsbench.cli.progress import show_progress
    from capsbench.training.run import Setting
    from capsbench.training.tune import judge, judged

    figures: Figures = {}
    resolved: dict[str, Any] | None = None  # all trials of a row train alike
    for trial in house.trials(cell):
        assert trial.trial is not None
        setting = Setting(house, trial, digits, dataset, device, threads, say=console.print)
        for seed in trial.seeds:
            digest = trial_digest(house, trial, seed, dataset["digest"])
            figure = judged(house.run_folder(trial, seed), digest)
            if figure is None:
                resolved = resolved or precision_of(setting, seed)
                with show_progress(console, trial, seed) as show:
                    figure = judge(setting, seed, digest, show, resolved)
            resolved = resolved or {"precision": figure["precision"], "precision_timings": None}
            figures.setdefault(trial.trial.point, []).append(figure)
            console.print(f"{trial.label} seed {seed}, {_words(trial.trial.point)}: {_said(figure)}")
    return figures


def _store(house: House, cell: Cell, figures: Figures, digest: str) -> Point:
    """Write the choice: the point with the lowest mean error over seeds, of equal ones the first of the grid."""
    assert cell.tuned is not None
    trial = house.trials(cell)[0]
    assert trial.trial is not None
    # a point at which one seed's loss was not finite is no point to train at
    means = {
        point: statistics.fmean(figure["error"] for figure in of)
        for point, of in figures.items()
        if all(figure["error"] is not None for figure in of)
    }
    if not means:
        raise CapsbenchError(
            f"{cell.label}: the loss was not finite at any point of the grid, so there is nothing to choose; "
            f"leave {cell.base} out of tasks.{cell.task}.tuned in {house.path}."
        )
    best = min(means, key=lambda point: means[point])
    choice = {
        "schema": 1,
        "task": cell.task,
        "variant": trial.folder_name,
        "recipe": cell.tuned.recipe,
        "digest": digest,
        "chosen": best.training_keys(),
        "metric": {"name": "held_out_error", "unit": "%", "digits": trial.trial.held_out},
        "seeds": list(trial.seeds),
        "grid": [
            {
                **point.training_keys(),
                "mean": means.get(point),
                "errors": [figure["error"] for figure in of],
                "failed": [figure["reason"] for figure in of if figure["error"] is None],
                "steps": of[0]["steps"],
                "digests": [figure["digest"] for figure in of],
            }
            for point, of in figures.items()
        ],
    }
    with writable(house.folder):
        write_json(cell.tuned.path, choice)
    return best


def _words(point: Point) -> str:
    return f"rate {point.rate:g}, decay {point.decay:g}"


def _said(figure: dict[str, Any]) -> str:
    return f"failed: {figure['reason']}" if figure["error"] is None else f"{figure['error']:.2f} % held-out error"
