"""Convolutions on a CPU as matrix products over unfolded patches."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

IMAGES = 8  # unfolded at a time for a weight gradient: their patches stay near the cache


def of_patches(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]) -> Tensor:
    """A convolution of one channel, padded: x [B, H, W], weight [C', 1, k, k] to [B, C', H', W'], channels-last."""
    tall, wide = weight.shape[2:]
    patches = x.unfold(1, tall, stride[0]).unfold(2, wide, stride[1]).flatten(3)  # [B, H', W', k*k]
    return F.linear(patches, weight.flatten(1), bias).permute(0, 3, 1, 2)


def with_weight_gradient_of_patches(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]) -> Tensor:
    """The library's convolution, no padding: x [B, C, H, W], weight [C', C, k, k]; its weight gradient is ours."""
    convolved: Tensor = _WeightGradientOfPatches.apply(x, weight, bias, stride)
    return convolved


class _WeightGradientOfPatches(torch.autograd.Function):
    """A convolution whose weight gradient is gradients^T @ patches, a few images at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.has_bias = stride, bias is not None
        return F.conv2d(x, weight, bias, stride)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        (g,) = gradients  # [B, C', H', W']
        of_x = None
        if ctx.needs_input_grad[0]:
            mask, still = [True, False, False], [0, 0]
            of_x = torch.ops.aten.convolution_backward(
                g, x, weight, None, ctx.stride, still, [1, 1], False, still, 1, mask
            )[0]
        of_weight = _weight_gradient(x, g, weight, ctx.stride)
        of_bias = g.sum((0, 2, 3)) if ctx.has_bias else None
        return of_x, of_weight, of_bias, None


def _weight_gradient(x: Tensor, g: Tensor, weight: Tensor, stride: tuple[int, ...]) -> Tensor:
    """Gradient of the weights [C', C, k, k]; the sum over the batch is kept in float32 or better."""
    outputs, channels, tall, wide = weight.shape
    total = weight.new_zeros(
        outputs, tall * wide * channels, dtype=torch.promote_types(weight.dtype, torch.float32)
    )  # [C', k*k*C]
    for some_x, some_g in zip(x.split(IMAGES), g.split(IMAGES), strict=True):
        places = (
            some_x.permute(0, 2, 3, 1).unfold(1, tall, stride[0]).unfold(2, wide, stride[1])
        )  # [b, H', W', C, k, k]
        patches = places.permute(0, 1, 2, 4, 5, 3).reshape(-1, tall * wide * channels)  # rows of k*C lie together
        total += some_g.permute(0, 2, 3, 1).reshape(-1, outputs).t() @ patches
    return total.view(outputs, tall, wide, channels).permute(0, 3, 1, 2).to(weight.dtype)
