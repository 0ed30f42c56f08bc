"""Tuning: judged on held-out training digits alone, stored, gone on with where it stopped, read by the tuned row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from stand_ins import Reader, coded_digits

from capsbench.cli.tune import tune_cells
from capsbench.data import digits as digits_module
from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.data.multimnist import PairSet
from capsbench.data.source import DataSource
from capsbench.data.testing import TEST_SEED
from capsbench.data.two_digit import TwoDigitPairs
from capsbench.errors import CapsbenchError
from capsbench.files import write_json
from capsbench.pipeline import dataset_record
from capsbench.plan import Cell, House
from capsbench.plan.done import trial_digest
from capsbench.plan.tuning import GRID
from capsbench.training import tune
from capsbench.training.run import Setting

PLAN = """
name: tuned
budget: reduced
seeds: [0]
width: 0.0625
training: {steps: 2, batch: 16, precision: float32}
tuning: {steps: 2, seeds: [1000, 1001], held_out: 50}
tasks:
  mnist: {variants: [capsnet-r3], tuned: true}
  affnist: {variants: [capsnet-r3], tuned: true, held_out: 60, probe_every: 1, probe_images: 10}
  multimnist: {variants: [capsnet-r3], tuned: true, train_pairs: 1000, test_pairs: 10}
  two_digit: {variants: [two-digit-average-mlp, two-digit-control], tuned: true}
