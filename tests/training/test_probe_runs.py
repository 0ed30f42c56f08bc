"""Small real runs of the three tasks, trained and evaluated: curves and conditions as the report reads them."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from stand_ins import coded_digits
from torch import Tensor, nn

from capsbench.data.batch import Batch
from capsbench.data.digits import Digits, load_digits
from capsbench.data.source import DataSource
from capsbench.errors import DataError, ResourceError
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.run import evaluate_run
from capsbench.plan import Cell, House
from capsbench.report.contract import Metrics, read
from capsbench.training import probe_affnist
from capsbench.training.digits import training_digits
from capsbench.training.probe_affnist import AffnistProbe
from capsbench.training.probe_two_digit import TwoDigitProbe
from capsbench.training.run import Setting, make_probe, make_stream, train_run
from capsbench.training.step import Step

DEVICE = torch.device("cpu")
PLAN = """
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
training: {steps: 12, batch: 64, rate: 2.0e-3, precision: float32}
tasks:
  affnist:
    variants: [convnet-avg, cnn-pool, capsnet-r3-recon]
    matched_at: 0.05
    held_out: 200
    probe_every: 5
    probe_images: 60
    test_images: 40
    transforms: 2
    factor_images: 20
  multimnist:
    variants: [multimnist-cnn, capsnet-r3-recon]
    train_pairs: 5_000
    test_pairs: 100
    segmentation_pairs: 30
  two_digit:
    variants: [two-digit-average-mlp, two-digit-kmeans, two-digit-control, capsnet-r3-recon]
    train_images: 128
    pairs: 60
    last_epochs: 2
"""
DATASET = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "d"}


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(DataSource("uci-digits", None, DATASET["badge"], "scikit-learn"))


@pytest.fixture
def house(tmp_path: Path, results: Path, no_data: dict[str, str]) -> House:
    (tmp_path / "small.yaml").write_text(PLAN)
    return House.load(tmp_path / "small.yaml", "uci-digits")


def ran(house: House, cell: Cell, digits: Digits) -> tuple[Path, list[Condition]]:
    setting = Setting(house, cell, digits, DATASET, DEVICE, 1, lambda _: None)
    manifest = train_run(setting, 0, lambda *_: None)
    assert manifest["status"] == "done"
    folder = house.run_folder(cell, 0)
    return folder, evaluate_run(house, cell, 0, manifest, "digest", digits, DEVICE)


@pytest.mark.parametrize("variant", ["convnet-avg", "cnn-pool", "capsnet-r3-recon"])  # cnn-pool has dropout
def test_affnist(house: House, digits: Digits, variant: str) -> None:
    folder, conditions = ran(house, house.cell("affnist", variant), digits)
    curve = pd.read_csv(folder / "curve.csv")
    assert curve["step"].tolist() == [5, 10, 12]
    assert curve[["held_out_accuracy", "affnist_accuracy"]].notna().all(axis=None)
    matched, converged = conditions
    assert converged.metrics["held_out_accuracy"][0] == pytest.approx(100 * curve["held_out_accuracy"].iloc[-1])
    assert (matched.images, converged.images) == (60, 80)
    for condition in conditions:
        stored = read(folder / condition.name / "metrics.json", Metrics)
        assert stored.dataset.badge == "affnist-synth of UCI digits, not MNIST"


def test_affnist_never_trains_on_the_digits_that_it_is_matched_on(house: House, digits: Digits) -> None:
    train = training_digits(house.cell("affnist", "convnet-avg"), digits.train, 0)
    assert torch.equal(train.images, digits.train.images[200:])
    assert torch.equal(train.labels, digits.train.labels[200:])


@pytest.mark.parametrize(
    ("probe", "task", "variant", "measured"),
    [
        (AffnistProbe, "affnist", "cnn-pool", [5, 10, 12]),
        (TwoDigitProbe, "two_digit", "two-digit-kmeans", [10, 12]),
    ],
)
def test_each_measurement_is_in_evaluation_mode_and_all_steps_around_it_are_in_training_mode(
    house: House, digits: Digits, monkeypatch: pytest.MonkeyPatch, probe: Any, task: str, variant: str, measured: list
) -> None:
    """Without dropout, and with its running means for the batch's own, the rest of a run would be another training."""
    modes: list[tuple[str, bool]] = []
    measure, losses = probe.measure, Step.losses

    def measuring(self: Any, model: nn.Module, done: int) -> dict[str, float]:
        modes.append(("measured", any(module.training for module in model.modules())))
        return measure(self, model, done)

    def training(self: Step, batch: Batch, progress: float | Tensor = 1.0) -> Tensor:
        modes.append(("trained", all(module.training for module in self.model.modules())))
        return losses(self, batch, progress)

    monkeypatch.setattr(probe, "measure", measuring)
    monkeypatch.setattr(Step, "losses", training)
    setting = Setting(house, house.cell(task, variant), digits, DATASET, DEVICE, 1, lambda _: None)
    train_run(setting, 0, lambda *_: None)
    expected = []
    for step in range(1, 13):
        expected += [("trained", True)] + [("measured", False)] * (step in measured)
    assert modes == expected


