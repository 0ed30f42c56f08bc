"""What `capsbench work` makes of runs that fail: the others are done, or the work ends; what trains is a stand-in."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from finished_runs import Asked
from rich.console import Console

from capsbench.cli import work as working
from capsbench.cli.chosen import Wanted
from capsbench.cli.work import work
from capsbench.data.source import DataSource
from capsbench.errors import DataError, ResourceError
from capsbench.files import read_json, write_json
from capsbench.plan import Cell, House


def test_a_run_that_fails_does_not_keep_the_others_from_being_done(
    begun: list[str], asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = working.train_cells
    reasons = {
        "mnist/cnn 0": ResourceError("mnist/cnn seed 0: out of memory on cuda:0 at batch 128; say less"),
        "mnist/cnn 2": RuntimeError("conv2d has no deterministic implementation"),
        "multimnist/multimnist-cnn 1": DataError("the digits are torn"),
    }

    def fails(console: Console, house: House, source: DataSource, cells: list[Cell], *rest: Any) -> None:
        if house.name == "a-digits" and (why := reasons.get(f"{cells[0].label} {cells[0].seeds[0]}")):
            raise why
        train(console, house, source, cells, *rest)

    monkeypatch.setattr(working, "train_cells", fails)
    rows = ("cnn", "multimnist-cnn")
    left, said = asked(failed=3, variants=rows)
    assert left == 0
    assert len(begun) == 2 * 2 * 3 - 3
    for words in ("seed 0: could not be done: mnist/cnn seed 0: out of memory", "the digits are torn", "Traceback"):
        assert words in said
    begun.clear()
    reasons.clear()
    assert asked(variants=rows)[0] == 0  # the same command tries them again, and them alone
    assert begun == ["a mnist/cnn 0", "a mnist/cnn 2", "a multimnist/multimnist-cnn 1"]


def test_runs_whose_loss_was_not_finite_are_counted_on_every_call(
    begun: list[str], plans: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = working.train_cells

    def diverges(console: Console, house: House, source: DataSource, cells: list[Cell], *rest: Any) -> None:
        train(console, house, source, cells, *rest)
        if cells[0].label == "mnist/cnn":
            path = house.run_folder(cells[0], cells[0].seeds[0]) / "manifest.json"
            write_json(path, read_json(path) | {"status": "failed"})

    monkeypatch.setattr(working, "train_cells", diverges)
    for expected in (2 * 3, 0):  # the second call has nothing to do
        undone = work(Console(), plans, None, "cpu", 1, Wanted(tasks=("mnist",), variants=("cnn",)), None)
        assert undone == (0, 0, 2 * 3)
        assert len(begun) == expected
        begun.clear()


@pytest.mark.parametrize(
    "error",
    [ResourceError("stopped by SIGTERM, saved after step 3 of 4"), OSError(errno.ENOSPC, "No space left on device")],
)
@pytest.mark.parametrize("stage", ["train_cells", "evaluate_cells"])
def test_a_signal_or_a_full_disk_ends_the_work(
    begun: list[str], asked: Asked, monkeypatch: pytest.MonkeyPatch, stage: str, error: Exception
) -> None:
    def stops(*_: Any) -> None:
        raise error

    monkeypatch.setattr(working, stage, stops)
    with pytest.raises(type(error), match=r"stopped by SIGTERM|No space left"):
        asked()
    assert len(begun) == (stage == "evaluate_cells")


def test_a_lost_gpu_ends_the_work(begun: list[str], asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock of CUDA after an illegal access: every call fails."""

    def fails(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(working, "train_cells", fails)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    with pytest.raises(ResourceError, match="The GPU is lost to this process; give the same command again"):
        asked()


def test_what_fails_of_one_seed_costs_those_beside_it_nothing(
    begun: list[str], asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(_: Console, __: House, ___: DataSource, cells: list[Cell], *____: Any) -> None:
        if 1 in cells[0].seeds:
            raise RuntimeError("of seed 1")

    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", "3")
    monkeypatch.setattr(working, "evaluate_cells", evaluate)
    train = working.train_cells

    def torn(console: Console, house: House, source: DataSource, cells: list[Cell], *rest: Any) -> None:
        train(console, house, source, cells, *rest)
        if len(cells[0].seeds) > 1:
            for seed in cells[0].seeds:  # as where the first evaluation failed: none of them has metrics
                (house.run_folder(cells[0], seed) / "test" / "metrics.json").unlink()

    monkeypatch.setattr(working, "train_cells", torn)
    left, _ = asked(failed=2, tasks=("mnist",), variants=("cnn",))
    assert left == 0
    assert begun == [f"{plan} mnist/cnn {seeds}" for plan in "ab" for seeds in ("0 1 2", "0", "1", "2")]
