"""Scores of many images, in large batches, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from capsbench.plan.variants import Spec
from capsbench.training.losses import probabilities
from capsbench.training.scoring import batches


class Predictions(NamedTuple):
    """A model's answers to N images, on the CPU."""

    scores: Tensor  # [N, K] in [0, 1]: lengths, or probabilities (float64 where they are of a sigmoid, else float32)
    poses: Tensor | None  # [N, K, D] float32, if the model has capsules


@torch.inference_mode()
def predict(model: nn.Module, spec: Spec, images: Callable[[int, int], Tensor], count: int) -> Predictions:
    """Ask `model` about images made (or read) a batch at a time: `images(start, stop)` gives [n, 1, H, W] float32."""
    scores, poses = [], []
    for start, stop in batches(model, count):
        output = model(images(start, stop))
        scores.append(probabilities(spec, output.scores.float()).cpu())
        if output.poses is not None:
            poses.append(output.poses.float().cpu())
    return Predictions(torch.cat(scores), torch.cat(poses) if poses else None)


def margins(scores: Tensor, labels: Tensor) -> Tensor:
    """The true class's score less the best other one's: [N], from scores [N, K] and labels [N] int64."""
    true = scores.gather(1, labels[:, None])[:, 0]  # [N]
    return true - scores.scatter(1, labels[:, None], -torch.inf).amax(1)  # [N]
