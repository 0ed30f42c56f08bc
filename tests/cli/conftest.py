"""Two plans for `capsbench work`, and a stand-in for what trains and evaluates them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from finished_runs import Asked, finished
from rich.console import Console

from capsbench.cli import work as working
from capsbench.cli.chosen import Wanted
from capsbench.cli.work import work
from capsbench.data.source import DataSource
from capsbench.plan import Cell, House

PLAN = """
name: {name}
about: Two rows on two tasks.
budget: reduced
seeds: [0, 1, 2]
uci_digits: true
width: 0.0625
training: {{steps: 4, batch: 16, precision: float32}}
tasks:
  mnist: {{variants: [cnn, capsnet-r3-recon]}}
  multimnist: {{variants: [multimnist-cnn, capsnet-r3-recon]}}
"""


@pytest.fixture
def plans(tmp_path: Path, results: Path, no_data: dict[str, str]) -> list[Path]:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(PLAN.format(name=name))
    return [tmp_path / "a.yaml", tmp_path / "b.yaml"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is trained, in its order: plan, cell, the seeds of one go. A run took ten minutes, its evaluation five."""
    said: list[str] = []

    def train(_: Console, house: House, source: DataSource, cells: list[Cell], *__: Any) -> None:
        for cell in cells:
            said.append(f"{house.name[0]} {cell.label} {' '.join(map(str, cell.seeds))}")
            for seed in cell.seeds:
                finished(house, source, cell, seed, 600, 300)

    monkeypatch.setattr(working, "train_cells", train)
    monkeypatch.setattr(working, "evaluate_cells", lambda *_: None)
    return said


@pytest.fixture
def asked(plans: list[Path]) -> Asked:
    """`work` on both plans: how many runs wait for time, and what was said."""

    def ask(lent: float | None = None, failed: int = 0, **words: tuple[object, ...]) -> tuple[int, str]:
        console = Console(record=True, width=300)
        undone = work(console, plans, None, "cpu", 1, Wanted(**words), lent)  # type: ignore[arg-type]
        assert undone.failed == failed
        return undone.waiting, console.export_text()

    return ask
