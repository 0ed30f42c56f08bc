"""Squash and length of vectors in Triton: one kernel each way, where torch takes 18 forward and 38 backward.

Float32 along the last dimension, a vector in a few neighbouring threads; the plain way (`squash`) is the reference, in
whose words a vector x of largest entry m has the length n = m |x/m|, and v = f(n) x. Comparisons stand where the plain
way clamps: a GPU's minimum and maximum swallow NaN, and a run that diverges would not show it.
"""
# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from capsbench.routing.squash import LARGE, SMALL, TINY

KINDS = {"hinton": 1.0, "half": 0.5}  # f(n) = n / (this + n^2); the others need exponentials of small numbers
TILE = 1024  # numbers in a program
WIDEST = 1024  # dimensions of a vector

_SMALL, _LARGE, _TINY = tl.constexpr(SMALL), tl.constexpr(LARGE), tl.constexpr(TINY)


@triton.jit
def _direction(x):
    """Length n [rows, 1] and direction x/n of vectors [rows, D], zero for a zero vector."""
    m = tl.max(tl.abs(x), 1, keep_dims=True)
    y = x / tl.maximum(m, _TINY)
    total = tl.sum(y * y, 1, keep_dims=True)
    r = tl.sqrt(tl.where(total < 0.5, 0.5, total))  # total is at least 1, unless all is zero, or below TINY
    return m * r, y / r


@triton.jit(do_not_specialize=["count"])
def _squash(x, of_v, out, count, D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr, a, backward: tl.constexpr):
    """v = f(n) x with f(n) = n / (a + n^2); or of dv where `backward`: f dv + n f'(n) <dv, x/n> x/n."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    e = tl.arange(0, D2)[None, :]
    at, here = rows * D + e, (rows < count) & (e < D)
    s = tl.load(x + at, mask=here, other=0.0)
    n, direction = _direction(s)
    inside = tl.where(n < _SMALL, _SMALL, tl.where(n > _LARGE, _LARGE, n))
    f = inside / (a + inside * inside) * tl.where(n > _LARGE, _LARGE / n, 1.0)
    if backward:
        dv = tl.load(of_v + at, mask=here, other=0.0)
        slope = f * (a - inside * inside) / (a + inside * inside)  # n f'(n); beyond LARGE f is 1/n, so it is -f
        slope = tl.where(n < _SMALL, 0.0, slope)
        result = f * dv + slope * tl.sum(dv * direction, 1, keep_dims=True) * direction
    else:
        result = s * f
    tl.store(out + at, result, mask=here)


@triton.jit(do_not_specialize=["count"])
def _length(x, of_n, out, count, D: tl.constexpr, D2: tl.constexpr, ROWS: tl.constexpr, backward: tl.constexpr):
    """n = |x|; or of dn where `backward`: dn x/n."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows, e = row[:, None], tl.arange(0, D2)[None, :]
    at, here = rows * D + e, (rows < count) & (e < D)
    n, direction = _direction(tl.load(x + at, mask=here, other=0.0))
    if backward:
        tl.store(out + at, tl.load(of_n + rows, mask=rows < count, other=0.0) * direction, mask=here)
    else:
        tl.store(out + rows, n, mask=rows < count)


def squash(x: Tensor, kind: str, of_v: Tensor | None = None) -> Tensor:
    """Vectors [..., D], squashed as `kind` of `KINDS` says; or the gradient of x, where that of the result is given."""
    out = torch.empty_like(x)
    given = (x, x if of_v is None else of_v, out, x.numel() // x.shape[-1])
    _launch(_squash, x, given, a=KINDS[kind], backward=of_v is not None)
    return out


def length(x: Tensor, of_n: Tensor | None = None) -> Tensor:
    """Lengths [...] of vectors [..., D]; or the gradient of x, where that of the lengths is given."""
    out = x.new_empty(x.shape[:-1]) if of_n is None else torch.empty_like(x)
    _launch(_length, x, (x, x if of_n is None else of_n, out, x.numel() // x.shape[-1]), backward=of_n is not None)
    return out


def fits(x: Tensor) -> bool:
    """Whether the kernels take contiguous vectors [..., D]: float32, not too wide, offsets of 32 bits."""
    return x.dtype == torch.float32 and 0 < x.numel() < 2**31 and x.shape[-1] <= WIDEST


def _launch(kernel, x: Tensor, given: tuple[Tensor | int, ...], **options: float) -> None:
    D2 = max(2, triton.next_power_of_2(x.shape[-1]))
    rows = TILE // D2
    with torch.cuda.device_of(x):
        kernel[(triton.cdiv(x.numel() // x.shape[-1], rows),)](
            *given, D=x.shape[-1], D2=D2, ROWS=rows, **options, num_warps=4, enable_fp_fusion=True
        )