def outcome(manifest: dict[str, Any], folder: Path) -> tuple[str, str]:
    """What a run that was stopped must end with, bit for bit."""
    curve = folder / "curve.csv"
    return manifest["weights"], curve.read_text() if curve.exists() else ""


@pytest.fixture
def undisturbed(house: House, digits: Digits) -> Callable[[str, str], tuple[Setting, Path, tuple[str, str]]]:
    """A cell trained from beginning to end, its folder then emptied: setting, folder, outcome."""

    def train(task: str, variant: str) -> tuple[Setting, Path, tuple[str, str]]:
        cell = house.cell(task, variant)
        setting, folder = Setting(house, cell, digits, DATASET, DEVICE, 1, lambda _: None), house.run_folder(cell, 0)
        found = outcome(train_run(setting, 0, lambda *_: None), folder)
        shutil.rmtree(folder)
        return setting, folder, found

    return train


@pytest.mark.parametrize(
    ("probe", "task", "variant", "step"),
    [
        (AffnistProbe, "affnist", "convnet-avg", 5),  # the first measurement, one between, the last
        (AffnistProbe, "affnist", "convnet-avg", 10),
        (AffnistProbe, "affnist", "convnet-avg", 12),
        (TwoDigitProbe, "two_digit", "two-digit-kmeans", 10),
    ],
)
def test_a_signal_does_not_wait_for_the_end_of_a_measurement(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, probe: Any, task: str, variant: str, step: int
) -> None:
    setting, folder, expected = undisturbed(task, variant)
    measure = probe.measure

    def interrupted(self: Any, model: nn.Module, done: int) -> dict[str, float]:
        row = measure(self, model, done)
        if done == step:
            monkeypatch.setattr(probe, "measure", measure)
            os.kill(os.getpid(), signal.SIGTERM)
            measure(self, model, done)
            pytest.fail("the measurement went on")
        return row

    monkeypatch.setattr(probe, "measure", interrupted)
    with pytest.raises(ResourceError, match=f"stopped by SIGTERM, saved after step {step} of 12"):
        train_run(setting, 0, lambda *_: None)
    manifest = train_run(setting, 0, lambda *_: None)
    assert manifest["resumed"] == 1
    assert outcome(manifest, folder) == expected


# at the end of an epoch, where two digits are measured, and inside one; the pairs of MultiMNIST are made as they come
@pytest.mark.parametrize(
    ("task", "variant", "step"),
    [
        ("two_digit", "two-digit-kmeans", 10),
        ("two_digit", "two-digit-kmeans", 11),
        ("multimnist", "capsnet-r3-recon", 7),
    ],
)
def test_stopped_between_two_steps_it_goes_on_to_the_same_bits(
    undisturbed: Any, task: str, variant: str, step: int
) -> None:
    setting, folder, expected = undisturbed(task, variant)
    with pytest.raises(ResourceError, match=f"stopped by SIGTERM, saved after step {step} of 12"):
        train_run(setting, 0, lambda done, *_: signal.raise_signal(signal.SIGTERM) if done == step else None)
    manifest = train_run(setting, 0, lambda *_: None)
    assert manifest["resumed"] == 1
    assert outcome(manifest, folder) == expected


@pytest.mark.parametrize("variant", ["multimnist-cnn", "capsnet-r3-recon"])
def test_multimnist(house: House, digits: Digits, variant: str) -> None:
    folder, (condition,) = ran(house, house.cell("multimnist", variant), digits)
    assert not (folder / "curve.csv").exists()
    stored = read(folder / "test" / "metrics.json", Metrics)
    assert stored.images == 100
    assert ("ssim_true" in stored.metrics) == (variant == "capsnet-r3-recon")
    assert 0 <= condition.metrics["half_credit_error"][0] <= condition.metrics["error"][0] <= 100


