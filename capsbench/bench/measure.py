"""Contenders timed turn by turn in one process: medians and quartiles, against the machine's own rate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from capsbench.training.precisions import precisions

Say = Callable[[str], None]
# Seconds between two waits, at least: a wait costs as much as a short step, and no run waits after each. A CPU call has
# nothing to wait for.
LEAST = {"cpu": 0.0, "cuda": 0.05}
SIDE = 2048  # of the square matrices whose product sets the peak on a CPU; 8192 on a GPU, which is filled only so


@dataclass
class Contender:
    """Something that is done to a batch of images, again and again."""

    name: str
    phase: str  # training or inference; product or copy for the machine's own rates
    precision: str
    images: int  # a call
    call: Callable[[], None]
    flops: int | None = None  # a call
    moved: int | None = None  # bytes a call, as `count.moved_bytes` counts them
    peak: int | None = None  # bytes held at once, parameters included
    calls: int = 1  # between two waits for the device
    seconds: list[float] = field(default_factory=list)


def race(
    contenders: list[Contender],
    rounds: int,
    device: torch.device,
    say: Say,
    after: Callable[[int], None] = lambda done: None,
) -> None:
    """Time every contender once a round, so that what drifts meets all alike; the warm-up is not counted.

    `seconds` of each gets `rounds` entries, seconds a call. On a GPU so many calls follow each other between two waits
    (`calls`, doubled in the warm-up) that they take LEAST: one is started while the one before it runs, as in training.
    `after` is called with the number of rounds done.
    """
    least = LEAST[device.type]
    for contender in contenders:
        _seconds(contender, device)
        while least and _seconds(contender, device) < least:
            contender.calls *= 2
    say("warmed up")
    for number in range(rounds):
        for contender in contenders:
            contender.seconds.append(_seconds(contender, device) / contender.calls)
        say(f"round {number + 1} of {rounds}")
        after(number + 1)


def _seconds(contender: Contender, device: torch.device) -> float:
    """Seconds of its calls, one after another, until the device has done them all."""
    wait(device)
    start = time.perf_counter()
    for _ in range(contender.calls):
        contender.call()
    wait(device)
    return time.perf_counter() - start


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def products(device: torch.device) -> Iterator[Contender]:
    """Square matrix products in the device's precisions, on a GPU in TF32 too: the rate that a step is held against."""
    side = SIDE if device.type == "cpu" else 4 * SIDE
    draw = torch.Generator(device).manual_seed(0)
    for precision in (*precisions(device), *(() if device.type == "cpu" else ("tf32",))):
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        a, b = (torch.randn(side, side, generator=draw, device=device).to(kind) for _ in range(2))
        call = _product(a, b, tf32=precision == "tf32")
        yield Contender(f"matrix product {side}", "product", precision, 0, call, 2 * side**3)


def copy(device: torch.device) -> Contender:
    """A copy that no cache holds: the rate at which memory is read and written."""
    size = (64 if device.type == "cpu" else 1024) * 2**20
    a = torch.rand(size, generator=torch.Generator(device).manual_seed(0), device=device)
    b = torch.empty_like(a)
    return Contender("copy", "copy", "float32", 0, lambda: _copy(a, b), moved=2 * a.numel() * a.element_size())


def _copy(a: torch.Tensor, b: torch.Tensor) -> None:
    b.copy_(a)


def _product(a: torch.Tensor, b: torch.Tensor, tf32: bool) -> Callable[[], None]:
    def call() -> None:
        if tf32:
            torch.backends.cuda.matmul.allow_tf32 = True
        a @ b
        if tf32:
            torch.backends.cuda.matmul.allow_tf32 = False

    return call


def row(contender: Contender, plain: dict[str, float], peak: dict[str, float], epoch: int) -> dict[str, Any]:
    """One line of the result.

    Args:
        plain: median seconds an image of the reference, by phase; peak: FLOP/s of the matrix product, by precision.
        epoch: images an epoch.
    """
    median = statistics.median(contender.seconds)
    several = len(contender.seconds) > 1  # "inclusive": no quartile lies outside what was measured
    low, _, high = statistics.quantiles(contender.seconds, n=4, method="inclusive") if several else (median,) * 3
    each = median / contender.images
    rate = None if contender.flops is None else contender.flops / median
    return {
        "name": contender.name,
        "phase": contender.phase,
        "precision": contender.precision,
        "batch": contender.images,
        "calls": contender.calls,
        "seconds": {"median": median, "q1": low, "q3": high, "all": contender.seconds},
        "images_per_second": 1 / each,
        "seconds_per_epoch": each * epoch if contender.phase == "training" else None,
        "times_plain": plain[contender.phase] / each if contender.phase in plain else None,
        "flops_per_second": rate,
        "flops": contender.flops,
        "moved_bytes": contender.moved,
        "peak_bytes": contender.peak,
        "fraction_of_product": None if rate is None else rate / peak[contender.precision],
    }
