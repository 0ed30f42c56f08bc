"""The short plan by which benchmarks/same_bits.py compares two commits: each task of each plan has one that trains."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml
from scripts import script

from capsbench.data import pairing
from capsbench.plan import House, config_folder
from capsbench.plan.load import load_plan

TASKS = [
    (path.name, task, variant)
    for path in sorted(config_folder().glob("*.yaml"))
    if path.name not in ("variants.yaml", "claims.yaml", "published.yaml")
    for task, options in load_plan(path)[0].tasks.given().items()
    for variant in (None, options.variants[-1])
]


@pytest.mark.parametrize(("name", "task", "variant"), TASKS)
def test_every_row_trains_a_few_steps_of_one_seed(name: str, task: str, variant: str | None, tmp_path: Path) -> None:
    path = config_folder() / name
    given = argparse.Namespace(plan=path, task=task, variant=variant and [variant], steps=7)
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(script("same_bits").short_plan(given)))
    house = House.load(tmp_path / "short.yaml")
    rows = [variant] if variant else getattr(load_plan(path)[0].tasks, task).variants
    assert [(cell.label, list(cell.seeds), cell.training.steps) for cell in house.cells] == [
        (f"{task}/{row}", [0], 7) for row in rows
    ]
    assert all(cell.training.precision == "float32" for cell in house.cells)
    if task == "multimnist":  # of the first test digits, about as many of each class
        pairing._check([house.cells[0].options.test_images // 10] * 10, house.cells[0].options.test_pairs)
