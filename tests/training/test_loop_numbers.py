"""What a loop records of a real run, and what it hands to the step: means of losses, progress, the faster precision."""

from __future__ import annotations

import contextlib
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from capsbench.data.batch import Batch
from capsbench.data.digits import Digits, load_digits
from capsbench.data.source import DataSource
from capsbench.errors import ResourceError
from capsbench.models.capsule_layer import capsule_layers
from capsbench.plan import House
from capsbench.training import checkpoint, fusing
from capsbench.training import loop as loop_module
from capsbench.training import run as run_module
from capsbench.training.loop import Loop, Progress
from capsbench.training.run import Run, Setting, choose_precision, new_model, prepare, train_run
from capsbench.training.step import Step

PLAN = """
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
training: {steps: 11, batch: 16, PRECISION}
tasks:
  mnist: {variants: [capsnet-r3-recon]}
"""
DATASET = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "d"}


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(DataSource("uci-digits", None, DATASET["badge"], "scikit-learn"))


def setting_of(tmp_path: Path, digits: Digits, precision: str) -> Setting:
    (tmp_path / "small.yaml").write_text(PLAN.replace("PRECISION", f"precision: {precision}"))
    house = House.load(tmp_path / "small.yaml", "uci-digits")
    return Setting(house, house.cells[0], digits, DATASET, torch.device("cpu"), 1, lambda _: None)


def test_every_row_of_the_history_is_the_mean_over_its_own_steps(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "ROWS", 3)  # of 11 steps: the last row covers fewer than the others
    run = prepare(setting_of(tmp_path, digits, "float32"), 0)
    assert isinstance(run, Run)
    seen, given = [], []
    losses = Step.losses

    def spied(self, batch, progress=1.0):
        found = losses(self, batch, progress)
        seen.append(found.detach().tolist())
        given.append(float(progress))
        return found

    monkeypatch.setattr(Step, "losses", spied)
    last = run.loop.train(lambda *_: None)
    history = pd.read_csv(run.loop.folder / "history.csv")
    ends = history["step"].tolist()
    assert ends[-1] == 11
    assert len({end - start for start, end in zip([0, *ends], ends, strict=False)}) == 2
    for start, row in zip([0, *ends], history.itertuples(), strict=False):
        mean = torch.tensor(seen[start : row.step]).mean(0).tolist()
        assert [row.loss, row.classification, row.reconstruction] == pytest.approx(mean, rel=1e-5)
    assert last == pytest.approx(history["loss"].iloc[-1])
    assert given == pytest.approx([step / 11 for step in range(11)])  # the spread loss grows its margin by it


