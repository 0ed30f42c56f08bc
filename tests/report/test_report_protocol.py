"""Where runs part from the paper, read from their manifests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import toy

from capsbench.report.collect import collect
from capsbench.report.protocol import protocol_rows


def test_differences_from_the_paper_are_read_from_the_runs(folder: Path) -> None:
    results = collect(folder)
    mnist = {row.what: row for row in protocol_rows(results, "mnist")}
    assert (mnist["training"].here, mnist["training"].differs) == ("960 steps of 128", True)
    assert (mnist["test set"].here, mnist["test set"].differs) == ("10,000 images", False)
    assert (mnist["trials per row"].here, mnist["trials per row"].differs) == ("3 finished", False)
    assert mnist["all reductions"].here == "width 1/8; 3 of 5 seeds"
    affnist = {row.what: row for row in protocol_rows(results, "affnist")}
    assert affnist["data"].differs
    trials = {task: protocol_rows(results, task)[1] for task in toy.TASKS}
    assert {task: row.paper for task, row in trials.items()} == {
        "mnist": "3", "affnist": "not given", "multimnist": "3", "two_digit": "not given",
    }  # fmt: skip
    two_digit = {row.what: row for row in protocol_rows(results, "two_digit")}
    assert two_digit["loss; Adam's epsilon"].differs
    assert two_digit["the figure"].paper == "of the final weights"
    assert (two_digit["test set"].here, two_digit["test set"].differs) == ("10,000 pairs, always of two classes", True)
    assert affnist["matched at"].here == "95.00 % of digits held out of training"
    shutil.rmtree(folder / "runs" / "mnist")
    assert protocol_rows(collect(folder), "mnist") == []


def test_fewer_trials_differ_from_the_paper_s_only_where_it_gives_them(tmp_path: Path) -> None:
    results = collect(toy.write_toy(tmp_path / "two", (0, 1)))
    assert [protocol_rows(results, task)[1].differs for task in toy.TASKS] == [True, False, True, False]


def test_the_held_out_accuracy_is_that_of_the_lowest_and_every_row_s_trials_count(folder: Path) -> None:
    path = toy.run_folder(folder, "affnist", "cnn-pool", 1) / "matched" / "metrics.json"
    metrics = {"accuracy": {"value": 70.0, "unit": "%"}, "held_out_accuracy": {"value": 94.9, "unit": "%"}}
    toy.change_json(path, metrics=metrics)
    for seed in (1, 2):
        shutil.rmtree(toy.run_folder(folder, "mnist", "cnn", seed))
    results = collect(folder)
    affnist = {row.what: row for row in protocol_rows(results, "affnist")}
    assert affnist["matched at"].here == "94.90 % of digits held out of training"
    trials = protocol_rows(results, "mnist")[1]
    assert (trials.here, trials.differs) == ("1 to 3 finished", True)


@pytest.mark.parametrize(("batch", "steps", "differs"), [(128, 300_000, False), (64, 300_000, True), (128, 960, True)])
def test_a_training_is_the_authors_with_their_steps_and_their_batch(
    tmp_path: Path, batch: int, steps: int, differs: bool
) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["cnn"]})
    config = {"variant": {}, "training": {"batch": batch}, "task": {}}
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 0) / "manifest.json", steps=steps, config=config)
    training = {row.what: row for row in protocol_rows(collect(folder), "mnist")}["training"]
    assert (training.here, training.differs) == (f"{steps:,} steps of {batch}", differs)


@pytest.mark.parametrize(("placement", "differs"), [("paper", False), ("official", True)])
def test_pairs_that_are_placed_otherwise_are_said_to_be(tmp_path: Path, placement: str, differs: bool) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"multimnist": ["multimnist-cnn"]})
    config = {"variant": {}, "training": {}, "task": {"placement": placement}}
    toy.change_json(toy.run_folder(folder, "multimnist", "multimnist-cnn", 0) / "manifest.json", config=config)
    placed = {row.what: row for row in protocol_rows(collect(folder), "multimnist")}["placement"]
    assert (placed.here, placed.differs) == (placement, differs)
