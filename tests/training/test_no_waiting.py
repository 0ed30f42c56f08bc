"""No step of any variant makes the host wait: not on the CPU's paths nor, with tensors that hold nothing, a GPU's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from small_steps import VARIANTS, small_step, stream_of, tasks_of
from tape import NoWaiting
from torch import Tensor

from capsbench.data.batch import Batch

CASES = [(name, task) for name in VARIANTS for task in tasks_of(name)]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_no_step_on_a_cpu_waits(name: str, task: str) -> None:
    step = small_step(name, task, "bf16" if task == VARIANTS[name].home else "float32")
    with NoWaiting():
        step(0, 1e-3, 0.0)
        step(1, 1e-3, 0.5)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_no_forward_nor_backward_pass_off_the_cpu_waits(name: str, task: str, monkeypatch) -> None:
    # Models go other ways on other devices. A meta tensor has no values: whoever asks for one fails, on these ways too.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # which knows no meta
    step = small_step(name, task)
    step.model.to("meta")
    batch = Batch(*(value.to("meta") for value in step.stream.batch(0)))
    progress = step.progress.to("meta")
    with NoWaiting():
        step.losses(batch, progress)[0].backward()
    assert {parameter.grad.device.type for parameter in step.model.parameters()} == {"meta"}  # type: ignore[union-attr]


@pytest.mark.parametrize("task", ["mnist", "affnist", "multimnist", "two_digit"])
def test_no_batch_waits_over_several_epochs(task: str) -> None:
    stream = stream_of(task, VARIANTS[next(name for name in VARIANTS if task in tasks_of(name))])
    with NoWaiting():
        for number in range(35):
            stream.batch(number)


HARMS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: 1 if (x > 0).any() else 0,
    "float": lambda x: float(x.detach().mean()),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "assignment by a mask": lambda x: x.clone().__setitem__(x > 0, torch.ones(1)[0]),
    "masked_select": lambda x: x.masked_select(x > 0),
    "equal": lambda x: torch.equal(x, x),
    "one_hot": lambda x: torch.nn.functional.one_hot(x[:, 0].detach().argmax(1), 99),
    "unique": lambda x: x.detach().unique(),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_step_that_waits_is_found(harm: str) -> None:
    step = small_step("cnn")
    step.model.convolutions[0].register_forward_hook(lambda module, given, made: (HARMS[harm](made), None)[1])
    step(0, 1e-3)
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        step(1, 1e-3)


def test_a_copy_between_devices_is_found() -> None:
    with pytest.raises(AssertionError, match="copies between devices"), NoWaiting():
        torch.ones(3).to("meta")


def test_a_gradient_that_waits_is_found() -> None:
    step = small_step("cnn")
    step.model.convolutions[0].weight.register_hook(lambda gradient: gradient * gradient.norm().item())
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        step(0, 1e-3)
