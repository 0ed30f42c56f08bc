"""Training steps of every variant, a thirty-second of its width unless said, on random digits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from capsbench.data.batch import DigitSet, Stream
from capsbench.models import build_model
from capsbench.models.layout import channels_last
from capsbench.plan import load_variants
from capsbench.plan.tasks import TASKS
from capsbench.plan.variants import Spec
from capsbench.training.checkpoint import tensor_digest, training_tensors
from capsbench.training.fusing import choose_routing
from capsbench.training.step import Step, adam
from capsbench.training.tiling import choose_convolutions

VARIANTS = load_variants()
COUNT = 60  # digits: an epoch is ten batches
BATCH = 6


def tasks_of(name: str) -> list[str]:
    """The tasks that a variant fits."""
    return [word for word, task in TASKS.items() if task.model_construct(variants=[name]).unfit(VARIANTS[name]) is None]


def random_digits(device: str) -> DigitSet:
    draw = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (COUNT, 28, 28), generator=draw, dtype=torch.uint8)
    return DigitSet(images.to(device), (torch.arange(COUNT) % 10).to(device))


def stream_of(task: str, spec: Spec, device: str = "cpu") -> Stream:
    digits = random_digits(device)
    module = importlib.import_module(f"capsbench.data.{task}")
    options: dict[str, Any] = {"seed": 1, "batch": BATCH}
    if spec.train_on == "pairs":
        return module.pair_stream(digits, pairs=COUNT, **options)
    if task == "multimnist":
        options["pairs"] = COUNT
    return module.training_stream(digits, **options)


def small_step(
    name: str,
    task: str | None = None,
    precision: str = "float32",
    device: str = "cpu",
    width: float = 1 / 32,
    fused: bool = False,
    tiled: bool = False,
) -> Step:
    """The step of a variant at a task, its home unless said; `fused`, `tiled`: by these kernels, or the test fails."""
    task = task or VARIANTS[name].home
    spec = VARIANTS[name].scaled(width)
    torch.manual_seed(0)
    model = channels_last(build_model(spec, TASKS[task].IMAGE[0]).to(device))
    if fused:
        assert choose_routing(model, torch.device(device), pytest.fail) == {"routing": "fused"}
    if tiled:
        assert choose_convolutions(model, pytest.fail) == {"convolutions": "tiles"}
    return Step(model, spec, stream_of(task, spec, device), 5, precision, 1e-3)


def with_its_rate_in_a_tensor(step: Step) -> Step:
    """The step with the optimiser that it has on a GPU."""
    step.optimiser = adam(step.model, 1e-3, on_device=True)
    return step


def bits(step: Step) -> str:
    return tensor_digest(training_tensors(step.model, step.optimiser, step.sums))


def go_on(way: Callable[[int, float, float], None], start: int, stop: int) -> None:
    """Steps `start` to `stop` - 1, at rates and progresses that differ."""
    for number in range(start, stop):
        way(number, 1e-3 * 0.8**number, number / 25)
