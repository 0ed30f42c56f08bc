"""Seeds of a row train in one precision, also where one of them was stopped before it was done."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from capsbench.cli.precision import precision_of
from capsbench.data.affnist_place import measured_on
from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.files import write_json
from capsbench.plan import House
from capsbench.plan.done import run_digests
from capsbench.training import run
from capsbench.training.checkpoint import Checkpoint, save_checkpoint
from capsbench.training.run import Setting

PLAN = """
budget: reduced
seeds: [0, 1, 2]
uci_digits: true
training: {steps: 4, precision: PRECISION}
tasks:
  mnist: {variants: [cnn]}
"""
DIGITS = DigitSet(torch.zeros(20, 28, 28, dtype=torch.uint8), torch.arange(20) % 10)
DATASET = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "d"}
TIMED = ("float32", {"float32": 1.0})
OTHER = {"precision": "bf16", "precision_timings": {"bf16": 1.0, "float32": 2.0}}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds for which precisions were timed; float32 was always the faster."""
    asked: list[int] = []

    def choose(_: Setting, seed: int) -> tuple[str, dict[str, float]]:
        asked.append(seed)
        return TIMED

    monkeypatch.setattr(run, "choose_precision", choose)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    return asked


def setting_of(folder: Path, precision: str = "auto") -> Setting:
    (folder / "small.yaml").write_text(PLAN.replace("PRECISION", precision))
    house = House.load(folder / "small.yaml", "uci-digits")
    return Setting(house, house.cells[0], Digits(DIGITS, DIGITS), DATASET, torch.device("cpu"), 1, lambda _: None)


def stop(setting: Setting, seed: int, *, digest: str | None = None) -> None:
    """A run that was stopped after it was saved, in another precision than today's timing would choose."""
    house, cell = setting.house, setting.cell
    run_digest = digest or run_digests(house, cell, seed, DATASET["digest"], measured_on(house, cell))["run"]
    meta = {"run": run_digest, "step": 2, "device": "cuda:0", **OTHER}
    save_checkpoint(house.run_folder(cell, seed) / "checkpoint", Checkpoint({"sums": torch.zeros(1)}, meta))


def test_nothing_known_is_timed(tmp_path: Path, results: Path, timed: list[int]) -> None:
    assert precision_of(setting_of(tmp_path), 1) == dict(zip(OTHER, TIMED, strict=True))
    assert timed == [1]


def test_nothing_is_timed_on_a_cpu_that_would_emulate_bf16(
    tmp_path: Path, results: Path, timed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    setting = setting_of(tmp_path)
    assert precision_of(setting, 1) == {"precision": "float32", "precision_timings": None}
    said: list[str] = []
    asked_for = dataclasses.replace(setting_of(tmp_path, "bf16"), say=said.append)
    assert precision_of(asked_for, 1)["precision"] == TIMED[0]  # what the plan says is asked for
    assert timed == [1]
    assert said == ["mnist/cnn: this CPU has no bf16, and torch emulates it: steps may take minutes"]
    stop(setting, 2)
    assert precision_of(setting, 1) == OTHER  # begun where it was computed


@pytest.mark.parametrize("seed", [0, 2])
def test_a_seed_that_was_stopped_decides_for_those_that_are_not_begun(
    tmp_path: Path, results: Path, timed: list[int], seed: int
) -> None:
    setting = setting_of(tmp_path)
    stop(setting, seed)
    assert precision_of(setting, 0) == OTHER
    assert timed == []


def test_a_checkpoint_of_another_run_decides_nothing(tmp_path: Path, results: Path, timed: list[int]) -> None:
    setting = setting_of(tmp_path)
    stop(setting, 0, digest="of another source")
    assert precision_of(setting, 0)["precision"] == "float32"


def test_a_seed_that_is_trained_comes_before_one_that_was_stopped(
    tmp_path: Path, results: Path, timed: list[int]
) -> None:
    setting = setting_of(tmp_path)
    stop(setting, 0)
    resolved = {"precision": "float32", "precision_timings": None, "device": "cpu"}
    manifest = {"resolved": resolved, "digests": {"config": setting.cell.config_digest(1)}}
    write_json(setting.house.run_folder(setting.cell, 1) / "manifest.json", manifest)
    assert precision_of(setting, 0) == {"precision": "float32", "precision_timings": None}


def test_what_the_plan_says_is_what_counts(tmp_path: Path, results: Path, timed: list[int]) -> None:
    setting = setting_of(tmp_path, "float32")
    stop(setting, 0)
    precision_of(setting, 0)
    assert timed == [0]  # which gives back the plan's
