"""What is said of finished runs that training is about to replace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from capsbench.cli.again import say_what_is_made_again, what_changed
from capsbench.files import write_json
from capsbench.plan import House, same_bits
from capsbench.plan.done import run_digests
from capsbench.training.checkpoint import write_tensors

PLAN = """
budget: reduced
seeds: [0, 1, 2, 3, 4, 5]
training: {steps: 1}
tasks:
  mnist: {variants: [cnn]}
"""


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "plan.yaml").write_text(PLAN)
    return replace(House.load(tmp_path / "plan.yaml"), root=tmp_path / "results")


def test_finished_runs_that_are_replaced_are_named_with_what_changed(house: House) -> None:
    cell = house.cells[0]
    now = run_digests(house, cell, 0, "data")
    stored = {
        0: {"status": "done", "digests": {**run_digests(house, cell, 0, "data"), "training_source": "another"}},
        1: {"status": "failed", "digests": {**now, "data": "another"}},  # nothing to lose
        2: {"status": "done"},  # no manifest of ours
        3: {"status": "done", "digests": {"training_source": "another", "config": "c", "data": "data"}},
        4: {"status": "done", "digests": run_digests(house, cell, 4, "data")},  # as it is wanted, but not whole
    }
    for seed, manifest in stored.items():
        write_json(house.run_folder(cell, seed) / "manifest.json", manifest)
    console = Console(record=True, width=300)
    say_what_is_made_again(console, house, [(cell, seed) for seed in cell.seeds], "data")
    assert console.export_text().splitlines() == [
        "made again, as the training source changed: mnist/cnn seed 0",
        "made again, as the config and training source changed: mnist/cnn seed 3",
    ]


def test_a_run_that_was_stopped_half_way_in_another_training_is_named(house: House) -> None:
    cell = house.cells[0]
    digests = {seed: run_digests(house, cell, seed, "data")["run"] for seed in cell.seeds}
    for seed, run in {0: "another", 1: digests[1], 2: None}.items():
        path = house.run_folder(cell, seed) / "checkpoint" / "last.safetensors"
        write_tensors(path, {"sums": torch.zeros(1)}, {"run": run})
    torn = house.run_folder(cell, 3) / "checkpoint" / "last.safetensors"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(path.read_bytes()[:20])
    console = Console(record=True, width=300)
    say_what_is_made_again(console, house, [(cell, seed) for seed in cell.seeds], "data")
    said = "begun again, as config, source or data changed since the checkpoint: mnist/cnn seed 0"
    assert console.export_text().strip() == said


@pytest.mark.parametrize(("runs", "more"), [(6, " and 3 more"), (3, "")])
def test_of_many_some_are_named(house: House, runs: int, more: str) -> None:
    cell = house.cells[0]
    for seed in cell.seeds:
        digests = {**run_digests(house, cell, seed, "data"), "data": "another"}
        write_json(house.run_folder(cell, seed) / "manifest.json", {"status": "done", "digests": digests})
    console = Console(record=True, width=300)
    say_what_is_made_again(console, house, [(cell, seed) for seed in cell.seeds[:runs]], "data")
    said = f"made again, as the data changed: mnist/cnn seed 0, mnist/cnn seed 1, mnist/cnn seed 2{more}"
    assert console.export_text().strip() == said


def test_a_source_that_was_shown_to_give_the_same_bits_is_no_reason(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = house.cells[0]
    now = run_digests(house, cell, 0, "data")
    made = {"run": {"task": "mnist"}, "config": cell.config(), "resolved": {"device": "cpu", "precision": "float32"}}
    digests = {**now, "training_source": "before", "data": "another"}
    write_json(house.run_folder(cell, 0) / "manifest.json", {"status": "done", "digests": digests} | made)
    assert what_changed(house, cell, 0, "data") == "training source and data"
    row = {"what_trains": same_bits.what_trains("mnist", cell.config())}
    known = {"changes": [{"device": "cpu", "runs": [row | {"training": ["before", now["training_source"]]}]}]}
    write_json(tmp_path / "same-bits.json", known)
    monkeypatch.setattr(same_bits, "same_bits_file", lambda: tmp_path / "same-bits.json")
    assert what_changed(house, cell, 0, "data") == "data"


def test_another_affnist_is_a_reason_too(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.replace("mnist: {variants: [cnn]}", "affnist: {variants: [cnn]}"))
    house = replace(House.load(tmp_path / "plan.yaml", "uci-digits"), root=tmp_path / "results")  # never the official
    cell = house.cells[0]
    manifest = {"status": "done", "digests": run_digests(house, cell, 0, "data", "the official files")}
    write_json(house.run_folder(cell, 0) / "manifest.json", manifest)
    assert what_changed(house, cell, 0, "data") == "affNIST test set"
