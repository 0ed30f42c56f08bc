"""What two rows of a plan are said to differ in, where one of them lacks what the other has."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsbench.files import write_json
from capsbench.plan import House, config_folder
from capsbench.plan.tuning import Point
from capsbench.report.against_reference import factor_words
from capsbench.report.contract import Difference

TUNED = """
budget: reduced
seeds: [0]
training: {epochs: 2}
tuning: {steps: 7}
tasks:
  mnist:
    variants: [cnn, capsnet-r3]
    tuned: true
    references: {REFERENCES}
"""


@pytest.mark.parametrize(
    ("row", "reference", "tuning"),
    [
        ("cnn+tuned", "capsnet-r3+tuned", []),  # neither is tuned yet: what will be chosen is no difference yet
        ("cnn+tuned", "capsnet-r3", [("not yet", "none")]),
        ("cnn", "capsnet-r3+tuned", [("none", "not yet")]),
    ],
)
def test_rows_that_wait_for_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, reference: str, tuning: list[tuple[str, str]]
) -> None:
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path))
    (tmp_path / "tuned.yaml").write_text(TUNED.replace("REFERENCES", f"{row}: {reference}"))
    entries = House.load(tmp_path / "tuned.yaml").describe({})["comparisons"]["ablation"]["mnist"]
    (differs,) = (entry["differs"] for entry in entries if entry["variant"] == row)
    assert {found["factor"] for found in differs} >= {"model", "loss"}
    assert not {found["factor"] for found in differs} & {"rate", "decay", "decay_period"}
    assert [(found["value"], found["reference"]) for found in differs if found["factor"] == "tuning"] == tuning


@pytest.mark.parametrize("row", ["cnn", "resnet-parameters"])
def test_a_row_without_a_decoder_differs_in_it_whatever_its_kind_of_model(row: str) -> None:
    shipped = House.load(config_folder() / "ablation.yaml").describe({})["comparisons"]["ablation"]["mnist"]
    (entry,) = (entry for entry in shipped if entry["variant"] == row)
    assert entry["reference"] == "capsnet-r3-recon"
    assert {found["factor"] for found in entry["differs"]} == {"model", "loss", "reconstruction"}


def test_of_a_routing_from_outside_no_squash_is_said_that_its_plan_does_not_say(tmp_path: Path) -> None:
    """What it does with its sums is its own: `squash: none` would be said of code that may well squash."""
    (tmp_path / "mine.py").write_text("def route(votes): ...\n")
    text = (
        TUNED.replace("cnn, ", "")
        .replace("tuned: true", "")
        .replace("references: {REFERENCES}", "reference: capsnet-r3")
    )
    text = text.replace("[capsnet-r3]", "[capsnet-r3, 'mine:route', squashed]")
    own = "variants: {squashed: {base: capsnet-r3, routing: 'mine:route', squash: half}}\n"
    (tmp_path / "own.yaml").write_text(text.replace("tuning: {steps: 7}\n", own))
    entries = House.load(tmp_path / "own.yaml").describe({})["comparisons"]["ablation"]["mnist"]
    said = {entry["variant"]: {found["factor"] for found in entry["differs"]} for entry in entries}
    assert "squash" not in said["mine.route"]
    assert "squash" in said["squashed"]


def test_the_default_passes_of_a_routing_from_outside_came_with_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def route(votes): ...\n")
    (tmp_path / "own.yaml").write_text(
        "budget: reduced\nseeds: [0]\ntraining: {epochs: 2}\n"
        "variants:\n  mine: {base: two-digit-uniform, routing: 'mine:route'}\n"
        "tasks:\n  two_digit: {variants: [two-digit-uniform, mine], reference: two-digit-uniform}\n"
    )
    entries = House.load(tmp_path / "own.yaml").describe({})["comparisons"]["ablation"]["two_digit"]
    (entry,) = (entry for entry in entries if entry["variant"] == "mine")
    assert {found["factor"]: (found["value"], found["own"]) for found in entry["differs"]} == {
        "routing": ("mine:route", False),
        "iterations": ("3", True),
    }
    words = factor_words([Difference.model_validate(found) for found in entry["differs"]])
    assert words == ("routing", "mine:route (with its own passes of routing 3)", "uniform")


def test_a_chosen_rate_differs_to_its_last_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path))
    plan = tmp_path / "tuned.yaml"
    plan.write_text(TUNED.replace("REFERENCES", "capsnet-r3+tuned: cnn+tuned"))
    tuned = House.load(plan).cell("mnist", "cnn+tuned").tuned
    assert tuned is not None
    write_json(tuned.path, {"recipe": tuned.recipe, "chosen": Point(3e-3, 0.96).training_keys()})
    described = House.load(plan).describe({})
    chosen, waiting = (
        {found["factor"]: (found["value"], found["reference"]) for found in entry["differs"]}
        for name in ("cnn+tuned", "capsnet-r3+tuned")
        for entry in described["comparisons"]["ablation"]["mnist"]
        if entry["variant"] == name
    )
    assert chosen == {"rate": ("0.003", "0.001")}  # the decay is the plan's own
    assert waiting["tuning"] == ("not yet", "done")
    assert any("(150 periods a run)" in words for words in described["notes"]["mnist"])


@pytest.mark.parametrize(
    ("theirs", "own", "task", "steps"),
    [
        ("{epochs: 2, batch: 64}", "{epochs: 1}", ", train_images: 6_400", ("100", "200")),
        ("{steps: 12_000}", "{steps: 300_000}", "", ("300,000", "12,000")),
    ],
)
def test_lengths_are_told_in_steps_of_the_digits_that_the_plan_trains_on(
    tmp_path: Path, theirs: str, own: str, task: str, steps: tuple[str, str]
) -> None:
    (tmp_path / "lengths.yaml").write_text(
        f"budget: reduced\nseeds: [0]\ntraining: {theirs}\n"
        f"variants: {{other: {{base: cnn, training: {own}}}}}\n"
        f"tasks: {{mnist: {{variants: [cnn, other], reference: cnn{task}}}}}\n"
    )
    (entry,) = House.load(tmp_path / "lengths.yaml").describe({})["comparisons"]["ablation"]["mnist"]
    assert [(d["factor"], d["value"], d["reference"]) for d in entry["differs"]] == [("steps", *steps)]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("{decay_period: 900}", ("decay_period", "900 steps", "scaled")),
        ("{decay_period: published}", ("decay_period", "2000 steps", "scaled")),
        ("{decay: 0.9}", ("decay", "0.9", "0.96")),
        ("{rate: 0.002}", ("rate", "0.002", "0.001")),
    ],
)
def test_another_schedule_is_told_in_steps(tmp_path: Path, own: str, said: tuple[str, str, str]) -> None:
    (tmp_path / "schedules.yaml").write_text(
        "budget: reduced\nseeds: [0]\ntraining: {steps: 300_000}\n"
        f"variants: {{other: {{base: cnn, training: {own}}}}}\n"
        "tasks: {mnist: {variants: [cnn, other], reference: cnn}}\n"
    )
    (entry,) = House.load(tmp_path / "schedules.yaml").describe({})["comparisons"]["ablation"]["mnist"]
    assert [(d["factor"], d["value"], d["reference"]) for d in entry["differs"]] == [said]


def test_a_tuned_task_tells_the_periods_of_its_own_full_training(tmp_path: Path) -> None:
    """MultiMNIST's rate falls every 20,000 of 468,750 steps."""
    (tmp_path / "pairs.yaml").write_text(
        "budget: reduced\nseeds: [0]\ntraining: {steps: 9}\ntuning: {steps: 7}\n"
        "tasks: {multimnist: {variants: [multimnist-cnn], tuned: true}}\n"
    )
    (words, *_) = House.load(tmp_path / "pairs.yaml").describe({})["notes"]["multimnist"]
    assert "(23 periods a run)" in words
