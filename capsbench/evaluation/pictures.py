"""Pictures as arrays: what the report draws without a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capsbench.plan.variants import Spec

SHOWN = 10  # right and wrong pictures each
HARDEST = 100  # a few more than a good run gets wrong, so that runs have some in common


def has_decoder(spec: Spec) -> bool:
    """Whether the variant's model draws what it sees."""
    return getattr(spec, "reconstruction", "none") != "none"


def pixels(drawn: Tensor) -> NDArray[np.uint8]:
    """[..., H, W] in [0, 1] as uint8."""
    return (drawn.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()


def reconstructions(
    model: nn.Module, images: Tensor, labels: Tensor, poses: Tensor, predicted: Tensor
) -> dict[str, NDArray[Any]]:
    """Inputs and what the decoder draws from the predicted class's capsule: right ones first, then the wrong ones.

    images: [N, H, W] uint8 on the model's device; labels, predicted: [N] int64 and poses [N, K, D], on the CPU.
    """
    right = (predicted == labels).nonzero().flatten()[:SHOWN]
    wrong = (predicted != labels).nonzero().flatten()[:SHOWN]
    chosen = torch.cat([right, wrong])  # [n]
    device = images.device
    drawn = model.reconstruct(poses[chosen].to(device), predicted[chosen].to(device))  # type: ignore[operator]
    return {
        "images": images[chosen.to(device)].cpu().numpy(),
        "reconstructions": pixels(drawn),
        "labels": labels[chosen].numpy().astype(np.uint8),
        "predicted": predicted[chosen].numpy().astype(np.uint8),
    }


def hardest(images: Tensor, margin: Tensor) -> dict[str, NDArray[Any]]:
    """The HARDEST images whose true class is furthest behind (or least ahead of) the best other one, hardest first.

    images: [N, H, W] uint8; margin: [N] float32, on the CPU. Returns `indices` [n] uint16 in the test set and `images`
    [n, H, W] uint8: the report has no data set to take them from.
    """
    chosen = margin.argsort(stable=True)[:HARDEST]  # [n]
    return {
        "indices": chosen.numpy().astype(np.uint16),
        "images": images[chosen.to(images.device)].cpu().numpy(),
    }
