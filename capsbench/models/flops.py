"""What a model's answer to one image costs, counted by torch's own counter."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def forward_flops(model: nn.Module, size: tuple[int, int]) -> int:
    """Floating-point operations of one forward pass of one image of `size` (height, width in pixels).

    torch.utils.flop_counter counts matrix products and convolutions, two operations a multiply-add; what is elementwise
    (squash, softmax, ReLU) it leaves out. The model's mode is kept.
    """
    mode, weight = model.training, next(model.parameters())
    model.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 1, *size, device=weight.device, dtype=weight.dtype))
    model.train(mode)
    return int(counter.get_total_flops())
