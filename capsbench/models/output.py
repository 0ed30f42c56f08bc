"""What every model returns, and what every model can be asked."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """A model's answer to a batch of images."""

    scores: Tensor  # [B, K] float32: capsule lengths, or logits for a loss with its own link function
    poses: Tensor | None = None  # [B, K, D] float32: output capsules, if the model has them
    couplings: Tensor | None = None  # [B, I, K]: of the last routing pass
    trace: list | None = None  # one entry a routing pass, on request
