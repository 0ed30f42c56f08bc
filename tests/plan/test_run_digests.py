"""What is in the digest of a run: every option that decides training and the data, and none of evaluation's alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capsbench.files import write_json
from capsbench.pipeline import described_now
from capsbench.plan import House
from capsbench.plan.done import run_digests
from capsbench.plan.tasks import TASKS
from capsbench.provenance import digest_of

PLAN = """
budget: reduced
seeds: [0]
training: {{steps: 3_000}}
tasks:
  {task}: {{variants: [{variant}], {option}: {value}}}
"""
VARIANT = {"mnist": "cnn", "affnist": "cnn-pool", "multimnist": "multimnist-cnn", "two_digit": "two-digit-kmeans"}
OF_EVERY_TASK: dict[str, tuple[Any, Any]] = {"train_images": (40_000, 50_000), "train_per_class": (10, 20)}
TRAINS: dict[str, dict[str, tuple[Any, Any]]] = {
    "mnist": OF_EVERY_TASK,
    "affnist": OF_EVERY_TASK
    | {  # what decides curve.csv, which training writes
        "test_images": (400, 500),
        "held_out": (9_000, 10_000),
        "probe_every": (100, 200),
        "probe_images": (3_200, 6_400),
        "transforms": (16, 32),
    },
    "multimnist": OF_EVERY_TASK
    | {"train_per_class": (5_000, 5_200), "train_pairs": (50_000, 60_000), "placement": ("paper", "official")},
    "two_digit": OF_EVERY_TASK
    | {"pairs": (500, 1_000), "last_epochs": (3, 5), "test_images": (400, 500), "squeezed": ("true", "false")},
}
EVALUATES: dict[str, dict[str, tuple[Any, Any]]] = {
    "mnist": {
        "test_images": (400, 500),
        "train_error_images": (50, 60),
        "routing_images": (0, 50),
        "attack_images": (0, 9),
    },
    "affnist": {"matched_at": (0.98, 0.9922), "factor_images": (50, 60), "download_official": ("true", "false")},
    "multimnist": {"test_images": (4_000, 5_000), "test_pairs": (500, 600), "segmentation_pairs": (50, 60)},
}


def run_digest(folder: Path, task: str, option: str, value: Any) -> str:
    path = folder / "plan.yaml"
    path.write_text(PLAN.format(task=task, variant=VARIANT[task], option=option, value=value))
    (cell,) = (house := House.load(path)).cells
    return run_digests(house, cell, 0, "data")["run"]


@pytest.mark.parametrize(
    ("trains", "task", "option", "values"),
    [(of is TRAINS, task, *said) for of in (TRAINS, EVALUATES) for task in of for said in of[task].items()],
)
def test_a_run_is_made_again_when_an_option_of_training_changes_and_kept_for_one_of_evaluation(
    tmp_path: Path, trains: bool, task: str, option: str, values: tuple[Any, Any]
) -> None:
    first, second = (run_digest(tmp_path, task, option, value) for value in values)
    assert (first != second) is trains


@pytest.mark.parametrize("task", TRAINS)
def test_each_option_of_training_is_changed_above(task: str) -> None:
    """A new one is to be tried too."""
    assert set(TRAINS[task]) == set(TASKS[task].TRAINING)


def test_a_run_on_other_data_is_another_run(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.format(task="mnist", variant="cnn", option="test_images", value=100))
    (cell,) = (house := House.load(tmp_path / "plan.yaml")).cells
    first, second = (run_digests(house, cell, 0, data)["run"] for data in ("a", "b"))
    assert first != second


def test_runs_that_are_older_than_a_key_keep_their_digest_at_its_default(tmp_path: Path) -> None:
    said, unsaid = (run_digest(tmp_path, "two_digit", *option) for option in (("squeezed", "false"), ("pairs", 10_000)))
    assert said == unsaid
    assert "squeezed" not in TASKS["two_digit"](variants=["given"]).training_options()


@pytest.mark.parametrize(
    ("changed", "outdated"),
    [
        ({}, False),
        ({"training_source": "s"}, True),
        *(({"training_source": "s", key: "another"}, False) for key in ("config", "data", "test_set")),
    ],
)
def test_a_run_of_this_config_that_other_source_trained_is_outdated(
    tmp_path: Path, results: Path, changed: dict[str, str], outdated: bool
) -> None:
    """Another config, or one of other data, is another run, which the report leaves out."""
    (tmp_path / "plan.yaml").write_text(PLAN.format(task="mnist", variant="cnn", option="test_images", value=400))
    house = House.load(tmp_path / "plan.yaml")
    cell, data = house.cells[0], {"name": "mnist", "badge": "MNIST", "digest": "d"}
    digests = run_digests(house, cell, 0, "d") | changed
    digest = digest_of({key: digests[key] for key in ("config", "training_source", "data")})
    assert changed or digest == digests["run"]
    run = {"task": "mnist", "variant": "cnn", "seed": 0}
    manifest = {"run": run, "status": "done", "weights": "w", "dataset": {}, "digest": digest, "digests": digests}
    write_json(house.run_folder(cell, 0) / "manifest.json", manifest)
    (run,) = described_now(house, data)["runs"]
    assert run.get("outdated", False) is outdated