"""
SOURCE = DataSource("mnist", None, "MNIST", "a test")
NO_TEST_DIGITS = DigitSet(torch.zeros(0, 28, 28, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path / "scratch"))
    digits = Digits(coded_digits(300), NO_TEST_DIGITS)  # whoever looks at a test digit fails
    monkeypatch.setattr(digits_module, "load_digits", lambda source, device: digits)
    (tmp_path / "tuned.yaml").write_text(PLAN)
    return House.load(tmp_path / "tuned.yaml")


def tuned(house: House, task: str, variant: str) -> Path:
    """Tune one row; the file of its choice."""
    cell = house.cell(task, f"{variant}+tuned")
    tune_cells(Console(quiet=True), house, SOURCE, [cell], "cpu", 1, None)
    assert cell.tuned is not None
    return cell.tuned.path


def judged_once(house: House, task: str, variant: str) -> Cell:
    """The first trial of a row, trained and judged under one seed."""
    trial = house.trials(house.cell(task, f"{variant}+tuned"))[0]
    cpu = torch.device("cpu")
    digits = digits_module.load_digits(SOURCE, cpu)
    setting = Setting(house, trial, digits, dataset_record(SOURCE), cpu, 1, say=lambda _: None)
    resolved = {"precision": "float32", "precision_timings": None}
    tune.judge(setting, 1000, "digest", lambda *_: None, resolved)
    return trial


@pytest.mark.parametrize(
    ("task", "variant"),
    [("mnist", "capsnet-r3"), ("affnist", "capsnet-r3"), ("multimnist", "capsnet-r3"),
     ("two_digit", "two-digit-average-mlp"), ("two_digit", "two-digit-control")],
)  # fmt: skip
@pytest.mark.parametrize("off", [0, 1])
def test_a_trial_is_judged_on_the_held_out_digits_as_training_shows_them(
    house: House, task: str, variant: str, off: int
) -> None:
    trial = house.trials(house.cell(task, f"{variant}+tuned"))[0]
    pairs = task == "multimnist" or variant == "two-digit-control"
    model = Reader(off, pairs=pairs)
    count = 60 if task == "affnist" else 50
    # of the digits that training sees the labels are wrong: none of them may count
    train = coded_digits(300)
    train.labels[count:] = (train.labels[count:] + 5) % 10
    with torch.inference_mode():
        error = tune.held_out_error(model.eval(), trial, train)
    assert error == pytest.approx(100.0 * off)
    height = {"mnist": 28, "affnist": 40, "multimnist": 36, "two_digit": 56 if pairs else 28}[task]
    assert {shape[2] for shape in model.heard} == {height}
    assert sum(shape[0] for shape in model.heard) == count


@pytest.mark.parametrize("placement", ["paper", "official"])
def test_held_out_pairs_stand_as_the_plan_places_pairs(
    house: House, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    house.path.write_text(PLAN.replace("train_pairs", f"placement: {placement}, train_pairs"))
    again = House.load(house.path)
    made: list[PairSet] = []
    monkeypatch.setattr(tune, "PairSet", lambda *args, **options: made.append(PairSet(*args, **options)) or made[-1])
    trial = again.trials(again.cell("multimnist", "capsnet-r3+tuned"))[0]
    with torch.inference_mode():
        tune.held_out_error(Reader(pairs=True).eval(), trial, coded_digits(300))
    (pairs,) = made
    expected = PairSet(coded_digits(50), seed=TEST_SEED, size=50, placement=placement)
    first = torch.arange(50)
    assert torch.equal(pairs.make(first).images, expected.make(first).images)


def test_held_out_pairs_of_a_model_that_trains_on_pairs_are_those_of_the_test_seed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TwoDigitPairs] = []
    kept = lambda *args, **options: made.append(TwoDigitPairs(*args, **options)) or made[-1]  # noqa: E731
    monkeypatch.setattr(tune, "TwoDigitPairs", kept)
    trial = house.trials(house.cell("two_digit", "two-digit-control+tuned"))[0]
    with torch.inference_mode():
        tune.held_out_error(Reader(pairs=True).eval(), trial, coded_digits(300))
    (pairs,) = made
    expected, first = TwoDigitPairs(coded_digits(50), seed=TEST_SEED, size=50), torch.arange(50)
    assert torch.equal(pairs.make(first).images, expected.make(first).images)


def test_a_trial_that_diverged_has_no_error(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def diverges(*_: object) -> dict[str, object]:
        trained.append(1)
        return {"status": "failed", "reason": "not finite", "steps": 2, "resolved": {"precision": "bf16"}}

    monkeypatch.setattr(tune, "train_run", diverges)
    trial = judged_once(house, "mnist", "capsnet-r3")
    figure = json.loads((house.run_folder(trial, 1000) / tune.FIGURE).read_text())
    assert (figure["error"], figure["status"], figure["reason"]) == (None, "failed", "not finite")
    assert figure["precision"] == "bf16"  # what it trained in: the next trials are to agree with it
    assert len(trained) == 1


def test_a_figure_is_taken_for_its_own_trial_alone(tmp_path: Path) -> None:
    """Of another length, source or data it would choose a learning rate for a training that nobody does."""
    assert tune.judged(tmp_path, "this trial's") is None
    figure = {"digest": "this trial's", "error": 1.0}
    write_json(tmp_path / tune.FIGURE, figure)
    assert tune.judged(tmp_path, "this trial's") == figure
    assert tune.judged(tmp_path, "another's") is None


def test_a_trial_whose_weights_are_damaged_before_it_is_judged_trains_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_run, manifests = tune.train_run, []

    def damages(setting: Setting, seed: int, *rest: Any) -> dict[str, Any]:
        manifests.append(train_run(setting, seed, *rest))
        if len(manifests) == 1:
            weights = setting.house.run_folder(setting.cell, seed) / "weights.safetensors"
            weights.write_bytes(weights.read_bytes()[:-8])
        return manifests[-1]

    monkeypatch.setattr(tune, "train_run", damages)
    trial = judged_once(house, "mnist", "capsnet-r3")
    figure = json.loads((house.run_folder(trial, 1000) / tune.FIGURE).read_text())
    assert 0 <= figure["error"] <= 100
    assert len(manifests) == 2
    assert manifests[0]["weights"] == manifests[1]["weights"]


def test_the_best_point_is_stored_with_every_figure_and_the_row_takes_it(house: House) -> None:
    path = tuned(house, "mnist", "capsnet-r3")
    choice = json.loads(path.read_text())
    assert [(point["rate"], point["decay"]) for point in choice["grid"]] == list(GRID)
    for point in choice["grid"]:
        assert len(point["errors"]) == len(set(point["digests"])) == 2
        assert point["mean"] == pytest.approx(sum(point["errors"]) / 2)
    best = min(choice["grid"], key=lambda point: point["mean"])
    assert choice["chosen"] == {key: best[key] for key in ("rate", "decay", "decay_period")}
    assert choice["metric"] == {"name": "held_out_error", "unit": "%", "digits": 50}
    assert path == house.folder / "tuning" / "mnist" / "capsnet-r3.json"
    row = House.load(house.path).cell("mnist", "capsnet-r3+tuned")
    assert (row.training.rate, row.training.decay) == (best["rate"], best["decay"])
    assert not list(path.parent.rglob("*.safetensors"))  # nobody needs a trial's weights again


def test_tuning_goes_on_where_it_stopped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tuned(house, "mnist", "capsnet-r3")
    before = path.read_bytes()
    trained = []
    train_run = tune.train_run

    def spied(setting, seed, *rest):
        trained.append((setting.cell.trial.point, seed))
        return train_run(setting, seed, *rest)

    monkeypatch.setattr(tune, "train_run", spied)
    tuned(House.load(house.path), "mnist", "capsnet-r3")
    path.unlink()
    tuned(House.load(house.path), "mnist", "capsnet-r3")
    assert not trained
    lost = house.trials(house.cell("mnist", "capsnet-r3+tuned"))[4]
    (house.run_folder(lost, 1001) / tune.FIGURE).write_text('{"digest": ')
    path.unlink()
    tuned(House.load(house.path), "mnist", "capsnet-r3")
    assert set(trained) == {(GRID[4], 1001)}
    assert path.read_bytes() == before  # the same trainings give the same figures


def test_a_choice_that_came_meanwhile_is_kept(house: House) -> None:
    """As `capsbench bring` brings it, between this process's look at the row and its turn at its folder."""
    row = House.load(house.path).cell("mnist", "capsnet-r3+tuned")
    path = tuned(house, "mnist", "capsnet-r3")
    choice = json.loads(path.read_text())
    other = next(point for point in GRID if point.training_keys() != choice["chosen"])
    path.write_text(json.dumps({**choice, "chosen": other.training_keys()}))
    assert row.waits  # as it was when the plan was read
    console = Console(record=True, width=200)
    tune_cells(console, house, SOURCE, [row], "cpu", 1, None)
    assert f"rate {other.rate:g}, decay {other.decay:g} chosen meanwhile by another process" in console.export_text()
    assert json.loads(path.read_text())["chosen"] == other.training_keys()


