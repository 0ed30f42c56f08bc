"""`capsbench bring` takes no run whose metrics are not those of its stored answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_runs import two_plans
from published import PUBLISHED
from rich.console import Console

from capsbench.cli.bring import bring
from capsbench.cli.recounted import altered
from capsbench.errors import CapsbenchError
from capsbench.files import read_json, write_json
from capsbench.plan.tasks import TASKS, MultimnistTask

RESULTS = Path(__file__).resolve().parents[2] / "results"
MNIST = "paper/runs/mnist/capsnet-r3-recon/seed-0"
AFFNIST = "overnight/runs/affnist/capsnet-r3-recon/seed-0"
TWO_DIGITS = "two-digit-squeezed/runs/two_digit/two-digit-kmeans/seed-0"
AGAIN = "; one of the two was altered, so copy the run again from where it was made"


def told(run: Path) -> str:
    """What a run's metrics say otherwise than its answers, by the options of the published plans."""
    at = {"matched_at": 0.955} if "overnight" in run.parts else {}
    return altered(run, TASKS[run.parts[-3]].model_construct(**at))


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """A copy of a published run with one number of a condition's metrics.json moved a little, or taken out."""

    def edit(run: str, condition: str, name: str, by: float | None) -> Path:
        copy = Path(shutil.copytree(RESULTS / run, tmp_path / run))
        said = read_json(copy / condition / "metrics.json")
        if name == "images":
            said["images"] += by
        else:
            said["metrics"][name]["value"] = None if by is None else said["metrics"][name]["value"] + by
        write_json(copy / condition / "metrics.json", said)
        return copy

    return edit


def test_a_run_whose_number_was_edited_by_hand_is_not_brought_and_is_replaced_by_a_whole_one(
    tmp_path: Path, results: Path, no_data: object
) -> None:
    folder, _, ours = two_plans(tmp_path, theirs="", ours="")
    here, there = (place / "runs/mnist/cnn/seed-0/test/metrics.json" for place in (results / "ours-digits", folder))
    whole = read_json(there)
    better = whole | {"metrics": whole["metrics"] | {"error": {"value": 0.5, "unit": "%"}}}
    write_json(there, better)
    console = Console(record=True, width=300)
    with pytest.raises(CapsbenchError, match="1 run left out"):
        bring(console, [folder], ours)
    said = f"its test/metrics.json says 0.5 for error where its test/predictions.npz gives 1{AGAIN}"
    assert f"1 run: {said}\n  mnist/cnn/seed-0\n" in console.export_text()
    assert not here.exists()
    write_json(there, whole)
    bring(Console(quiet=True), [folder], ours)
    write_json(here, better)
    console = Console(record=True, width=300)
    bring(console, [folder], ours)
    assert "1 run: brought, in the place of a run here" in console.export_text()
    assert read_json(here) == whole


@pytest.mark.parametrize(
    ("run", "condition", "name", "by", "file"),
    [
        (MNIST, "test", "error", -0.01, "test/predictions.npz"),
        (MNIST, "test", "correct", 1, "test/predictions.npz"),
        (MNIST, "test", "train_error", 0.01, "test/predictions.npz"),  # from which the gap is another then
        (MNIST, "test", "ece", -0.001, "test/reliability.csv"),
        (MNIST, "test", "overconfidence", -0.001, "test/reliability.csv"),
        (MNIST, "test", "images", -1, "test/predictions.npz"),
        (AFFNIST, "matched", "accuracy", 0.01, "curve.csv"),
        (AFFNIST, "matched", "held_out_accuracy", 0.01, "curve.csv"),
        (AFFNIST, "converged", "accuracy", 0.0025, "converged/predictions.npz"),
        (TWO_DIGITS, "56x28", "top2_accuracy", 0.001, "curve.csv"),
        (TWO_DIGITS, "28x56", "both_above_half_accuracy", 0.001, "curve.csv"),
        (TWO_DIGITS, "28x56", "final_top2_accuracy", 0.01, "28x56/predictions.npz"),
        (TWO_DIGITS, "56x28", "final_both_above_half_accuracy", -0.01, "56x28/predictions.npz"),
        (TWO_DIGITS, "56x28", "images", 1, "56x28/predictions.npz"),
    ],
)
def test_each_number_that_answers_tell_is_held_to_them(
    edited: Callable[..., Path], run: str, condition: str, name: str, by: float, file: str
) -> None:
    said = told(edited(run, condition, name, by))
    assert said.startswith(f"{condition}/metrics.json says ")
    assert f" for {'train_test_gap' if name == 'train_error' else name} where its {file} gives " in said
    assert said.endswith(AGAIN)


def test_a_number_that_was_taken_out_is_named(edited: Callable[..., Path]) -> None:
    said = told(edited(MNIST, "test", "error", None))
    assert said.startswith("test/metrics.json says no error where its test/predictions.npz gives 0.")


def test_pairs_of_multimnist_are_counted_by_their_digits(tmp_path: Path) -> None:
    """None of them is published."""
    folder = tmp_path / "test"
    folder.mkdir()
    counts = np.array([[90, 8, 2], [85, 10, 1], [3, 0, 1]], np.uint32)  # of 100 pairs: 89 none, 9 one, 2 both
    np.savez(folder / "predictions.npz", missed=np.zeros(3, np.uint8), digits=counts)
    run = {"task": "multimnist", "variant": "v", "seed": 0}
    said = {"schema": 1, "run": run, "condition": "test", "status": "done", "dataset": {"name": "mnist", "badge": "M"}}
    wrong = f"test/metrics.json says 6 for half_credit_error where its test/predictions.npz gives 6.5{AGAIN}"
    for half, expected in ((6.5, ""), (6.0, wrong)):
        metrics = {"error": {"value": 11.0, "unit": "%"}, "half_credit_error": {"value": half, "unit": "%"}}
        write_json(folder / "metrics.json", said | {"images": 100, "metrics": metrics})
        assert altered(tmp_path, MultimnistTask.model_construct()) == expected


@pytest.mark.parametrize("content", [{"labels": np.zeros(3)}, {"labels": np.zeros(0), "predicted": np.zeros(0)}])
def test_answers_that_cannot_be_counted_are_not_taken_on_trust(
    edited: Callable[..., Path], content: dict[str, Any]
) -> None:
    run = edited(MNIST, "test", "error", 0)
    np.savez(run / "test" / "predictions.npz", **content)
    said = told(run)
    assert said.startswith("test/metrics.json cannot be counted again from the answers that are stored with it (")
    assert said.endswith("); copy the run again from where it was made")


def test_a_task_is_not_taken_from_the_file_that_may_be_altered(edited: Callable[..., Path]) -> None:
    run = edited(MNIST, "test", "error", -0.01)
    said = read_json(run / "test" / "metrics.json")
    write_json(run / "test" / "metrics.json", said | {"run": said["run"] | {"task": "another"}})
    assert " for error where its test/predictions.npz gives " in told(run)


@pytest.mark.parametrize("plan", [*PUBLISHED, "two-digit-decayed", "two-digit-first-weights"])
def test_all_that_is_published_is_what_its_answers_say(plan: str) -> None:
    runs = [path.parent for path in sorted((RESULTS / plan).glob("runs/*/*/*/manifest.json"))]
    assert runs
    assert {run: said for run in runs if (said := told(run))} == {}
