"""The kernels of `transforms`, started: which arguments they take, and how their work is divided."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
import math

import torch
import triton
from torch import Tensor

from capsbench.models.transform_kernels import _from_frequencies, _to_frequencies

LARGEST = 12  # pixels a side: a thread holds as many squared, in 255 registers and, of 12, 72 bytes of memory
CHANNELS = 128  # of a program, one a thread


@functools.cache
def _tables(N: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Cosine and sine of 2 pi k / N for k from 0 to N - 1."""
    angles = [2 * math.pi * k / N for k in range(N)]
    return tuple(math.cos(angle) for angle in angles), tuple(math.sin(angle) for angle in angles)


def count(side: int) -> int:
    """n, the real products of side x side pixels."""
    return (3 * side**2 - (1 if side % 2 else 4)) // 2


def fit(x: Tensor, side: int, written: int) -> bool:
    """Whether the kernels take x where it lies, patches of that side, and as many numbers as are written."""
    interpreted = not isinstance(_to_frequencies, triton.runtime.JITFunction)
    return (
        (x.is_cuda or interpreted)
        and x.dtype == torch.float32
        and side <= LARGEST
        and 0 < x.numel() < 2**31
        and 0 < written < 2**31
    )


def to_frequencies(
    x: Tensor, kind: int, side: int, given: int, stride: int = 1, tiles: tuple[int, int] = (1, 1), step: int = 0
) -> Tensor:
    """The real numbers [patches, n, K] of patches of x [images, H, W, C], K = stride * stride * C.

    An image has tiles[0] x tiles[1] patches, each `step` pixels of a phase from the next.
    """
    x = x.contiguous()
    patches = len(x) * math.prod(tiles)
    out = x.new_empty(patches, count(side), x.shape[3] * stride**2)
    _started(_to_frequencies, x, out, x, kind, side, given, stride, tiles, step, patches)
    return out


def from_frequencies(
    k: Tensor,
    out: Tensor,
    kind: int,
    side: int,
    wanted: int,
    stride: int = 1,
    tiles: tuple[int, int] = (1, 1),
    step: int = 0,
) -> Tensor:
    """Write the first wanted x wanted pixels of each patch where they lie in out [images, H, W, C], and return it.

    Patches that overlap must not be written into one image: nobody adds.
    """
    _started(_from_frequencies, k.contiguous(), out, out, kind, side, wanted, stride, tiles, step, len(k))
    return out


def _started(kernel, source, target, images, kind, side, size, stride, tiles, step, patches) -> None:
    _, height, width, channels = images.shape
    lanes = min(CHANNELS, triton.next_power_of_2(channels))
    blocks = triton.cdiv(channels, lanes)
    cos, sin = _tables(side)
    with torch.cuda.device_of(source):
        kernel[(patches, stride**2 * blocks)](
            *(source, target, height, width, channels, blocks, *tiles, step),
            stride=stride,
            **{"given" if kernel is _to_frequencies else "wanted": size},
            N=side,
            COS=cos,
            SIN=sin,
            kind=kind,
            CHANNELS=lanes,
            num_warps=max(1, lanes // 32),
            enable_fp_fusion=True,
        )
