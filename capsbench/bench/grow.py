"""How the cost of a training step grows: with the batch, the input capsules, and the seeds trained at once."""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from capsbench.bench.measure import Contender, Say, race, wait
from capsbench.bench.plain import PlainCapsNet, PlainStep
from capsbench.bench.run import PLAIN, as_it_trains, random_batch
from capsbench.data.batch import Batch
from capsbench.errors import CapsbenchError, counted
from capsbench.evaluation.memory import peak_bytes
from capsbench.models import build_model
from capsbench.models.layout import channels_last
from capsbench.plan import Cell, House
from capsbench.plan.variants import CapsNetSpec
from capsbench.training.capture import CapturedStep, captured
from capsbench.training.device import give_memory_back
from capsbench.training.precisions import precisions
from capsbench.training.step import Step
from capsbench.training.what_to_lower import says_what_to_lower

BATCHES = (32, 64, 128, 256, 512, 1024, 2048)
PIXELS = (22, 28, 36, 40)  # 288, 1152, 3200 and 4608 input capsules of the paper's CapsNet
SEEDS = (1, 2, 4, 8)
Growth = dict[str, list[dict[str, Any]]]


class _Again:
    """A stream of one batch, again and again."""

    def __init__(self, batch: Batch) -> None:
        self.only = batch

    def batch(self, _: int) -> Batch:
        return self.only


class _AtOnce:
    """A step of each of several seeds, as `training.together` trains them: in turn on a CPU; on a CUDA GPU captured,
    each on a stream of its own, or, where one cannot be captured, eagerly in turn.

    held: bytes that captured steps hold, which is what they ever will; None where an eager step has to be asked.
    """

    def __init__(self, steps: list[Step], device: torch.device, say: Say) -> None:
        wait(device)  # what the steps are made of was made on another stream
        before = _reserved(device)
        self.ways: list[tuple[torch.cuda.Stream | None, Step | CapturedStep]] = []
        for step in steps:
            stream = torch.cuda.Stream(device) if device.type == "cuda" else None
            with _on(stream):
                self.ways.append((stream, captured(step, 0, say)))
        self.captured = all(isinstance(way, CapturedStep) for _, way in self.ways)
        self.held = _reserved(device) - before if self.captured else None
        if not self.captured:
            self.ways = [(None, step) for step in steps]

    def __call__(self) -> None:
        for stream, way in self.ways:
            with _on(stream):
                way(0, 1e-3)


