"""Convolutions of many channels on a GPU by way of the frequencies, in full float32: what `spectral` does on a CPU,
with matrices of real numbers alone.

A complex product (a + ib)(c + id) is three real ones, k1 = c(a + b), k2 = a(d - c) and k3 = b(c + d), for its parts are
k1 - k3 and k1 + k2. The sums on both sides are linear, so they go into the transforms. What is left for each patch x
[N*N, K] and the weights w [taps*taps, K] of an output are three matrices A, B and C of real numbers, and n products,
about 3/2 N^2, where N^2 of a patch's pixels are its frequencies' real and imaginary parts:

    y = C ((A x) * (B w))        dx = A^T ((C^T g) * (B w))        dw = B^T ((C^T g) * (A x))

where * sums over the channels, the patches or the outputs: a product of matrices for each of the n. With the
transforms, PrimaryCaps computes a third of what a convolution does, the Table 1 CNN's second layer a fourth.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsbench.models import transforms
from capsbench.models.spectral import OUTPUTS, Tiling

PATCHES = 8192  # whose frequencies are held at a time, about


@functools.cache
def tiling(height: int, width: int, kernel: int, stride: int, channels: int, outputs: int) -> Tiling:
    """The patches with the fewest multiplications, forward and backward, for outputs of `height` x `width`."""
    taps = math.ceil(kernel / stride)
    deep = channels * stride**2

    def cost(out: int) -> int:
        side = out + taps - 1
        patches = math.ceil(height / out) * math.ceil(width / out)
        products = 3 * deep * outputs + 2 * side**2 * deep + 2 * out**2 * outputs
        return patches * transforms.count(side) * products

    out = min(OUTPUTS, key=cost)
    return Tiling(stride, taps, out + taps - 1, out, (math.ceil(height / out), math.ceil(width / out)))


def by_real_products(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """A convolution without padding: x [B, C, H, W], weight [O, C, k, k], bias [O] to [B, O, h, w] channels-last.

    All of one type. Equal to torch's up to rounding, in value and gradient; a gradient of the gradient there is not. It
    returns a view, which no operation may change in place.
    """
    convolved: Tensor = _ByRealProducts.apply(x, weight, bias, stride)
    return convolved


class _ByRealProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        outputs, channels, kernel, _ = weight.shape
        h, w = ((n - kernel) // stride + 1 for n in x.shape[2:])
        tiles = tiling(h, w, kernel, stride, channels, outputs)
        images = max(1, PATCHES // math.prod(tiles.tiles))
        of_weight = transforms.of_weight(weight, tiles)  # [O, n, K]
        keep, of_x, parts = any(ctx.needs_input_grad), [], []
        for some in x.split(images):
            of_some = transforms.of_image(some, tiles)  # [M, n, K]
            of_y = _products(of_some, of_weight, "mnk,onk->mno")
            if bias is not None:
                of_y[:, 0] += tiles.side**2 * bias  # the frequency zero, of which every output has 1 / N^2
            parts.append(transforms.to_output(of_y, tiles, h, w))
            of_x += [of_some] if keep else []
        if keep:
            ctx.save_for_backward(of_weight, *of_x)
            ctx.tiles, ctx.images, ctx.x, ctx.weight = tiles, images, x.shape, weight.shape
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        of_weight, *of_x = ctx.saved_tensors
        tiles: Tiling = ctx.tiles
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        images, sums, sums_of_bias = [], None, None
        for some, of_some in zip(g.split(ctx.images), of_x, strict=True):
            of_g = transforms.of_gradient(some, tiles)  # [M, n, O]
            if for_x:
                of_image = _products(of_g, of_weight, "mno,onk->mnk")
                images.append(transforms.to_image(of_image, tiles, torch.Size([len(some), *ctx.x[1:]])))
            if for_weight:
                new = _products(of_g, of_some, "mno,mnk->onk")
                sums = new if sums is None else sums + new
            if for_bias:
                biases = tiles.side**2 * of_g[:, 0].sum(0)
                sums_of_bias = biases if sums_of_bias is None else sums_of_bias + biases
        of_taps = None if sums is None else transforms.to_weight(sums, tiles, ctx.weight)
        image = None if not for_x else images[0] if len(images) == 1 else torch.cat(images)
        return image, of_taps, sums_of_bias, None


def _products(a: Tensor, b: Tensor, sizes: str) -> Tensor:
    """A product of matrices for each n, the second of the dimensions on both sides and in the result."""
    left, right = a.transpose(0, 1), b.transpose(0, 1)  # [n, ., .]
    if sizes == "mnk,onk->mno":
        right = right.transpose(1, 2)
    elif sizes == "mno,mnk->onk":
        left = left.transpose(1, 2)
    product = a.new_empty(left.shape[1], len(left), right.shape[2])
    torch.bmm(left, right, out=product.transpose(0, 1))  # where it belongs, without a copy
    return product
