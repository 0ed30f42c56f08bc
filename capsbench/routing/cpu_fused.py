"""Fused routing on a CPU: `cpu_kernels`, compiled where there is a C compiler, as operations with a gradient.

It is for runs in bf16 (`capsbench.training.fusing`): what float32 runs come to on a CPU is published, and sums in
another order would change its last bits.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsbench.routing.compiled import CompilerError, library, places
from capsbench.routing.cpu_kernels import ROUTED_SUMS, SQUASH

KINDS = {"hinton": 1.0, "half": 0.5}  # of squash, as in `vector_kernels`
LANES = 16  # of the kernels at most: images of a block
SLICES = 4  # of the inputs, whose sums are added afterwards: with a block of images each a thread's work
MOST = 1024  # J * D: of its images' numbers a thread has four arrays of that size on its stack, 256 kB
MOST_CHILD = 32  # d: loops over it are unrolled


def fits(u: Tensor, W: Tensor) -> bool:
    """Whether the kernels take u [B, I, d] and W [I, J, d, D]: float32 on a CPU, of sizes that they are made for."""
    inputs, outputs, d, dim = W.shape
    return (
        u.shape == (len(u), inputs, d)
        and 0 < outputs * dim <= MOST
        and 0 < d <= MOST_CHILD
        and all(x.dtype == torch.float32 and x.device.type == "cpu" for x in (u, W))
        and why_not() is None
    )


def squashes(s: Tensor, kind: str) -> bool:
    """Whether there is a kernel for `squash` of these vectors [..., D]."""
    return kind in KINDS and s.dtype == torch.float32 and s.device.type == "cpu" and why_not() is None


@functools.cache
def why_not() -> str | None:
    """What speaks against these kernels in this process, or None."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "is interpreted by Triton here"  # which is how Triton's kernels are tried without a GPU
    try:
        library(SQUASH)
    except CompilerError as error:
        return str(error)
    return None


def routed_sum(
    u: Tensor, weight: Tensor, V: Tensor, leaky: bool, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """`fused.routed_sum` at some V, of contiguous tensors that `fits` takes. Raises CompilerError."""
    s, c, u, weight = _RoutedSum.apply(u, weight, V.float(), leaky, keep)
    return s, c, u, weight


def squash(s: Tensor, kind: str) -> Tensor:
    """`squash` of vectors that `squashes` takes."""
    vectors: Tensor = _Squash.apply(s.contiguous(), kind)
    return vectors


class _RoutedSum(torch.autograd.Function):
    """What is kept for the gradient are the arguments."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, V: Tensor, leaky: bool, keep: bool
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        (batch, inputs, _), outputs = u.shape, weight.shape[1]
        s, c = V.new_empty(SLICES, *V.shape), u.new_empty(batch, inputs, outputs) if keep else None
        sizes = map(ctypes.c_long, (batch, inputs, SLICES))
        _of(weight).sums(*sizes, int(leaky), *places(u, weight, V, s, c))
        ctx.save_for_backward(u, weight, V)
        ctx.set_materialize_grads(False)
        ctx.leaky = leaky
        if c is not None:
            ctx.mark_non_differentiable(c)
        return s.sum(0), c, u, weight

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_s: Tensor | None, _: Tensor | None, of_u: Tensor | None, of_weight: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        if of_s is None:
            return of_u, of_weight, None, None, None
        u, weight, V = ctx.saved_tensors
        (batch, inputs, _), outputs = u.shape, weight.shape[1]
        of_s = of_s.contiguous()
        # what is there is of the sums after this one, and added to in place; autograd may hand it expanded
        of_u = torch.zeros_like(u) if of_u is None else of_u.contiguous()
        of_weight = torch.zeros_like(weight) if of_weight is None else of_weight.contiguous()
        of_V = V.new_empty(SLICES, *V.shape)
        c, of_b = (u.new_empty(inputs * outputs * -(-batch // LANES) * LANES) for _ in range(2))
        *sizes, slices = map(ctypes.c_long, (batch, inputs, SLICES))
        kernels = _of(weight)
        kernels.gradients(*sizes, slices, int(ctx.leaky), *places(u, weight, V, of_s, of_u, of_V, c, of_b))
        kernels.gradient_of_W(*sizes, *places(u, V, of_s, c, of_b, of_weight))
        return of_u, of_weight, of_V.sum(0), None, None


class _Squash(torch.autograd.Function):
    """What is kept for the gradient are the vectors."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, kind: str) -> Tensor:
        ctx.save_for_backward(s)
        ctx.kind = kind
        return _squashed(s, kind, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_v: Tensor) -> tuple[Tensor, None]:
        (s,) = ctx.saved_tensors
        return _squashed(s, ctx.kind, of_v.contiguous()), None


def _squashed(s: Tensor, kind: str, of_v: Tensor | None) -> Tensor:
    """Squashed vectors, or the gradient of s for `of_v`."""
    out, dim = torch.empty_like(s), s.shape[-1]
    count = s.numel() // max(1, dim)
    library(SQUASH).squash(ctypes.c_long(count), ctypes.c_int(dim), ctypes.c_float(KINDS[kind]), *places(s, of_v, out))
    return out


def _of(W: Tensor) -> ctypes.CDLL:
    _, outputs, d, dim = W.shape
    return library(ROUTED_SUMS, f"-DOUTPUTS={outputs}", f"-DCHILD={d}", f"-DDIM={dim}")
