"""Convolutions as matrix products over unfolded patches.

In bf16 the products run on a CPU's matrix units (AMX) where it has them; the library's convolutions, their gradients
above all, hardly do. With patches P [B*H'*W', k*k*C], weights W [C', k*k*C] and the gradient G
[B*H'*W', C'] of the outputs:

    Y = P W^T          dW = G^T P          dx = fold(G W)

`fold` adds what belongs to the same pixel: along the height inside the product, along the width by a product with a
matrix of zeros and ones. Products and pixels are each rounded to bf16, where the library rounds the pixel alone, so
that dx errs up to half as much again (`tests/models/test_convolution.py`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

IMAGES = 16  # unfolded at a time: their patches stay near the cache
MULTIPLE = 8  # numbers; of bf16 16 bytes


def of_patches(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]) -> Tensor:
    """A convolution of one channel, padded: x [B, H, W], weight [C', 1, k, k] to [B, C', H', W'], channels-last."""
    tall, wide = weight.shape[2:]
    patches = x.unfold(1, tall, stride[0]).unfold(2, wide, stride[1]).flatten(3)  # [B, H', W', k*k]
    return F.linear(patches, weight.flatten(1), bias).permute(0, 3, 1, 2)


def of_patches_with_bias(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]) -> Tensor:
    """`of_patches` of an x without gradient: the bias is one more weight, of an input that is always 1.

    For a GPU, and for a CPU in bf16. The bias' gradient comes out of the product that makes the weights', where a sum
    of its own would read every output's once more. Zeros make the row a multiple of 16 bytes, as fast products want it.
    """
    tall, wide = weight.shape[2:]
    kind = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else weight.dtype
    places = x.unfold(1, tall, stride[0]).unfold(2, wide, stride[1])  # [B, H', W', k, k]
    taps = tall * wide
    patches = x.new_zeros(*places.shape[:3], -(-(taps + 1) // MULTIPLE) * MULTIPLE, dtype=kind)
    patches[..., :taps].unflatten(-1, (tall, wide)).copy_(places)
    patches[..., taps] = 1
    ones = weight.new_zeros(len(weight), 1) if bias is None else bias[:, None]
    rows = torch.cat([weight.flatten(1), ones, weight.new_zeros(len(weight), patches.shape[-1] - taps - 1)], 1)
    return F.linear(patches, rows).permute(0, 3, 1, 2)


def by_products(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, kind: torch.dtype = torch.bfloat16
) -> Tensor:
    """A convolution without padding as products of numbers of that `kind`, its gradients too.

    x [B, C, H, W], weight [C', C, k, k], bias [C'], of any float types, to [B, C', H', W'] of `kind`, channels-last.
    Sums inside a product of bf16 are float32; a gradient has the type of what it is of.
    """
    convolved: Tensor = _ByProducts.apply(x, weight, bias, stride, kind)
    return convolved


class _ByProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, kind: torch.dtype) -> Tensor:
        outputs, _, side, _ = weight.shape
        tall, wide = ((n - side) // stride + 1 for n in x.shape[2:])
        ctx.types = x.dtype, weight.dtype, None if bias is None else bias.dtype
        x = x.to(kind)
        rows = weight.to(kind).permute(0, 2, 3, 1).flatten(1)  # W [C', k*k*C]
        start = x.new_zeros(outputs) if bias is None else bias.to(kind)
        y = x.new_empty(len(x), tall, wide, outputs)
        places = x.permute(0, 2, 3, 1).unfold(1, side, stride).unfold(2, side, stride)  # [B, H', W', C, k, k]
        places = places.permute(0, 1, 2, 4, 5, 3)  # [B, H', W', k, k, C]: channels-last, k*C of a row lie together
        patches = x.new_empty(min(len(x), IMAGES), *places.shape[1:])
        for some, out in zip(places.split(IMAGES), y.split(IMAGES), strict=True):
            unfolded = patches[: len(some)].copy_(some).flatten(0, 2).flatten(1)
            torch.addmm(start, unfolded, rows.t(), out=out.flatten(0, 2))
        ctx.save_for_backward(x, rows)
        ctx.side, ctx.stride = side, stride
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None, None]:
        x, rows = ctx.saved_tensors
        type_of_x, type_of_weight, type_of_bias = ctx.types
        g = g.permute(0, 2, 3, 1).contiguous()  # [B, H', W', C']
        of_x = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _gradient_of_images(g, rows, x.shape[1:], ctx.side, ctx.stride).to(type_of_x)
        if type_of_bias is not None:
            of_bias = g.sum((0, 1, 2), dtype=type_of_bias)
        return of_x, _gradient_of_weight(g, x, ctx.side, ctx.stride, type_of_weight), of_bias, None, None


def _gradient_of_weight(g: Tensor, x: Tensor, side: int, stride: int, kind: torch.dtype) -> Tensor:
    """dW [C', C, k, k] of g [B, H', W', C'] and x [B, C, H, W]: a product for each row of the kernels."""
    _, tall, _, outputs = g.shape
    channels = x.shape[1]
    turned = g.flatten(0, 2).t().contiguous()  # [C', B*H'*W']
    of_rows = torch.empty(outputs, side, side * channels, dtype=kind)
    patches = g.new_empty(*g.shape[:3], side, channels)  # one for all rows: it stays in the cache
    for row in range(side):
        lines = x[:, :, row : row + stride * (tall - 1) + 1 : stride].permute(0, 2, 3, 1)  # [B, H', W, C]
        patches.copy_(lines.unfold(2, side, stride).transpose(3, 4))  # [B, H', W', k, C]
        of_rows[:, row] = turned @ patches.view(-1, side * channels)
    return of_rows.unflatten(2, (side, channels)).permute(0, 3, 1, 2)


def _gradient_of_images(g: Tensor, rows: Tensor, image: torch.Size, side: int, stride: int) -> Tensor:
    """dx [B, C, H, W], channels-last, of g [B, H', W', C'] and W [C', k*k*C]: a line of all images at a time.

    Line y lies under row y - stride * h' of the kernels at each h' where there is one, stride rows apart. With these
    rows below each other, last row first, the product sums over h' as it does over C'.
    """
    batch, tall, wide, outputs = g.shape
    channels, height, width = image
    by_row = rows.unflatten(1, (side, side * channels)).transpose(0, 1)  # [k, C', k*C]
    upward = [by_row[first::stride].flip(0).flatten(0, 1).contiguous() for first in range(stride)]  # [k/stride*C', k*C]
    columns = g.transpose(1, 2).contiguous()  # [B, W', H', C']
    across = _fold(wide, side, stride, width, g.dtype).expand(batch, -1, -1)  # [B, W, W'*k]
    dx = g.new_empty(batch, height, width, channels)
    reached = min(height, stride * (tall - 1) + side)
    dx[:, reached:] = 0
    for y in range(reached):
        top, first = divmod(y, stride)  # h' at which the line lies under row `first`, the least
        count = len(range(first, side, stride))
        low, high = max(0, top - count + 1), min(tall, top + 1)  # the h' that there are
        some = upward[first][(low - top + count - 1) * outputs : (high - top + count - 1) * outputs]
        line = columns[:, :, low:high].flatten(2).flatten(0, 1) @ some  # [B*W', k*C]
        torch.bmm(across, line.view(batch, wide * side, channels), out=dx[:, y])
    return dx.permute(0, 3, 1, 2)


@functools.cache
def _fold(places: int, side: int, stride: int, size: int, kind: torch.dtype) -> Tensor:
    """[size, places * side]: 1 where tap t of the kernel at place p falls on a pixel, p * stride + t; else 0."""
    matrix = torch.zeros(size, places, side, dtype=kind)
    for place in range(places):
        for tap in range(side):
            matrix[place * stride + tap, place, tap] = 1
    return matrix.flatten(1)
