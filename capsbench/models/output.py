"""What every model returns, and what every model can be asked."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from capsbench.plan.variants import Spec
from capsbench.routing.types import Pass


class Output(NamedTuple):
    """A model's answer to a batch of images."""

    scores: Tensor  # [B, K] float32: capsule lengths, or logits for a loss with its own link function
    poses: Tensor | None = None  # [B, K, D] float32: output capsules, if the model has them
    couplings: Tensor | None = None  # [B, I, K]: of the last routing pass
    trace: tuple[Pass, ...] | None = None  # one entry a routing pass, on request


def linked(spec: Spec, logits: Tensor) -> Tensor:
    """A CNN's scores for its loss: ten independent sigmoids where the loss wants lengths in [0, 1), else the logits."""
    return torch.sigmoid(logits) if spec.loss in ("margin", "spread") else logits
