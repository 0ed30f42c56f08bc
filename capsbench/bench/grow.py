"""How the cost of a training step grows: with the batch, and with the number of input capsules."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from capsbench.bench.measure import Contender, Say, race
from capsbench.bench.plain import PlainCapsNet, PlainStep
from capsbench.bench.run import PLAIN, random_batch
from capsbench.data.batch import Batch
from capsbench.errors import CapsbenchError
from capsbench.evaluation.memory import peak_bytes
from capsbench.models import build_model
from capsbench.plan import Cell, House
from capsbench.plan.variants import CapsNetSpec
from capsbench.training.device import give_memory_back
from capsbench.training.step import Step

BATCHES = (32, 64, 128, 256, 512, 1024, 2048)
PIXELS = (22, 28, 36, 40)  # 288, 1152, 3200 and 4608 input capsules of the paper's CapsNet


class _Again:
    """A stream of one batch, again and again."""

    def __init__(self, batch: Batch) -> None:
        self.only = batch

    def batch(self, _: int) -> Batch:
        return self.only


def has_capsules(cell: Cell) -> CapsNetSpec:
    """The spec of a cell whose input capsules can be counted. Raises CapsbenchError for another model."""
    if not isinstance(cell.spec, CapsNetSpec):
        raise CapsbenchError(f"--grow counts input capsules, which {cell.variant} has not; name a CapsNet first.")
    return cell.spec


def grow(
    house: House, cell: Cell, batch: int, largest: int, rounds: int, device: torch.device, say: Say
) -> dict[str, list[dict[str, Any]]]:
    """Training steps of a cell and of the plain CapsNet at every batch up to `largest`, and at every image size.

    Returns rows under `batch` (at 28x28) and `inputs` (at that batch): name, precision, size, median seconds a step,
    images a second, bytes that a step holds at most beside the parameters. Raises as `has_capsules` does.
    """
    spec = has_capsules(cell)
    found: dict[str, list[dict[str, Any]]] = {"batch": [], "inputs": []}
    for images in (n for n in BATCHES if n <= largest):
        found["batch"] += _rows(house, cell, 28, images, images, rounds, device)
        say(f"batch {images}")
    for pixels in PIXELS:
        inputs = spec.primary_types * ((pixels - 2 * (spec.kernel - 1) - 1) // 2 + 1) ** 2  # as in models/capsnet.py
        found["inputs"] += _rows(house, cell, pixels, batch, inputs, rounds, device)
        say(f"{inputs} input capsules")
    return found


def _rows(
    house: House, cell: Cell, pixels: int, images: int, size: int, rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    given = random_batch(pixels, images, device)
    contenders = [
        Contender(PLAIN, "training", "float32", images, PlainStep(PlainCapsNet(pixels).to(device), given)),
        *(_ours(house, cell, precision, given, device) for precision in ("float32", "bf16")),
    ]
    rows = []
    for contender in contenders:
        give_memory_back()  # of others, of other sizes: it lies in pieces, and would be twice what is needed
        race([contender], rounds, device, lambda _: None)
        seconds = statistics.median(contender.seconds)
        rows.append(
            {
                "name": contender.name,
                "precision": contender.precision,
                "size": size,
                "seconds": seconds,
                "images_per_second": images / seconds,
                "peak_bytes": peak_bytes(contender.call, device),
            }
        )
    return rows


def _ours(house: House, cell: Cell, precision: str, given: Batch, device: torch.device) -> Contender:
    torch.manual_seed(0)
    model = build_model(cell.spec, given.images.shape[-1], house.path.parent)
    model = model.to(device).to(memory_format=torch.channels_last)
    only: Any = _Again(given)  # it has what a step asks of its data
    step = Step(model, cell.spec, only, 0, precision, 1e-3)
    return Contender(cell.variant, "training", precision, len(given.images), lambda: step(0, 1e-3))
