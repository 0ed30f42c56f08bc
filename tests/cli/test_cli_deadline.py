"""Minutes that `capsbench work` is given end a wait and an evaluation; nothing is trained."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from capsbench.cli import work as working
from capsbench.cli.chosen import Wanted
from capsbench.cli.work import Deadline, work
from capsbench.data.source import DataSource
from capsbench.errors import ResourceError
from capsbench.locks import sole
from capsbench.pipeline import open_house
from capsbench.plan import Cell, House
from capsbench.training.loop import StopSignal


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the five minutes that `work` is given at the call, however long it took to come there."""
    made: list[Deadline] = []

    class Kept(Deadline):
        def __init__(self, minutes: float | None) -> None:
            super().__init__(minutes)
            made.append(self)

    def end() -> None:
        left, again = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= 5 * 60  # set for when time is up
        assert again > 0
        made[0].end = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.05)  # again and again, as it does: what waits may not wait yet

    monkeypatch.setattr(working, "Deadline", Kept)
    return end


def test_a_wait_for_another_process_ends_in_time(
    begun: list[str], plans: list[Path], time_is_up: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(console: Console, house: House, source: DataSource, cells: list[Cell], *_: Any) -> None:
        time_is_up()
        with sole(house.run_folder(cells[0], 0), console.print):
            raise AssertionError("another process has it")

    monkeypatch.setattr(working, "train_cells", waits)
    house, _ = open_house(plans[0])
    console = Console(record=True, width=300)
    wanted = Wanted(tasks=("mnist",), variants=("cnn",), seeds=(0,))
    with sole(house.run_folder(house.cell("mnist", "cnn"), 0), print):
        undone = work(console, plans[:1], 5, "cpu", 1, wanted)
    assert undone == (1, 0, 0)
    assert "time was up while waiting for the process that is at work on" in console.export_text()


def test_an_evaluation_that_can_save_itself_is_stopped_in_time(
    begun: list[str], plans: list[Path], time_is_up: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(*_: object) -> None:
        with StopSignal() as stop:
            time_is_up()
            for _ in range(600):
                if stop.name:
                    raise ResourceError("stopped, saved after 5 of 80")
                time.sleep(0.05)

    monkeypatch.setattr(working, "evaluate_cells", evaluate)
    console = Console(record=True, width=300)
    assert work(console, plans, 5, "cpu", 1, Wanted(seeds=(0,))) == (8, 0, 0)
    assert "stopped, saved after 5 of 80" in console.export_text()
    assert begun == ["a mnist/cnn 0"]


def test_what_was_trained_when_time_was_up_is_not_evaluated(
    begun: list[str], plans: list[Path], time_is_up: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = working.train_cells

    def trains(*arguments: Any) -> None:
        train(*arguments)
        time_is_up()

    monkeypatch.setattr(working, "train_cells", trains)
    monkeypatch.setattr(working, "evaluate_cells", lambda *_: begun.append("evaluated"))
    assert work(Console(quiet=True), plans, 5, "cpu", 1, Wanted(seeds=(0,))) == (8, 0, 0)
    assert begun == ["a mnist/cnn 0"]