def test_each_step_is_taken_at_its_rate_of_the_schedule_and_recorded_with_it(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its length, a scaled run has the 150 periods of the published 300,000 steps."""
    taken = []
    prepared = Step.prepare

    def spied(self: Step, step: int, rate: float, progress: float) -> None:
        taken.append(rate)
        prepared(self, step, rate, progress)

    monkeypatch.setattr(Step, "prepare", spied)
    setting = setting_of(tmp_path, digits, "float32")
    manifest = train_run(setting, 0, lambda *_: None)
    assert taken == pytest.approx([1e-3 * 0.96 ** (150 * step / 11) for step in range(11)])
    history = pd.read_csv(setting.house.run_folder(setting.cell, 0) / "history.csv")
    assert history["step"].tolist() == list(range(1, 12))
    assert history["rate"].tolist() == pytest.approx(taken)
    seen = 16 * history["step"] / len(digits.train.labels)
    assert history["epoch"].tolist() == pytest.approx(seen.tolist())
    assert manifest["final_loss"] == pytest.approx(history["loss"].iloc[-1])
    assert manifest["parameters"] == sum(weight.numel() for weight in new_model(setting, 0).parameters())


class Killed(Exception):
    """Nobody catches it: what a process does that is killed."""


def test_seconds_and_images_a_second_are_those_of_steps_that_were_made_once(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that a step of 16 images moves by two seconds, a measurement by 100, and a killed process by 1,000."""
    now, train, steps, shown = 0.0, Step.train, [], {}

    class Measuring:
        def due(self, step: int, steps: int) -> bool:
            return step in (4, 8)

        def measure(self, model: torch.nn.Module, step: int) -> dict[str, float]:
            nonlocal now
            now += 100
            return {"measured": 1.0}

    def timed(self: Step, batch: Batch) -> None:
        nonlocal now
        if len(steps) == 6:
            steps.append("killed")
            raise Killed
        steps.append("made")
        train(self, batch)
        now += 2

    monkeypatch.setattr(loop_module, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(loop_module, "ROWS", 3)  # at steps 4, 8 and 11
    monkeypatch.setattr(Step, "train", timed)
    monkeypatch.setenv("CAPSBENCH_CHECKPOINT_SECONDS", "0")
    for killed in (True, False):
        run = prepare(setting_of(tmp_path, digits, "float32"), 0)
        assert isinstance(run, Run)
        run.loop.probe = Measuring()
        with pytest.raises(Killed) if killed else contextlib.nullcontext():
            loss = run.loop.train(lambda step, steps, loss, speed: shown.update({step: speed}))
        now += 1000
    history = pd.read_csv(run.loop.folder / "history.csv")
    assert history["step"].tolist() == [4, 8, 11]
    assert history["images_per_second"].tolist() == [8, 8, 8]
    assert shown[3] == shown[7] == 8  # before the first measurement of either process
    assert run.finish(loss)["seconds"] == 2 * 11 + 2 * 100


class Measuring:
    """A probe that looks at nothing, after step 4 and after step 8."""

    def due(self, step: int, steps: int) -> bool:
        return step in (4, 8)

    def measure(self, model: torch.nn.Module, step: int) -> dict[str, float]:
        assert not torch.is_grad_enabled()  # a graph of thousands of images would fill the memory
        return {"measured": 1.0}


def signalled(step: int) -> Progress:
    """Whoever shows how far a run is, with a signal that comes after a step."""
    return lambda done, *_: signal.raise_signal(signal.SIGTERM) if done == step else None


@pytest.mark.parametrize("step", [6, 11])
def test_a_row_whose_steps_a_signal_divides_is_the_mean_over_all_of_them(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The losses since the last reading lie in the checkpoint. After the last step the last row is there already."""
    monkeypatch.setattr(loop_module, "ROWS", 3)  # at steps 4, 8 and 11
    setting = setting_of(tmp_path, digits, "float32")
    folder = setting.house.run_folder(setting.cell, 0)
    train_run(setting, 0, lambda *_: None)
    straight = pd.read_csv(folder / "history.csv").drop(columns="images_per_second")
    shutil.rmtree(folder)
    with pytest.raises(ResourceError, match=f"saved after step {step} of 11"):
        train_run(setting, 0, signalled(step))
    assert train_run(setting, 0, lambda *_: None)["resumed"] == 1
    pd.testing.assert_frame_equal(pd.read_csv(folder / "history.csv").drop(columns="images_per_second"), straight)


def test_a_signal_in_a_step_after_a_measurement_waits_for_that_step_and_a_lost_curve_begins_all_rows_again(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "ROWS", 3)
    said: list[str] = []
    setting = replace(setting_of(tmp_path, digits, "float32"), say=said.append)
    monkeypatch.setattr(run_module, "make_probe", lambda *_: Measuring())
    train, trained = Step.train, []

    def stopped(self: Step, batch: Batch) -> None:
        trained.append(batch)
        if len(trained) == 6:
            signal.raise_signal(signal.SIGTERM)
        train(self, batch)

    monkeypatch.setattr(Step, "train", stopped)
    with pytest.raises(ResourceError, match="stopped by SIGTERM, saved after step 6 of 11"):
        train_run(setting, 0, lambda *_: None)
    folder = setting.house.run_folder(setting.cell, 0)
    (folder / "curve.csv").unlink()
    train_run(setting, 0, lambda *_: None)
    assert [line for line in said if "beginning again at step 0" in line]
    assert pd.read_csv(folder / "history.csv")["step"].tolist() == [4, 8, 11]
    assert pd.read_csv(folder / "curve.csv")["step"].tolist() == [4, 8]


def test_a_run_is_saved_each_time_that_the_seconds_between_checkpoints_are_over(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each step moves by two seconds, and saving by another."""
    now, saved, train = 0.0, [], Step.train

    def timed(self: Step, batch: Batch) -> None:
        nonlocal now
        train(self, batch)
        now += 2

    def saving(self: Loop) -> None:
        nonlocal now
        now += 1
        saved.append(self.done)

    monkeypatch.setattr(loop_module, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(Step, "train", timed)
    monkeypatch.setattr(Loop, "save", saving)
    monkeypatch.setenv("CAPSBENCH_CHECKPOINT_SECONDS", "5")
    train_run(setting_of(tmp_path, digits, "float32"), 0, lambda *_: None)
    assert saved == [3, 6, 9]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_the_last_look_stops_the_command_all_the_same(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    setting = setting_of(tmp_path, digits, "float32")
    write = Loop._write_rows

    def writes(self: Loop) -> None:  # the last rows of a run: nothing looks for signals after them
        write(self)
        signal.raise_signal(number)

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_write_rows", writes)
        with pytest.raises(ResourceError, match=f"stopped by {number.name}; the same command goes on"):
            train_run(setting, 0, lambda *_: None)
    assert signal.getsignal(number) is before
    assert not (setting.house.run_folder(setting.cell, 0) / "manifest.json").exists()
    assert train_run(setting, 0, lambda *_: None)["status"] == "done"


@pytest.mark.parametrize(("plain", "low", "taken"), [(1.4, 1.0, "bf16"), (1.2, 1.0, "float32"), (0.5, 1.0, "float32")])
def test_auto_takes_bf16_where_it_is_much_faster(
    tmp_path: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch, plain: float, low: float, taken: str
) -> None:
    monkeypatch.setattr(Step, "seconds", lambda self, _: {"float32": plain, "bf16": low}[self.precision])
    found = choose_precision(setting_of(tmp_path, digits, "auto"), 0)
    assert found == (taken, {"float32": plain, "bf16": low})


@pytest.mark.parametrize(
    ("before", "now", "routing"),
    [
        ({"precision": "float32"}, "bf16", None),
        ({"precision": "bf16", "routing": "fused"}, "float32", "fused"),
        ({"precision": "bf16", "routing": "plain"}, "bf16", "plain"),
    ],
)
def test_a_run_that_auto_would_now_train_otherwise_goes_on_as_it_began(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch, before: dict, now: str, routing
) -> None:
    monkeypatch.setattr(fusing, "why_not_fused", lambda layer: None)
    seconds = {"float32": 2.0, "bf16": 1.0} if now == "bf16" else {"float32": 1.0, "bf16": 1.0}
    monkeypatch.setattr(Step, "seconds", lambda self, _: seconds[self.precision])
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *_: SimpleNamespace(meta={**before, "threads": 1}))
    run = prepare(setting_of(tmp_path, digits, "auto"), 0)
    assert (run.resolved["precision"], run.resolved.get("routing")) == (before["precision"], routing)
    assert run.loop.step.precision == before["precision"]
    assert {layer.fused for layer in capsule_layers(run.loop.step.model)} == {routing == "fused"}


def test_a_run_that_is_prepared_is_not_done_and_has_the_threads_that_it_began_with(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run's manifest beside its rows would say that they are that run's."""
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    began = {"precision": "float32", "threads": 3}
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *_: SimpleNamespace(meta=began))
    setting = setting_of(tmp_path, digits, "float32")
    manifest = setting.house.run_folder(setting.cell, 0) / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"digest": "of another plan"}')
    assert isinstance(prepare(setting, 0), Run)
    assert not manifest.exists()
    assert asked[-1] == 3


def test_the_manifest_s_flops_are_those_of_plain_routing(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a kernel of ours torch's counter sees none, and one model would have two numbers."""
    run = prepare(setting_of(tmp_path, digits, "float32"), 0)
    assert isinstance(run, Run)
    (layer,) = capsule_layers(run.loop.step.model)
    layer.fused, counted = True, []
    monkeypatch.setattr(run_module, "forward_flops", lambda *_: counted.append(layer.fused) or 17)
    assert run.finish(0.5)["flops"] == 17
    assert counted == [False]
    assert layer.fused


def test_weights_that_the_last_step_breaks_are_a_run_that_failed(
    tmp_path: Path, results: Path, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each loss is taken before its update, so no loss sees what the last one does."""
    setting = setting_of(tmp_path, digits, "float32")
    train = Step.train
    calls = iter(range(1, 12))

    def breaks(self, batch):
        train(self, batch)
        if next(calls) == 11:
            with torch.no_grad():
                next(self.model.parameters()).view(-1)[0] = float("nan")

    monkeypatch.setattr(Step, "train", breaks)
    folder = setting.house.run_folder(setting.cell, 0)
    folder.mkdir(parents=True)
    (folder / "history.csv").write_text("step,loss\n11,another training's\n")
    manifest = train_run(setting, 0, lambda *_: None)
    history = pd.read_csv(folder / "history.csv")  # what was finite, whenever the last checkpoint was
    assert history["step"].tolist() == list(range(1, 11))
    assert np.isfinite(history["loss"]).all()
    assert (manifest["status"], manifest["steps"], manifest["final_loss"]) == ("failed", 11, None)
    assert manifest["reason"] == "weights are not finite after step 11, the last; no loss has seen them"
    assert train_run(setting, 0, lambda *_: pytest.fail("trained again")) == manifest  # it is a result
