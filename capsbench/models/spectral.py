"""Convolutions of many channels on a CPU by way of the frequencies: a fourth of the multiplications, in full float32.

A kernel of k x k costs k^2 products for each output and pair of channels. Over patches of N x N pixels that hold T x T
outputs (T = N - k + 1) the same sums are one complex product a frequency, N^2 / 2 of them: 2 N^2 / T^2 real products an
output. PrimaryCaps (9x9, stride 2) comes down from 81 to 22 that way, the Table 1 CNN's layers (5x5) from 25 to 5.

A stride of s is s x s convolutions of every s-th pixel with every s-th tap, added up: they stand beside the channels,
K = s*s*C of them. What is left is a product of matrices for each frequency, with X [M, K] of M patches, W [O, K] of O
outputs, Y and its gradient G [M, O]:

    Y = X conj(W)^T          dX = G W          dW = conj(G)^T X

The transforms are products with small fixed matrices too.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

OUTPUTS = range(1, 16)  # of a patch, a side: beyond, its transform costs more than it saves
PATCHES = 512  # whose frequencies are made at a time, about


class Tiling(NamedTuple):
    """How an image is cut: `tiles` x `tiles` patches (a side each) of `side` x `side` pixels for `out` x `out` outputs.

    `taps`: side of a phase's kernel; the patches of one image overlap by taps - 1. Pixels are those of one phase.
    """

    stride: int
    taps: int
    side: int
    out: int
    tiles: tuple[int, int]

    @property
    def extents(self) -> tuple[int, int]:
        """Height and width, in pixels of the whole image, that the patches cover."""
        tall, wide = (self.stride * (n * self.out + self.taps - 1) for n in self.tiles)
        return tall, wide


@functools.cache
def tiling(height: int, width: int, kernel: int, stride: int) -> Tiling:
    """The patches with the fewest multiplications for outputs of `height` x `width`, transforms counted."""
    taps = math.ceil(kernel / stride)

    def cost(out: int) -> float:
        side = out + taps - 1
        patches = math.ceil(height / out) * math.ceil(width / out)
        return patches * (2 * side**2 + side**4 / 64)  # the second: transforms, for channels by the hundred

    out = min(OUTPUTS, key=cost)
    side = out + taps - 1
    return Tiling(stride, taps, side, out, (math.ceil(height / out), math.ceil(width / out)))


@functools.cache
def to_frequencies(side: int, given: int) -> Tensor:
    """[2F, given^2] float32: real and imaginary part of every frequency of given x given pixels, zeros beside them.

    Of two frequencies that are each other's conjugate one is enough: F = ceil(side^2 / 2) and, if `side` is even, one
    more or two.
    """
    rows, columns, _ = frequencies(side)
    place = torch.arange(given, dtype=torch.float64)
    angle = (rows[:, None, None] * place[:, None] + columns[:, None, None] * place) * (2 * math.pi / side)
    return torch.stack([angle.cos(), -angle.sin()], 1).flatten(2).flatten(0, 1).float()


@functools.cache
def from_frequencies(side: int, wanted: int) -> Tensor:
    """[wanted^2, 2F] float32: the first wanted x wanted pixels again."""
    rows, columns, weight = frequencies(side)
    place = torch.arange(wanted, dtype=torch.float64)
    angle = (rows * place[:, None, None] + columns * place[:, None]) * (2 * math.pi / side)  # [wanted, wanted, F]
    both = torch.stack([angle.cos(), -angle.sin()], -1) * (weight / side**2)[:, None]
    return both.flatten(2).flatten(0, 1).float()


def frequencies(side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and weight of one frequency of each conjugate pair: 2, or 1 where it is its own conjugate."""
    kept = []
    for row in range(side):
        for column in range(side):
            other = (-row % side, -column % side)
            if (row, column) <= other:
                kept.append((row, column, 1 if (row, column) == other else 2))
    rows, columns, weights = torch.tensor(kept, dtype=torch.float64).t()
    return rows, columns, weights


