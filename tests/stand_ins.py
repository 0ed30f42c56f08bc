"""Digits that can be read off their grey level, and models that read them: always right or always wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.evaluation.run import Trained
from capsbench.files import write_json
from capsbench.models.output import Output
from capsbench.plan import Cell
from capsbench.plan.schema import Training
from capsbench.plan.tasks import TASKS
from capsbench.plan.variants import SPECS, Spec

BLOCK = 12  # pixels a side: an affine transform leaves pixels inside that keep their level
# A Golomb ruler: no two pairs of levels have the same sum, and no sum of two is clipped at 255.
LEVELS = 20 + 2 * torch.tensor([0, 1, 6, 10, 23, 26, 34, 41, 53, 55])


def coded_digits(count: int, labels: Tensor | None = None) -> DigitSet:
    """Blocks in the middle whose grey level is that of their class; labels 0, 1, 2, ... in turn."""
    classes = torch.arange(count) % 10
    images = torch.zeros(count, 28, 28, dtype=torch.uint8)
    images[:, 8 : 8 + BLOCK, 8 : 8 + BLOCK] = LEVELS[classes].to(torch.uint8)[:, None, None]
    return DigitSet(images, classes if labels is None else labels)


class Reader(nn.Module):
    """Reads coded digits and answers with the class(es) `off` further on: 0 is always right, 1 always wrong.

    One digit is read off the brightest pixel, two (`pairs`) off the sum of all ink. `heard` keeps the shapes shown.
    """

    def __init__(self, off: int = 0, pairs: bool = False, spec: Spec | None = None, high: float = 0.9) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.spec = spec or spec_of("cnn", loss="margin", channels=[1], kernels=[1], head="average")
        self.off, self.pairs, self.high = off, pairs, high
        self.heard: list[tuple[int, ...]] = []

    def forward(self, images: Tensor) -> Output:
        """Scores [B, 10]: `high` for what was read, 0.6 for the second of two, 0.1 for the rest."""
        self.heard.append(tuple(images.shape))
        scores = torch.full((len(images), 10), 0.1)
        pixels = images.flatten(1) * 255
        if self.pairs and images.shape[2:] != (28, 28):
            sums = LEVELS[:, None] + LEVELS  # [10, 10]
            read = pixels.sum(1) / BLOCK**2  # [B]
            pair = (read[:, None, None] - sums).abs().flatten(1).argmin(1)  # [B]
            scores.scatter_(1, (pair % 10 + self.off)[:, None] % 10, 0.6)
            classes = pair // 10
        else:
            classes = (pixels.amax(1)[:, None] - LEVELS).abs().argmin(1)  # [B]
        return Output(scores.scatter_(1, (classes + self.off)[:, None] % 10, self.high))


def spec_of(model: str, **values: Any) -> Spec:
    """A variant's spec."""
    return SPECS[model].model_validate({"model": model, **values})


def trained(task: str, model: nn.Module, digits: Digits, folder: Path, **options: Any) -> Trained:
    """A run as evaluation gets it, of any model that has a spec; its manifest has only what evaluation reads of it."""
    checked = TASKS[task].model_validate({"variants": ["given"], **options})
    training = Training(epochs=1.0, batch=32)
    cell = Cell(task, "given", (0,), model.spec, training, checked, "mnist", 1.0)  # type: ignore[arg-type]
    digests = {"test_set": "affnist-synth"} if task == "affnist" else {}
    write_json(folder / "manifest.json", {"digest": "of the run", "weights": "of its weights", "digests": digests})
    return Trained(cell, 0, model.eval(), digits, folder, None)