def _on(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[object]:
    return torch.cuda.stream(stream) if stream else contextlib.nullcontext()


def _reserved(device: torch.device) -> int:
    """Bytes of a GPU that torch cannot give back: a graph's memory, not counted as allocated, is among them."""
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved(device)


def has_capsules(cell: Cell) -> CapsNetSpec:
    """The spec of a cell whose input capsules can be counted. Raises CapsbenchError for another model."""
    if not isinstance(cell.spec, CapsNetSpec):
        raise CapsbenchError(
            f"--grow and --routing count input capsules, which {cell.variant} does not have; name a CapsNet first."
        )
    return cell.spec


def places_of(spec: CapsNetSpec, pixels: int) -> int:
    """Places of PrimaryCaps, each with a capsule of every type, in an image `pixels` high and wide."""
    return ((pixels - 2 * (spec.kernel - 1) - 1) // 2 + 1) ** 2  # as in models/capsnet.py


def grow(
    house: House,
    cell: Cell,
    batch: int,
    largest: int,
    rounds: int,
    device: torch.device,
    say: Say,
    keep: Callable[[Growth], None] = lambda so_far: None,
) -> Growth:
    """Training steps of a cell and of the plain CapsNet at every batch up to `largest`, and at every image size.

    `keep` is called after each size with what is there so far, since a lent machine may go, or memory end, before the
    last. Returns rows under `batch` (at 28x28) and `inputs` (at that batch): name, precision, size, median seconds a
    step, images a second, bytes that a step holds at most beside the parameters. Under `seeds` a step is one of each of
    so many seeds of the cell (`_AtOnce`). Raises as `has_capsules` does, and as `says_what_to_lower`.
    """
    spec = has_capsules(cell)
    found: Growth = {"batch": [], "inputs": [], "seeds": []}

    def measured(what: str, words: str, rows: list[dict[str, Any]]) -> None:
        found[what] += rows
        say(words)
        keep(found)

    for images in (n for n in BATCHES if n <= largest):
        words = f"batch {images:,}"
        remedy = f"choose a --grow under {images}" if images > BATCHES[0] else "leave out --grow"
        with says_what_to_lower(f"bench --grow at {words}", remedy):
            measured("batch", words, _rows(house, cell, 28, images, images, rounds, device, say))
    smaller = "choose a smaller --batch"
    for pixels in PIXELS:
        inputs = spec.primary_types * places_of(spec, pixels)
        words = f"{inputs:,} input capsules"
        with says_what_to_lower(f"bench --grow at {words}, batch {batch:,}", smaller):
            measured("inputs", words, _rows(house, cell, pixels, batch, inputs, rounds, device, say))
    for count in SEEDS:
        with says_what_to_lower(f"bench --grow with {counted(count, 'seed')} at once, batch {batch:,}", smaller):
            measured("seeds", f"seeds: {count}", _seeds_at_once(house, cell, batch, count, rounds, device, say))
    return found


def _seeds_at_once(
    house: House, cell: Cell, batch: int, count: int, rounds: int, device: torch.device, say: Say
) -> list[dict[str, Any]]:
    """A row for each precision of so many seeds of a cell, a step of each."""
    given, rows = random_batch(28, batch, device), []
    for precision in precisions(device):
        made = [_step(house, cell, precision, given, seed, device, say) for seed in range(count)]
        at_once = _AtOnce([step for step, _ in made], device, say)
        name = f"{made[0][1]}, captured" if at_once.captured else made[0][1]
        contender = Contender(name, "training", precision, count * batch, at_once)
        row = _row(contender, count, rounds, device)
        rows.append(row if at_once.held is None else {**row, "peak_bytes": at_once.held})
    return rows


def _rows(
    house: House, cell: Cell, pixels: int, images: int, size: int, rounds: int, device: torch.device, say: Say
) -> list[dict[str, Any]]:
    given = random_batch(pixels, images, device)
    plain = PlainStep(PlainCapsNet(pixels).to(device), given)
    contenders = [Contender(PLAIN, "training", "float32", images, plain)]
    for precision in precisions(device):
        step, name = _step(house, cell, precision, given, 0, device, say)
        contenders.append(Contender(name, "training", precision, images, functools.partial(step, 0, 1e-3)))
    return [_row(contender, size, rounds, device) for contender in contenders]


def _row(contender: Contender, size: int, rounds: int, device: torch.device) -> dict[str, Any]:
    give_memory_back()  # of others, of other sizes: it lies in pieces, and would be twice what is needed
    race([contender], rounds, device, lambda _: None)
    seconds = statistics.median(contender.seconds)
    return {
        "name": contender.name,
        "precision": contender.precision,
        "size": size,
        "seconds": seconds,
        "images_per_second": contender.images / seconds,
        "peak_bytes": peak_bytes(contender.call, device),
    }


def _step(
    house: House, cell: Cell, precision: str, given: Batch, seed: int, device: torch.device, say: Say
) -> tuple[Step, str]:
    """The eager step that a run has, and what it is called: by kernels of ours where a run takes them."""
    torch.manual_seed(seed)
    model = build_model(cell.spec, given.images.shape[-1], house.path.parent)
    model = channels_last(model.to(device))
    only: Any = _Again(given)  # it has what a step asks of its data
    name = as_it_trains(cell.variant, model, precision, device, say)
    return Step(model, cell.spec, only, seed, precision, 1e-3), name
