"""The transforms of `real_products`, from pixels to a patch's n real numbers a channel and back.

By kernels (`transform_kernels`) where a GPU runs them and they give what products with the matrices A, B and C give;
else by those products.
"""

from __future__ import annotations

import functools
import math
import warnings
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from capsbench.models.spectral import (
    Tiling,
    cut_image,
    cut_output,
    cut_weight,
    frequencies,
    joined_image,
    joined_output,
    joined_weight,
)

PATCH, WEIGHT, OUTPUT = range(3)  # whose transform it is, as the kernels number them
TOLERANCE = 1e-5  # kernels against float64, of the largest entry: rounding is some 1e-7


class Matrices(NamedTuple):
    """A [n, N*N] of a patch, B [n, taps*taps] of the weights, C [T*T, n] of the outputs."""

    of_x: Tensor
    of_weight: Tensor
    of_y: Tensor


@functools.cache
def matrices(side: int, taps: int, out: int, kind: torch.dtype, device: torch.device) -> Matrices:
    """The three of patches of side x side pixels, kernels of taps x taps and out x out outputs."""
    rows, columns, weights = frequencies(side)
    place = torch.arange(side, dtype=torch.float64)
    angle = (rows[:, None, None] * place[:, None] + columns[:, None, None] * place) * (2 * math.pi / side)  # [F, N, N]
    cos, sin = angle.cos(), angle.sin()
    pairs = weights == 2  # the others' sines are all zero: of their three products the first is left, of real numbers
    own = sin * pairs[:, None, None]  # of exact zeros there

    def of(first: Tensor, second: Tensor, third: Tensor, size: int) -> Tensor:
        parts = [first, second[pairs], third[pairs]]
        return torch.cat([part[:, :size, :size].flatten(1) for part in parts]).to(device, kind)

    scale = (weights / side**2)[:, None, None]
    return Matrices(
        of(cos - own, cos, -sin, side),  # X = a + ib, of e^(-i angle): a + b, a, b
        of(cos, sin - cos, cos + sin, taps),  # the conjugate of W = c + id, of e^(i angle): c, d - c, c + d
        of(scale * (cos - own), -scale * sin, -scale * cos, out).t().contiguous(),
    )


def count(side: int) -> int:
    """n: three for each pair of conjugate frequencies, one for a frequency that is its own conjugate."""
    own = 1 if side % 2 else 4
    return own + 3 * (side**2 - own) // 2


def of_image(x: Tensor, tiles: Tiling) -> Tensor:
    """A x of every patch of x [B, C, H, W]: [M, n, K]."""
    if kernels := _kernels(x, tiles, PATCH, tiles.side, tiles.stride):
        return kernels.to_frequencies(
            x.permute(0, 2, 3, 1), PATCH, tiles.side, tiles.side, tiles.stride, tiles.tiles, tiles.out
        )
    return _product(_matrices(x, tiles).of_x, cut_image(x, tiles))


def to_image(d: Tensor, tiles: Tiling, sizes: torch.Size) -> Tensor:
    """A^T d, d [M, n, K], added up to images of `sizes` [B, C, H, W], channels-last."""
    alone = math.prod(tiles.tiles) == 1
    if kernels := _kernels(d, tiles, PATCH, tiles.side, tiles.stride if alone else 1, back=True):
        if alone:
            images, channels, height, width = sizes
            covered = all(n <= all_of for n, all_of in zip((height, width), tiles.extents, strict=True))
            image = (d.new_empty if covered else d.new_zeros)(images, height, width, channels)
            return kernels.from_frequencies(d, image, PATCH, tiles.side, tiles.side, tiles.stride).permute(0, 3, 1, 2)
        patches = d.new_empty(len(d), tiles.side, tiles.side, d.shape[2])
        pixels = kernels.from_frequencies(d, patches, PATCH, tiles.side, tiles.side).flatten(1, 2)
    else:
        pixels = _product(_matrices(d, tiles).of_x.t(), d)
    return joined_image(pixels, tiles, sizes)


def of_weight(weight: Tensor, tiles: Tiling) -> Tensor:
    """B w of weight [O, C, k, k]: [O, n, K]."""
    if kernels := _kernels(weight, tiles, WEIGHT, tiles.taps, tiles.stride):
        return kernels.to_frequencies(weight.permute(0, 2, 3, 1), WEIGHT, tiles.side, tiles.taps, tiles.stride)
    return _product(_matrices(weight, tiles).of_weight, cut_weight(weight, tiles))


