"""What a variant costs, measured: counts against arithmetic, and when it is measured again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from capsbench.evaluation.cost import PHASES, measure_cost
from capsbench.models import build_model, count_parameters
from capsbench.models.capsnet import CapsNet
from capsbench.models.convolution import IMAGES, WIDE
from capsbench.models.flops import flops, forward_flops
from capsbench.plan import House
from capsbench.plan.done import cost_digest, is_measured

HEAD = """
name: costs
budget: reduced
seeds: [0]
width: 0.0625
training: {steps: 4, batch: 16, precision: float32}
cost: {batch: 4, repetitions: 3}
"""
PLAN = f"""{HEAD}
variants:
  twice: {{base: capsnet-r3-recon, title: The same under another name}}
  plain: {{model: cnn, channels: [32], kernels: [5], head: average}}
  own: {{base: capsnet-r3-recon, routing: "cost_routing:halves"}}
tasks:
  mnist:
    variants: [plain, capsnet-r3-recon, twice, own]
  multimnist:
    variants: [capsnet-r3-recon]
  two_digit:
    variants: [two-digit-control]
"""
ROUTING = """
from capsbench.routing import Routed, length
def halves(votes):
    c = votes.new_full(votes.shape[:3], 0.5)
    v = 0.5 * votes.sum(1)
    return Routed(v, c, length(v))
"""


def write(folder: Path, *replacements: tuple[str, str]) -> House:
    (folder / "cost_routing.py").write_text(ROUTING)
    text = PLAN
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "costs.yaml").write_text(text)
    return House.load(folder / "costs.yaml")


def test_every_cell_is_measured_and_alike_ones_once(tmp_path: Path) -> None:
    house, said = write(tmp_path), []
    found = measure_cost(house, torch.device("cpu"), 1, said.append)
    json.dumps(found, allow_nan=False)
    rows = {(row["task"], row["variant"]): row for row in found["rows"]}
    assert list(rows) == [(cell.task, cell.variant) for cell in house.cells]
    for cell in house.cells:
        row, size = rows[cell.task, cell.variant], cell.options.IMAGE[0]
        parameters = count_parameters(build_model(cell.spec, size, tmp_path))
        assert row["parameters"] == parameters
        # parameters and as many gradients are held at the end of the backward pass
        assert row["peak_memory_mb"] * 2**20 >= 2 * 4 * parameters
        for phase in PHASES:
            assert len(row["seconds"][phase]) == 3
            median = sorted(row["seconds"][phase])[1]
            assert row["images_per_second"][phase] == pytest.approx(4 / median, rel=1e-2)
    plain = rows["mnist", "plain"]["flops"]
    convolution = 2 * 28 * 28 * 2 * 5 * 5  # two channels, SAME padding, two FLOPs a multiply-add
    assert plain["inference"] == plain["forward"] == convolution + 2 * 2 * 10
    reference = rows["mnist", "capsnet-r3-recon"]
    assert reference["flops"]["forward"] > reference["flops"]["inference"]  # the decoder draws in training alone
    assert reference["seconds"] == rows["mnist", "twice"]["seconds"]
    assert reference["seconds"] != rows["mnist", "own"]["seconds"]
    assert rows["multimnist", "capsnet-r3-recon"]["flops"]["inference"] > reference["flops"]["inference"]
    assert said == [f"cost: round {number} of 3, 5 models" for number in (1, 2, 3)]
    assert (found["batch"], found["repetitions"], found["device"], found["threads"]) == (4, 3, "cpu", 1)


def test_flops_of_an_image_are_the_model_s_and_not_the_batch_s(tmp_path: Path) -> None:
    """At full width, where a CPU computes a batch's convolutions with fewer products than one image's."""
    text = f"""
name: counts
budget: reduced
seeds: [0]
training: {{steps: 1, batch: 1, precision: float32}}
cost: {{batch: {IMAGES}, repetitions: 1}}
variants:
  wide: {{model: cnn, channels: [{WIDE}, {WIDE}], kernels: [5, 5], pools: [2, 2], head: average}}
tasks:
  mnist: {{variants: [capsnet-r3-recon, wide]}}
"""
    (tmp_path / "counts.yaml").write_text(text)
    found = measure_cost(house := House.load(tmp_path / "counts.yaml"), torch.device("cpu"), 1, lambda _: None)
    (tmp_path / "counts.yaml").write_text(text.replace(f"batch: {IMAGES}", "batch: 2"))
    few = measure_cost(House.load(tmp_path / "counts.yaml"), torch.device("cpu"), 1, lambda _: None)
    assert [row["flops"] for row in found["rows"]] == [row["flops"] for row in few["rows"]]
    for cell, row in zip(house.cells, found["rows"], strict=True):
        model = build_model(cell.spec, 28, tmp_path).eval()
        assert row["flops"]["inference"] == forward_flops(model, (28, 28))
        with torch.inference_mode():
            assert flops(lambda model=model: model(torch.zeros(IMAGES, 1, 28, 28))) < IMAGES * row["flops"]["inference"]


def measured_alone(folder: Path, task: str, variant: str) -> tuple[House, dict]:
    """A plan of one cell, and that cell's row."""
    (folder / "one.yaml").write_text(f"{HEAD}tasks: {{{task}: {{variants: [{variant}]}}}}")
    house = House.load(folder / "one.yaml")
    (row,) = measure_cost(house, torch.device("cpu"), 1, lambda _: None)["rows"]
    return house, row


