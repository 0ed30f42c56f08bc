"""What every model returns, and what every model can be asked."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from capsbench.plan.variants import Spec
from capsbench.routing.squash import at_least_float32, length, squash
from capsbench.routing.types import Pass


class Output(NamedTuple):
    """A model's answer to a batch of images."""

    scores: Tensor  # [B, K] float32: capsule lengths, or logits for a loss with its own link function
    poses: Tensor | None = None  # [B, K, D] float32: output capsules, if the model has them
    couplings: Tensor | None = None  # [B, I, K]: of the last routing pass
    trace: tuple[Pass, ...] | None = None  # one entry a routing pass, on request


def one_hot(classes: Tensor, count: int) -> Tensor:
    """Whether a class is the one: classes [...] int64 in [0, count) to [..., count] bool.

    F.one_hot looks at the values first, which on a CPU waits for them; a class out of range is no error here.
    """
    return classes.unsqueeze(-1) == torch.arange(count, device=classes.device)


def linked(spec: Spec, logits: Tensor) -> Tensor:
    """A CNN's scores for its loss: ten independent sigmoids where the loss wants lengths in [0, 1), else the logits."""
    return torch.sigmoid(logits) if spec.loss in ("margin", "spread") else logits


def lengths_of(vectors: Tensor, dim: int) -> Output:
    """Scores that are the lengths of squashed vectors (equation 1), as DigitCaps' are; vectors [B, K * dim], any dtype.

    At least in float32, under autocast too, as every squash is.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        poses = squash(at_least_float32(vectors).unflatten(1, (-1, dim)))  # [B, K, D]
        return Output(length(poses), poses)