def by_frequencies(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A convolution without padding: x [B, C, H, W], weight [O, C, k, k], both float32, to [B, O, h, w] channels-last.

    Equal to torch's up to rounding, in value and gradient; a gradient of the gradient there is not.
    """
    convolved: Tensor = _ByFrequencies.apply(x, weight, stride)
    return convolved


class Complex(NamedTuple):
    """A matrix of complex numbers for each frequency, [F, m, n]."""

    real: Tensor
    imaginary: Tensor

    @property
    def turned(self) -> Complex:
        """Each matrix transposed."""
        return Complex(self.real.transpose(1, 2), self.imaginary.transpose(1, 2))


class _ByFrequencies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        kernel = weight.shape[-1]
        h, w = ((n - kernel) // stride + 1 for n in x.shape[2:])
        tiles = tiling(h, w, kernel, stride)
        images = max(1, PATCHES // math.prod(tiles.tiles))
        of_weight = _transform(cut_weight(weight, tiles), to_frequencies(tiles.side, tiles.taps))  # [O, 2F, K]
        keep, of_x, parts = any(ctx.needs_input_grad), [], []
        for some in x.split(images):
            of_some = _transform(cut_image(some, tiles), to_frequencies(tiles.side, tiles.side))  # [M, 2F, K]
            of_y = _product(_complex(of_some), _complex(of_weight).turned, conjugate="right")  # [F, M, O]
            y = _transform(_real(of_y), from_frequencies(tiles.side, tiles.out))  # [M, T*T, O]
            parts.append(joined_output(y, tiles, h, w))
            of_x += [of_some] if keep else []
        if keep:
            ctx.save_for_backward(of_weight, *of_x)
            ctx.tiles, ctx.images, ctx.x, ctx.weight = tiles, images, x.shape, weight.shape
        return _one(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, None]:
        of_weight, *of_x = ctx.saved_tensors
        tiles: Tiling = ctx.tiles
        sums: list[Complex] = []
        parts = []
        for some, of_some in zip(g.split(ctx.images), of_x, strict=True):
            of_g = _complex(_transform(cut_output(some, tiles), to_frequencies(tiles.side, tiles.out)))  # [F, M, O]
            new = _product(of_g.turned, _complex(of_some), conjugate="left")  # [F, O, K]
            sums = [Complex(sums[0].real + new.real, sums[0].imaginary + new.imaginary) if sums else new]
            if ctx.needs_input_grad[0]:
                of_image = _real(_product(of_g, _complex(of_weight)))  # [M, 2F, K]
                pixels = _transform(of_image, from_frequencies(tiles.side, tiles.side))  # [M, N*N, K]
                parts.append(joined_image(pixels, tiles, ctx.x))
        taps = _transform(_real(sums[0]), from_frequencies(tiles.side, tiles.taps))  # [O, taps*taps, K]
        return _one(parts) if parts else None, joined_weight(taps, tiles, ctx.weight), None


def _transform(x: Tensor, matrix: Tensor) -> Tensor:
    """matrix [m, n] times each of x [rows, n, K]: [rows, m, K]."""
    return torch.bmm(matrix.expand(len(x), -1, -1), x)


def _complex(x: Tensor) -> Complex:
    """x [rows, 2F, K] as matrices [F, rows, K], nothing copied."""
    real, imaginary = x.unflatten(1, (-1, 2)).transpose(0, 1).unbind(2)
    return Complex(real, imaginary)


def _real(z: Complex) -> Tensor:
    """Matrices [F, rows, K] as [rows, 2F, K]."""
    count, rows, channels = z.real.shape
    x = z.real.new_empty(rows, count, 2, channels)
    x[:, :, 0], x[:, :, 1] = z.real.transpose(0, 1), z.imaginary.transpose(0, 1)
    return x.flatten(1, 2)


def _product(a: Complex, b: Complex, conjugate: str = "") -> Complex:
    """a b for each frequency; the conjugate of `left` or `right` factor in its place."""
    of_a, of_b = -1 if conjugate == "left" else 1, -1 if conjugate == "right" else 1
    real = torch.bmm(a.real, b.real)
    torch.baddbmm(real, a.imaginary, b.imaginary, alpha=-of_a * of_b, out=real)
    imaginary = torch.bmm(a.real, b.imaginary)
    torch.baddbmm(imaginary, a.imaginary, b.real, beta=of_b, alpha=of_a, out=imaginary)
    return Complex(real, imaginary)


def _one(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _resized(x: Tensor, height: int, width: int) -> Tensor:
    """x [B, C, H, W] with zeros below and to the right, or less of it."""
    more = (0, width - x.shape[3], 0, height - x.shape[2])
    return F.pad(x, more) if any(more) else x  # without more it would be copied


def cut_image(x: Tensor, tiles: Tiling) -> Tensor:
    """x [B, C, H, W] to patches [M, N*N, K]: M = B * t * t', and K = s*s*C channels of one phase's pixels."""
    s, side = tiles.stride, tiles.side
    x = _resized(x, *tiles.extents).permute(0, 2, 3, 1)  # [B, H, W, C]
    x = x.unflatten(1, (-1, s)).unflatten(3, (-1, s))  # [B, H/s, s, W/s, s, C]
    x = x.unfold(1, side, tiles.out).unfold(3, side, tiles.out)  # [B, t, s, t', s, C, N, N]
    return x.permute(0, 1, 3, 6, 7, 2, 4, 5).reshape(x.shape[0] * math.prod(tiles.tiles), side**2, -1)


def joined_image(x: Tensor, tiles: Tiling, sizes: torch.Size) -> Tensor:
    """Patches [M, N*N, K] to [B, C, H, W], channels-last, added up where they overlap."""
    (down, across), s, side, out = tiles.tiles, tiles.stride, tiles.side, tiles.out
    x = x.view(-1, down, across, side, side, s, s, x.shape[2] // s**2).permute(0, 1, 3, 5, 2, 4, 6, 7)
    if down == across == 1:  # [B, t, N, s, t', N, s, C]
        whole = x[:, 0, :, :, 0]
    else:
        tall, wide = tiles.extents
        whole = x.new_zeros(len(x), tall // s, s, wide // s, s, x.shape[-1])
        for i in range(down):
            for j in range(across):
                whole[:, i * out : i * out + side, :, j * out : j * out + side] += x[:, i, :, :, j]
    image = whole.flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)  # [B, C, H, W]
    return _resized(image, sizes[2], sizes[3])


def cut_weight(weight: Tensor, tiles: Tiling) -> Tensor:
    """weight [O, C, k, k] to [O, taps*taps, K]."""
    s, taps = tiles.stride, tiles.taps
    w = _resized(weight, s * taps, s * taps).permute(0, 2, 3, 1)  # [O, s*taps, s*taps, C]
    w = w.unflatten(1, (taps, s)).unflatten(3, (taps, s)).permute(0, 1, 3, 2, 4, 5)  # [O, taps, taps, s, s, C]
    return w.reshape(len(weight), taps**2, -1)


def joined_weight(w: Tensor, tiles: Tiling, sizes: torch.Size) -> Tensor:
    """[O, taps*taps, K] to [O, C, k, k]."""
    s, taps = tiles.stride, tiles.taps
    w = w.view(sizes[0], taps, taps, s, s, sizes[1]).permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(1, 2)
    return w[:, : sizes[2], : sizes[3]].permute(0, 3, 1, 2)


def cut_output(g: Tensor, tiles: Tiling) -> Tensor:
    """g [B, O, h, w] to [M, T*T, O]."""
    out, (down, across) = tiles.out, tiles.tiles
    g = _resized(g, down * out, across * out).permute(0, 2, 3, 1)
    g = g.unflatten(1, (down, out)).unflatten(3, (across, out)).transpose(2, 3)  # [B, t, t', T, T, O]
    return g.reshape(-1, out**2, g.shape[-1])


def joined_output(y: Tensor, tiles: Tiling, h: int, w: int) -> Tensor:
    """[M, T*T, O] to [B, O, h, w], channels-last."""
    out, (down, across) = tiles.out, tiles.tiles
    y = y.view(-1, down, across, out, out, y.shape[-1]).transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return y[:, :h, :w].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