@pytest.mark.parametrize(("task", "digits"), [("mnist", 1), ("multimnist", 2)])
def test_the_decoder_draws_once_for_each_digit_of_an_image(tmp_path: Path, task: str, digits: int) -> None:
    house, row = measured_alone(tmp_path, task, "capsnet-r3-recon")
    (size, size) = row["image"]
    layers = build_model(house.cells[0].spec, size, tmp_path).decoder.layers
    drawing = 2 * sum(layer.weight.numel() for layer in layers)  # two FLOPs a multiply-add
    assert row["flops"]["forward"] - row["flops"]["inference"] == digits * drawing


@pytest.mark.parametrize(("variant", "image"), [("two-digit-control", [56, 28]), ("two-digit-average-mlp", [28, 28])])
def test_a_model_is_measured_on_images_of_the_size_that_it_trains_on(
    tmp_path: Path, variant: str, image: list[int]
) -> None:
    assert measured_alone(tmp_path, "two_digit", variant)[1]["image"] == image


def test_inference_is_measured_in_evaluation_mode_and_the_rest_in_training_mode(tmp_path: Path) -> None:
    seen = []

    def see(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if isinstance(module, CapsNet):
            assert torch.is_inference_mode_enabled() is not module.training
            seen.append(module.training)

    handle = nn.modules.module.register_module_forward_pre_hook(see)
    try:
        measured_alone(tmp_path, "mnist", "capsnet-r3-recon")
    finally:
        handle.remove()
    time, flop, memory = [False, True], [False, True], [True]
    assert seen == 4 * time + flop + memory  # a round that warms up, and three repetitions


def test_each_phase_is_timed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that what a phase does moves on: changing the mode in between is in no phase's time."""
    now = 0
    forward, train, backward = CapsNet.forward, CapsNet.train, Tensor.backward

    def moved(seconds: int) -> None:
        nonlocal now
        now += seconds

    def timed_forward(self: CapsNet, *args, **keywords):
        moved(10 if self.training else 1)
        return forward(self, *args, **keywords)

    def timed_train(self: CapsNet, mode: bool = True) -> nn.Module:
        moved(1000 if mode else 0)
        return train(self, mode)

    def timed_backward(self: Tensor, *args, **keywords) -> None:
        moved(100)
        backward(self, *args, **keywords)

    monkeypatch.setattr("capsbench.evaluation.cost.time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(CapsNet, "forward", timed_forward)
    monkeypatch.setattr(CapsNet, "train", timed_train)
    monkeypatch.setattr(Tensor, "backward", timed_backward)
    row = measured_alone(tmp_path, "mnist", "capsnet-r3-recon")[1]
    assert row["seconds"] == {"inference": 3 * [1], "forward": 3 * [10], "backward": 3 * [100]}


@pytest.mark.parametrize("beyond", [0, 5 * 2**20])
def test_memory_is_the_parameters_and_what_a_pass_holds_beyond_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    monkeypatch.setattr("capsbench.evaluation.cost.peak_bytes", lambda call, device: beyond)
    row = measured_alone(tmp_path, "mnist", "capsnet-r3-recon")[1]
    assert row["peak_memory_mb"] == pytest.approx((4 * row["parameters"] + beyond) / 2**20, abs=0.0006)


def test_what_decides_a_cost_decides_its_digest(tmp_path: Path) -> None:
    before = cost_digest(write(tmp_path))
    assert cost_digest(write(tmp_path, ("seeds: [0]", "seeds: [0, 1]"), ("steps: 4", "steps: 5"))) == before
    assert cost_digest(write(tmp_path, ("The same under", "Alike under"))) == before
    for change in (("batch: 4", "batch: 8"), ("0.0625", "0.125"), ("channels: [32]", "channels: [64]")):
        assert cost_digest(write(tmp_path, change)) != before
    house = write(tmp_path)
    (tmp_path / "cost_routing.py").write_text(ROUTING.replace("0.5", "0.25"))
    assert cost_digest(house) != before


def test_a_truncated_measurement_is_none(tmp_path: Path) -> None:
    digest = cost_digest(write(tmp_path))
    file = tmp_path / "cost.json"
    assert not is_measured(tmp_path, digest)
    file.write_text(json.dumps({"digest": digest}))
    assert is_measured(tmp_path, digest)
    assert not is_measured(tmp_path, "another")
    file.write_text(file.read_text()[:-5])
    assert not is_measured(tmp_path, digest)


def test_a_plan_may_do_without(tmp_path: Path) -> None:
    assert write(tmp_path, ("cost: {batch: 4, repetitions: 3}", "cost: false")).plan.cost is None
    assert write(tmp_path, ("cost: {batch: 4, repetitions: 3}\n", "")).plan.cost.model_dump() == {
        "batch": 128,
        "repetitions": 10,
    }
