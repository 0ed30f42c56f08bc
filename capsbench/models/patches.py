"""Convolutions on a CPU as matrix products over unfolded patches, where those are faster than the library's own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMAGES = 8  # unfolded at a time for a weight gradient: their patches stay near the cache
WIDE = 128  # from so many channels on the product wins (1.5 times in bf16 without AMX, more with it)


class PatchConv2d(nn.Conv2d):
    """nn.Conv2d, with its parameters and its result up to rounding; on a CPU it is computed in another way.

    * One input channel: a product of patches [B*H*W, k*k] with the weights. The library's kernels, made for many
      channels, reach a third to a sixth of its rate.
    * At least `WIDE` channels in and out: only the gradient of the weights is such a product.

    Any other case, and every other device, is nn.Conv2d. Raises ValueError for dilation or groups, which no model here
    has.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        if self.dilation != (1, 1) or self.groups != 1:
            raise ValueError("PatchConv2d is for convolutions without dilation and groups")

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H', W']."""
        if x.device.type != "cpu":
            return super().forward(x)
        if self.in_channels == 1:
            return self._of_patches(x)
        if min(self.in_channels, self.out_channels) >= WIDE and self.padding in ((0, 0), "valid"):
            kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
            bias = None if self.bias is None else self.bias.to(kind)
            convolved: Tensor = _WeightGradientOfPatches.apply(x.to(kind), self.weight.to(kind), bias, self.stride)
            return convolved
        return super().forward(x)

    def _of_patches(self, x: Tensor) -> Tensor:
        (tall, wide), (down, right) = self.kernel_size, self.stride
        x = F.pad(x[:, 0], self._reversed_padding_repeated_twice)  # [B, H, W]; `same` and `valid` too
        patches = x.unfold(1, tall, down).unfold(2, wide, right).flatten(3)  # [B, H', W', k*k]
        return F.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)  # channels-last


class _WeightGradientOfPatches(torch.autograd.Function):
    """A convolution whose weight gradient is gradients^T @ patches, a few images at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int]) -> Tensor:
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


def _weight_gradient(x: Tensor, g: Tensor, weight: Tensor, stride: tuple[int, int]) -> Tensor:
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