@pytest.mark.parametrize(
    "variant", ["two-digit-average-mlp", "two-digit-kmeans", "two-digit-control", "capsnet-r3-recon"]
)
def test_two_digit(house: House, digits: Digits, variant: str) -> None:
    folder, conditions = ran(house, house.cell("two_digit", variant), digits)
    curve = pd.read_csv(folder / "curve.csv")
    assert curve["step"].tolist() == [10, 12]  # 128 examples an epoch: it ends after every second step
    assert curve["epoch"].tolist() == [5, 6]
    for condition in conditions:
        last = curve[f"{condition.name}.top2_accuracy"]
        assert condition.metrics["final_top2_accuracy"][0] == pytest.approx(100 * last.iloc[-1])
        assert condition.metrics["top2_accuracy"][0] == pytest.approx(100 * last.mean())
        assert read(folder / condition.name / "metrics.json", Metrics).images == 60


def test_the_control_is_trained_on_pairs_as_many_as_the_others_see_digits(house: House, digits: Digits) -> None:
    cell = house.cell("two_digit", "two-digit-control")
    stream = make_stream(cell, training_digits(cell, digits.train, 0), 0)
    assert (stream.size, stream.height, stream.width) == (128, 56, 28)
    assert stream.batch(0).labels.shape == (64, 2)


@pytest.mark.parametrize(("placement", "reach"), [("paper", 4), ("official", 6)])
def test_pairs_are_trained_on_in_the_placement_that_the_plan_names(
    house: House, tmp_path: Path, placement: str, reach: int
) -> None:
    (tmp_path / "placed.yaml").write_text(PLAN.replace("train_pairs", f"placement: {placement}\n    train_pairs"))
    cell = House.load(tmp_path / "placed.yaml", "uci-digits").cell("multimnist", "capsnet-r3-recon")
    stream = make_stream(cell, coded_digits(1000), 0)
    ink = torch.cat([stream.batch(step).digits for step in range(8)]) > 0  # [512, 2, 36, 36], a block in each
    tops, lefts = (ink.any(axis).int().argmax(-1) for axis in (-1, -2))
    shifts = torch.stack([tops, lefts]) - 12  # of a block in the middle of 36
    assert (shifts.min(), shifts.max()) == (-reach, reach)


def test_the_affnist_probe_is_told_the_plan_s_data_set_and_folder(
    tmp_path: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official affNIST is of MNIST's digits: a run on others would be matched on it all the same."""
    (tmp_path / "other.yaml").write_text(PLAN.replace("seeds:", "dataset: kmnist\ndata_folder: mine\nseeds:"))
    house = House.load(tmp_path / "other.yaml")
    cell, told = house.cell("affnist", "convnet-avg"), {}
    monkeypatch.setattr(probe_affnist, "make_probe", lambda *_, **where: told.update(where))
    make_probe(Setting(house, cell, digits, DATASET, DEVICE, 1, lambda _: None), make_stream(cell, digits.train, 0))
    assert told == {"dataset": "kmnist", "folder": house.plan.data_folder}
    assert Path(told["folder"]).name == "mine"


@pytest.mark.parametrize("task", ["multimnist", "two_digit", "affnist"])
def test_too_few_test_digits_are_found_before_the_first_step(
    house: House, digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    wanted = {
        "multimnist": ("test_pairs: 100", "test_pairs: 360_000"),
        "two_digit": ("pairs: 60", "pairs: 360_000"),
        "affnist": ("held_out: 200", "held_out: 50_000"),
    }
    (tmp_path / "few.yaml").write_text(PLAN.replace(*wanted[task]))
    few = House.load(tmp_path / "few.yaml")  # as MNIST: for the stand-in a plan asks for fewer by itself
    cell = next(cell for cell in few.cells if cell.task == task)
    monkeypatch.setattr(Step, "__call__", lambda *_: pytest.fail("a step was trained"))
    with pytest.raises(DataError, match=r"^[^\n]+\.$"):
        train_run(Setting(few, cell, digits, DATASET, DEVICE, 1, lambda _: None), 0, lambda *_: None)
