"""What is computed, counted by torch's own counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def flops(call: Callable[[], Any]) -> int:
    """FLOPs of one call: matrix products and convolutions, two a multiply-add; nothing that is elementwise."""
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def forward_flops(model: nn.Module, size: tuple[int, int]) -> int:
    """Floating-point operations of one forward pass of one image of `size` (height, width in pixels).

    As `flops` counts them: squash, softmax and ReLU are left out. The model's mode is kept.
    """
    mode, weight = model.training, next(model.parameters())
    model.eval()
    image = torch.zeros(1, 1, *size, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        counted = flops(lambda: model(image))
    model.train(mode)
    return counted
