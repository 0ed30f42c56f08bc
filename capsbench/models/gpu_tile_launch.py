"""The kernels of `gpu_tiles`, started: which arguments they take, and how their work is divided.

Sizes of tiles are within 2 % of the fastest on an H200 at PrimaryCaps' size, of the eight that were tried.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from capsbench.models.gpu_tile_kernels import _added, _forward, _of_images, _of_weight, _sums_of_rows

IMAGES = 128  # of a tile
STEP = 64  # numbers of each factor that a product takes: 128 bytes of bf16, a line of what TMA lays out
WIDE, SQUARE = (256, 128, 64), (128, 64)  # sides of a tile along channels, the largest that divides; SQUARE of dW's
# A sum is in so many parts that its programs fill the 132 multiprocessors of an H100 or H200, if the images are one
# block: a matter of the layer's sizes and neither of the batch nor of the GPU, so that an image's bits do not depend on
# what stands beside it.
PROGRAMS = 132
MOST_PARTS, MOST_PARTS_OF_WEIGHT = 16, 8
ADDED = 1024  # numbers of a program that adds parts
ROWS, COLUMNS, BLOCKS = 32, 64, 64  # of sums of rows: a tile, and how many sums are added up in the end


def interprets() -> bool:
    """Whether Triton interprets the kernels (TRITON_INTERPRET), on CPU tensors too."""
    return not isinstance(_forward, triton.runtime.JITFunction)


def numbers(x: torch.Size, weight: torch.Size, stride: int) -> int:
    """The most numbers that anything has which is read or written of x [B, C, H, W] and weight [N, C, k, k]."""
    images, channels, *pixels = x
    outputs, _, side, _ = weight
    places = math.prod((n - side) // stride + 1 for n in pixels)
    of_y = images * places * outputs * _parts(places, channels, outputs, side)
    return max(math.prod(x), of_y, math.prod(weight) * _parts_of_weight(channels, outputs, side))


def convolved(x: Tensor, w: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """y [B, H', W', N] of the type of x [B, H, W, C] and w [N, k, k, C], bias [N] of any float type.

    All contiguous, at addresses that are multiples of 16 bytes; C and N are multiples of STEP and of the least of WIDE,
    and `numbers` fewer than 2**31. So it is below, too.
    """
    images, height, width, channels = x.shape
    outputs, side, *_ = w.shape
    tall, wide = (height - side) // stride + 1, (width - side) // stride + 1
    block = _largest(WIDE, outputs)
    y = x.new_empty(images, tall, wide, outputs)
    parts = _parts(tall * wide, channels, outputs, side)
    out = y if parts == 1 else x.new_empty(parts, *y.shape, dtype=torch.float32)
    given = y if bias is None else bias.contiguous()  # what is not there is not read
    start(
        _forward,
        (tall * wide * parts, triton.cdiv(images, IMAGES), outputs // block),
        *(_matrix(x, IMAGES, STEP), _matrix(w, block, STEP), given, out, images),
        **{"C": channels, "N": outputs, "WIDE_X": width, "WIDE": wide, "PLACES": tall * wide},
        **{"SIDE": side, "STRIDE": stride, "PARTS": parts, "HAS_BIAS": bias is not None},
        **_of_a_wide_tile(block),
    )
    if parts > 1:
        _add(out, bias, y)
    return y


def of_images(g: Tensor, w: Tensor, dx: Tensor, stride: int) -> None:
    """Write dx [B, H, W, C], of any float type, of g [B, H', W', N] and w [N, k, k, C] of the same type."""
    images, height, width, channels = dx.shape
    _, tall, wide, outputs = g.shape
    side, block = w.shape[1], _largest(WIDE, channels)
    start(
        _of_images,
        (height * width, triton.cdiv(images, IMAGES), channels // block),
        *(_matrix(g, IMAGES, STEP), _matrix(w, STEP, block), dx),
        *(_order(height, width, tall, wide, side, stride, dx.device), images),
        **{"C": channels, "N": outputs, "WIDE_X": width, "PIXELS": height * width, "TALL": tall, "WIDE": wide},
        **{"SIDE": side, "STRIDE": stride},
        **_of_a_wide_tile(block),
    )


def of_weight(g: Tensor, x: Tensor, side: int, stride: int) -> Tensor:
    """dW [N, k, k, C] float32 of g [B, H', W', N] and x [B, H, W, C] of the same type."""
    images, tall, wide, outputs = g.shape
    *_, width, channels = x.shape
    rows, columns = _largest(SQUARE, outputs), _largest(SQUARE, channels)
    parts = _parts_of_weight(channels, outputs, side)
    dw = g.new_empty(outputs, side, side, channels, dtype=torch.float32)
    out = dw if parts == 1 else dw.new_empty(parts, *dw.shape)
    start(
        _of_weight,
        (side * side * parts, outputs // rows, channels // columns),
        *(_matrix(g, STEP, rows), _matrix(x, STEP, columns), out, triton.cdiv(images, STEP)),
        **{"C": channels, "N": outputs, "WIDE_X": width, "WIDE": wide, "PLACES": tall * wide},
        **{"SIDE": side, "STRIDE": stride, "PARTS": parts},
        **{"OUTPUTS": rows, "INPUTS": columns, "STEP": STEP, "STAGES": 4},
        num_warps=4,
    )
    if parts > 1:
        _add(out, None, dw)
    return dw


def of_bias(g: Tensor) -> Tensor:
    """The sums [N] over all else of g [B, H', W', N]: float32."""
    outputs = g.shape[-1]
    rows = g.numel() // outputs
    each = max(ROWS, triton.cdiv(rows, BLOCKS))
    parts = g.new_empty(triton.cdiv(rows, each), outputs, dtype=torch.float32)
    sums = g.new_empty(1, outputs, dtype=torch.float32)
    for source, target, of_each in ((g, parts, each), (parts, sums, len(parts))):
        start(
            _sums_of_rows,
            (len(target), outputs // COLUMNS),
            *(source, target, source.numel() // outputs, of_each),
            **{"N": outputs, "ROWS": ROWS, "COLUMNS": COLUMNS},
            num_warps=4,
        )
    return sums[0]


def start(kernel: Any, grid: tuple[int, ...], *given: Any, **sizes: Any) -> None:
    """Start a kernel where its arguments lie, on the current stream."""
    tensors = (x.base if isinstance(x, TensorDescriptor) else x for x in given)
    with torch.cuda.device_of(next(tensors)):
        kernel[grid](*given, **sizes, enable_fp_fusion=True)


def _matrix(x: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """What TMA takes tiles [rows, columns] from: x as a matrix, a row for each of its first dimension."""
    row = x.numel() // len(x)
    return TensorDescriptor(x, [len(x), row], [row, 1], [rows, columns])


def _largest(sides: tuple[int, ...], channels: int) -> int:
    return next(side for side in sides if channels % side == 0)


def _add(parts: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write the sum of parts [., ..., N] and bias [N] into `out` [..., N]."""
    N = out.shape[-1]
    start(
        _added,
        (triton.cdiv(out.numel(), ADDED),),
        *(parts, out if bias is None else bias.contiguous(), out, out.numel() // N),
        **{"N": N, "PARTS": len(parts), "HAS_BIAS": bias is not None, "BLOCK": ADDED},
        num_warps=4,
    )


def _parts(places: int, channels: int, outputs: int, side: int) -> int:
    """Parts of a sum of y."""
    programs = places * (outputs // _largest(WIDE, outputs))
    return max(1, min(PROGRAMS // programs, MOST_PARTS, side**2 * channels // STEP))


def _parts_of_weight(channels: int, outputs: int, side: int) -> int:
    """Parts of a sum of dW: the fewest of those with which the last round of programs is fullest, for a small layer.

    A large one has rounds enough, and its parts would be much to write and read.
    """
    programs = side**2 * (outputs // _largest(SQUARE, outputs)) * (channels // _largest(SQUARE, channels))
    if programs >= 2 * PROGRAMS:
        return 1
    return min(range(1, MOST_PARTS_OF_WEIGHT + 1), key=lambda parts: math.ceil(programs * parts / PROGRAMS) / parts)


def _of_a_wide_tile(block: int) -> dict[str, int]:
    """A thread holds 128 sums of the two larger tiles, 64 of the least."""
    wide = block > 128
    return {"IMAGES": IMAGES, "BLOCK": block, "STEP": STEP, "STAGES": 3 if wide else 4, "num_warps": 8 if wide else 4}


@functools.cache
def _order(height: int, width: int, tall: int, wide: int, side: int, stride: int, device: torch.device) -> Tensor:
    """All pixels [height * width] int32, by how many taps reach them, most first.

    A copy to the device that is waited for, so that every stream may read it: what is recorded as a graph has been done
    eagerly before, and finds it here.
    """

    def reached(pixels: int, places: int) -> Tensor:
        return torch.tensor([sum(0 <= i - place * stride < side for place in range(places)) for i in range(pixels)])

    taps = (reached(height, tall)[:, None] * reached(width, wide)).flatten()
    return taps.argsort(descending=True, stable=True).int().to(device)