def test_trials_that_are_left_train_in_the_precision_of_those_that_are_done(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = house.cell("mnist", "capsnet-r3+tuned")
    asked = [(trial, seed) for trial in house.trials(row) for seed in trial.seeds]
    done = {"error": 1.0, "status": "done", "reason": None, "steps": 2, "precision": "bf16"}
    for trial, seed in asked[:-1]:
        digest = trial_digest(house, trial, seed, dataset_record(SOURCE)["digest"])
        write_json(house.run_folder(trial, seed) / tune.FIGURE, done | {"digest": digest})
    trained_in: list[str] = []

    def judge(_: object, __: object, digest: str, ___: object, resolved: dict[str, str]) -> dict[str, object]:
        trained_in.append(resolved["precision"])
        return done | {"digest": digest}

    monkeypatch.setattr(tune, "judge", judge)
    tuned(house, "mnist", "capsnet-r3")
    assert trained_in == ["bf16"]


def test_affnist_trials_never_look_at_test_digits(house: House) -> None:
    trial = judged_once(house, "affnist", "capsnet-r3")
    assert not (house.run_folder(trial, 1000) / "curve.csv").exists()


def test_a_loss_that_is_never_finite_chooses_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = {
        "error": None,
        "status": "failed",
        "reason": "not finite",
        "steps": 2,
        "digest": "",
        "precision": "float32",
    }
    monkeypatch.setattr(tune, "judge", lambda *_: figure)
    with pytest.raises(CapsbenchError, match=r"leave capsnet-r3 out of tasks\.mnist\.tuned") as caught:
        tuned(house, "mnist", "capsnet-r3")
    assert "\n" not in str(caught.value)
    assert House.load(house.path).cell("mnist", "capsnet-r3+tuned").waits


def test_a_failed_seed_takes_its_point_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(setting, seed, digest, *_):
        first = setting.cell.trial.point == GRID[0]
        failed = first and seed == 1001
        return {"error": None if failed else 1.0 if first else 2.0, "status": "done", "reason": "not finite",
                "steps": 2, "digest": digest, "precision": "float32"}  # fmt: skip

    monkeypatch.setattr(tune, "judge", judge)
    choice = json.loads(tuned(house, "mnist", "capsnet-r3").read_text())
    assert choice["grid"][0]["mean"] is None
    assert choice["grid"][0]["failed"] == ["not finite"]
    assert choice["chosen"] == GRID[1].training_keys()  # of equal ones the first of the grid


def test_the_point_with_the_lowest_mean_over_seeds_is_chosen(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(setting, seed, digest, *_):
        away = abs(GRID.index(setting.cell.trial.point) - 5)  # and either seed alone would choose another
        error = away + (3.0 if seed == 1000 and away == 0 else 0.0) + (3.0 if seed == 1001 and away == 1 else 0.0)
        error += 4.0 * (away > 1)
        return {"error": error, "status": "done", "reason": None, "steps": 2, "digest": digest, "precision": "float32"}

    monkeypatch.setattr(tune, "judge", judge)
    assert json.loads(tuned(house, "mnist", "capsnet-r3").read_text())["chosen"] == GRID[5].training_keys()


def test_trials_are_judged_without_dropout(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(tune, "held_out_error", lambda model, *_: seen.append(model.training) or 1.0)
    judged_once(house, "mnist", "capsnet-r3")
    assert set(seen) == {False}


def test_nothing_to_tune_is_a_sentence(house: House) -> None:
    with pytest.raises(CapsbenchError, match="asks for no tuning here; write `tuned: true` in a task"):
        tune_cells(Console(quiet=True), house, SOURCE, [house.cell("mnist", "capsnet-r3")], "cpu", 1, None)
