"""What each variant costs: parameters, FLOPs, time and memory, all measured in one process, turn by turn.

Time and memory are of untrained weights, random images, float32 and deterministic algorithms. Repetitions go round all
variants before any is measured again, so that what drifts (clocks, heat, neighbours) meets all of them alike.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from capsbench.data.batch import Batch
from capsbench.evaluation.memory import peak_bytes
from capsbench.models import build_model, count_parameters
from capsbench.models.flops import flops
from capsbench.models.layout import channels_last
from capsbench.models.trial import build_and_try
from capsbench.others import Others
from capsbench.plan import Cell, House
from capsbench.plan.done import cost_digest, cost_keys
from capsbench.plan.routings import is_custom
from capsbench.provenance import machine, versions
from capsbench.training.step import Step

PHASES = ("inference", "forward", "backward")
Say = Callable[[str], None]


@dataclass
class Measured:
    """One model at one image size, and what has been measured of it."""

    model: nn.Module
    step: Step
    batch: Batch
    flops: dict[str, int] = field(default_factory=dict)  # an image
    memory: int = 0  # bytes
    seconds: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in PHASES})


def measure_cost(house: House, device: torch.device, threads: int, say: Say) -> dict[str, Any]:
    """Measure every cell of the plan; cells that differ in nothing but their training share one measurement.

    Returns what cost.json holds (docs/results-format.md). Raises RoutingError where a routing from outside the package
    does not do what is expected of one.
    """
    options = house.plan.cost
    assert options is not None  # the caller asks only where the plan wants it
    started = datetime.datetime.now(datetime.UTC)
    measured: dict[str, Measured] = {}
    cells = cost_keys(house)  # (cell, key)
    for cell, key in cells:
        if key not in measured:
            measured[key] = _prepare(house, cell, options.batch, device)
    others = Others()
    for number in range(options.repetitions + 1):  # the first round warms up and counts for nothing
        for one in measured.values():
            seconds = _timed(one, device)
            if number:
                for phase in PHASES:
                    one.seconds[phase].append(seconds[phase])
        if number:
            say(f"cost: round {number} of {options.repetitions}, {len(measured)} models")
    taken = others.cores()
    for one in measured.values():
        one.flops = _flops(one)
        one.memory = _peak_bytes(one, device)
    return {
        "schema": 1,
        "digest": cost_digest(house),
        "plan": house.name,
        "device": device.type,
        "threads": threads,
        "precision": "float32",
        "batch": options.batch,
        "repetitions": options.repetitions,
        "memory_of": "the GPU's allocator" if device.type == "cuda" else "torch's allocator on the CPU",
        "started": started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "others": taken,
        "versions": versions(),
        "machine": machine(),
        "rows": [_row(cell, measured[key], options.batch) for cell, key in cells],
    }


def _prepare(house: House, cell: Cell, batch: int, device: torch.device) -> Measured:
    """A model and a batch of random images, the digits in them and their labels: two where the cell trains on pairs."""
    folder, (height, width) = house.path.parent, cell.options.IMAGE
    torch.manual_seed(0)
    if is_custom(getattr(cell.spec, "routing", "")):
        model = build_and_try(cell.spec, height, folder)
    else:
        model = build_model(cell.spec, height, folder)
    model = channels_last(model.to(device))
    digits = 2 if cell.task == "multimnist" or cell.spec.train_on == "pairs" else 1
    if cell.spec.train_on == "pairs":
        height *= 2  # one digit above the other
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(batch, 1, height, width, generator=draw)
    labels = torch.rand(batch, 10, generator=draw).argsort(1)[:, :digits]  # different ones
    alone = images.expand(-1, digits, -1, -1).contiguous()
    given = Batch(images.to(device), labels.to(device), alone.to(device))
    step = Step(model, cell.spec, None, 0, "float32", 1e-3)  # type: ignore[arg-type]  # its stream is never asked
    return Measured(model, step, given)


def _timed(one: Measured, device: torch.device) -> dict[str, float]:
    """Seconds of inference, of the loss in training mode, and of its gradient, of one batch."""
    clock = _Clock(device)
    one.model.eval()
    with torch.inference_mode():
        one.model(one.batch.images)
    seconds = {"inference": clock.lap()}
    one.model.train()
    clock.lap()
    loss = one.step.losses(one.batch)[0]
    seconds["forward"] = clock.lap()
    loss.backward()
    seconds["backward"] = clock.lap()
    one.model.zero_grad(set_to_none=True)
    return seconds


class _Clock:
    """Seconds between laps, each of which waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.last = self._now()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def lap(self) -> float:
        before, self.last = self.last, self._now()
        return self.last - before


def _flops(one: Measured) -> dict[str, int]:
    """FLOPs of the batch's first image by torch's counter: matrix products and convolutions, two a multiply-add.

    Of one image, as `forward_flops`: larger batches may go by way of the frequencies, with fewer products than the
    convolution has, and counts would compare code paths instead of models.
    """
    image = Batch(*(tensor[:1] for tensor in one.batch))
    one.model.eval()
    with torch.inference_mode():
        inference = flops(lambda: one.model(image.images))
    one.model.train()
    losses: list[torch.Tensor] = []
    forward = flops(lambda: losses.append(one.step.losses(image)[0]))
    backward = flops(losses[0].backward)
    one.model.zero_grad(set_to_none=True)
    return {"inference": inference, "forward": forward, "backward": backward}


def _peak_bytes(one: Measured, device: torch.device) -> int:
    """The most bytes that parameters, activations and gradients of one forward and backward pass take at once."""
    parameters = sum(p.numel() * p.element_size() for p in one.model.parameters())
    one.model.train()
    peak = peak_bytes(lambda: one.step.losses(one.batch)[0].backward(), device)
    one.model.zero_grad(set_to_none=True)
    return parameters + peak


def _row(cell: Cell, one: Measured, batch: int) -> dict[str, Any]:
    """One cell's line of cost.json: medians, and every repetition they come from."""
    medians = {phase: statistics.median(one.seconds[phase]) for phase in PHASES}
    return {
        "task": cell.task,
        "variant": cell.folder_name,
        "image": list(one.batch.images.shape[2:]),
        "parameters": count_parameters(one.model),
        "flops": one.flops,
        "images_per_second": {phase: round(batch / medians[phase], 3) for phase in PHASES},
        "peak_memory_mb": round(one.memory / 2**20, 3),
        "seconds": {phase: [round(s, 7) for s in one.seconds[phase]] for phase in PHASES},
    }