def to_weight(d: Tensor, tiles: Tiling, sizes: torch.Size) -> Tensor:
    """B^T d, d [O, n, K], as weights of `sizes` [O, C, k, k]."""
    if kernels := _kernels(d, tiles, WEIGHT, tiles.taps, tiles.stride, back=True):
        outputs, channels, kernel, _ = sizes
        weight = d.new_empty(outputs, kernel, kernel, channels)
        return kernels.from_frequencies(d, weight, WEIGHT, tiles.side, tiles.taps, tiles.stride).permute(0, 3, 1, 2)
    return joined_weight(_product(_matrices(d, tiles).of_weight.t(), d), tiles, sizes)


def of_gradient(g: Tensor, tiles: Tiling) -> Tensor:
    """C^T g of the outputs' gradient g [B, O, h, w]: [M, n, O]."""
    if kernels := _kernels(g, tiles, OUTPUT, tiles.out, 1):
        return kernels.to_frequencies(
            g.permute(0, 2, 3, 1), OUTPUT, tiles.side, tiles.out, tiles=tiles.tiles, step=tiles.out
        )
    return _product(_matrices(g, tiles).of_y.t(), cut_output(g, tiles))


def to_output(k: Tensor, tiles: Tiling, height: int, width: int) -> Tensor:
    """C k, k [M, n, O], as outputs [B, O, height, width], channels-last."""
    if kernels := _kernels(k, tiles, OUTPUT, tiles.out, 1, back=True):
        y = k.new_empty(len(k) // math.prod(tiles.tiles), height, width, k.shape[2])
        y = kernels.from_frequencies(k, y, OUTPUT, tiles.side, tiles.out, tiles=tiles.tiles, step=tiles.out)
        return y.permute(0, 3, 1, 2)
    return joined_output(_product(_matrices(k, tiles).of_y, k), tiles, height, width)


def _matrices(x: Tensor, tiles: Tiling) -> Matrices:
    return matrices(tiles.side, tiles.taps, tiles.out, x.dtype, x.device)


def _product(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix [m, n] times each of x [rows, n, K]: [rows, m, K]."""
    return torch.bmm(matrix.expand(len(x), -1, -1), x)


def _kernels(x: Tensor, tiles: Tiling, kind: int, size: int, stride: int, back: bool = False) -> ModuleType | None:
    """The kernels, if they do this transform of x where it lies; None too where there is no Triton."""
    try:
        from capsbench.models import transform_launch
    except ImportError:
        return None
    channels = x.shape[2] // stride**2 if back else x.shape[1]
    written = x.numel() if back else len(x) * math.prod(tiles.tiles) * count(tiles.side) * channels * stride**2
    if not transform_launch.fit(x, tiles.side, written):
        return None
    return transform_launch if _proven(kind, back, tiles.side, size, stride, channels, x.device) else None


@functools.cache
def _proven(kind: int, back: bool, side: int, size: int, stride: int, channels: int, device: torch.device) -> bool:
    """Whether a kernel gives on a few random numbers what the matrix gives in float64; it is said where it does not."""
    try:
        difference = _largest_difference(kind, back, side, size, stride, channels, device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler, its tools and the driver raise
        why = f"do not run here ({type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]})"
    else:
        if difference <= TOLERANCE:  # not so, too, where it is no number
            return True
        why = f"differ here from float64 by {difference:.1g} of the largest entry"
    warnings.warn(f"Convolutions' transforms are products of matrices, since their kernels {why}.", stacklevel=2)
    return False


def _largest_difference(
    kind: int, back: bool, side: int, size: int, stride: int, channels: int, device: torch.device
) -> float:
    """Relative to the largest entry."""
    from capsbench.models import transform_launch

    draw = torch.Generator().manual_seed(0)
    all_three = matrices(side, size, size, torch.float64, device)
    matrix = (all_three.of_x, all_three.of_weight, all_three.of_y.t())[kind]  # [n, size*size]
    if back:
        k = torch.randn(2, count(side), channels * stride**2, generator=draw).to(device)
        image = k.new_full((2, size * stride, size * stride, channels), float("nan"))
        found = _phases(transform_launch.from_frequencies(k, image, kind, side, size, stride), size, stride)
        expected = _product(matrix.t(), k.double())
    else:
        x = torch.randn(2, size * stride, size * stride, channels, generator=draw).to(device)
        found = transform_launch.to_frequencies(x, kind, side, size, stride)
        expected = _product(matrix, _phases(x, size, stride).double())
    return float((found - expected).abs().max() / expected.abs().max())


def _phases(x: Tensor, size: int, stride: int) -> Tensor:
    """Images [B, size*s, size*s, C] as [B, size*size, s*s*C]."""
    return x.view(len(x), size, stride, size, stride, -1).permute(0, 1, 3, 2, 4, 5).reshape(len(x), size**2, -1)
