"""Routing sums in Triton: every vote u_hat_ij = W_ij u_i is made in registers where it is used, and written nowhere.

Three kernels, all of float32 multiply-adds (no tensor core, so no TF32), all without atomics: partial sums are written
by block and added in a fixed order, so the same arguments give the same bits. Outputs J, their dimensions D and a lower
capsule's d are padded to powers of two; what is padded is zero, and has coupling zero.

Block sizes are reasoned, not tuned: no GPU was at hand. What was at hand is the compiler: for compute capability 9.0 it
gives the kernels 149, 168 and 142 registers a thread at the paper's J = 10, D = 16, d = 8, of 255 there are, and spills
none, so three to seven blocks are resident on a multiprocessor and hide each other's waiting.
"""
# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INPUTS = 32  # that a block adds up: partial sums take 1/32 of what the votes would, and 1152 inputs make 36 blocks
TILE = 2048  # numbers in a block of images x J x D, 16 a thread of each array: 8 images of the paper's J = 10, D = 16
LARGEST = 2**14  # padded numbers of one W_i: 8 warps hold them and their gradient in 128 registers a thread


@triton.jit
def _couplings(u_hat, V, real, leaky: tl.constexpr, axis: tl.constexpr):
    """Softmax over the outputs, which lie along `axis` before D, of <u_hat, V>; D is kept as a dimension of size 1."""
    b = tl.sum(u_hat * V, axis + 1, keep_dims=True)
    b = tl.where(real, b, float("-inf"))
    m = tl.max(b, axis, keep_dims=True)
    if leaky:  # one more logit, always zero
        m = tl.maximum(m, 0.0)
    e = tl.exp(b - m)
    total = tl.sum(e, axis, keep_dims=True)
    if leaky:
        total += tl.exp(-m)
    return e / total


@triton.jit
def _of_logits(u_hat, c, of_s, axis: tl.constexpr):
    """Gradient of the logits: through the (leaky) softmax, of <u_hat, ds>."""
    of_c = tl.sum(u_hat * of_s, axis + 1, keep_dims=True)
    return c * (of_c - tl.sum(c * of_c, axis, keep_dims=True))


@triton.jit
def _sums(
    u,  # [B, I, d]
    W,  # [I, J, d, D] of any strides
    V,  # [B, J, D]
    of_s,  # [B, J, D], the gradient of s; read where `backward`
    parts,  # [blocks of inputs, B, J, D]
    couplings,  # [B, I, J]; written unless `backward`
    B,
    I,  # noqa: E741
    W_i,
    W_j,
    W_k,
    W_e,
    J: tl.constexpr,
    d: tl.constexpr,
    D: tl.constexpr,
    IMAGES: tl.constexpr,
    INPUTS: tl.constexpr,
    J2: tl.constexpr,
    D2: tl.constexpr,
    leaky: tl.constexpr,
    backward: tl.constexpr,
):
    """Sums over a block of inputs, for a block of images: of c_ij u_hat_ij, or of db_ij u_hat_ij where `backward`."""
    # every index has all three dimensions from the start: so the compiler finds one layout, and exchanges nothing
    rows = (tl.program_id(0) * IMAGES + tl.arange(0, IMAGES))[:, None, None]
    j, e = tl.arange(0, J2)[None, :, None], tl.arange(0, D2)[None, None, :]
    at = rows * (J * D) + j * D + e
    here = (rows < B) & (j < J) & (e < D)
    v = tl.load(V + at, mask=here, other=0.0)  # [images, J, D]
    if backward:
        ds = tl.load(of_s + at, mask=here, other=0.0)
    total = tl.zeros([IMAGES, J2, D2], tl.float32)
    first = tl.program_id(1) * INPUTS
    for i in range(first, tl.minimum(first + INPUTS, I)):
        u_hat = tl.zeros([IMAGES, J2, D2], tl.float32)
        for k in tl.static_range(d):
            x = tl.load(u + rows * (I * d) + i * d + k, mask=rows < B, other=0.0)  # [images, 1, 1]
            w = tl.load(W + i * W_i + k * W_k + j * W_j + e * W_e, mask=(j < J) & (e < D), other=0.0)  # [1, J, D]
            u_hat += x * w
        c = _couplings(u_hat, v, j < J, leaky, 1)  # [images, J, 1]
        if backward:
            total += _of_logits(u_hat, c, ds, 1) * u_hat
        else:
            total += c * u_hat
            tl.store(couplings + rows * (I * J) + i * J + j, c, mask=(rows < B) & (j < J))
    tl.store(parts + tl.program_id(1) * (B * J * D) + at, total, mask=here)


@triton.jit
def _of_u_and_W(
    u,
    W,
    V,
    of_s,
    of_u,  # [B, I, d]
    of_W,  # [I, J, d, D], of W's strides
    B,
    I,  # noqa: E741
    W_i,
    W_j,
    W_k,
    W_e,
    J: tl.constexpr,
    d: tl.constexpr,
    D: tl.constexpr,
    d2: tl.constexpr,
    J2: tl.constexpr,
    D2: tl.constexpr,
    leaky: tl.constexpr,
):
    """Gradients of u_i and W_i of one input: W_i and its gradient stay in registers while all images go by in order."""
    i = tl.program_id(0)
    k, j, e = tl.arange(0, d2), tl.arange(0, J2), tl.arange(0, D2)
    real = (j < J)[:, None]
    W_at = i * W_i + k[:, None, None] * W_k + j[None, :, None] * W_j + e[None, None, :] * W_e
    W_here = (k < d)[:, None, None] & real[None, :, :] & (e < D)[None, None, :]
    w = tl.load(W + W_at, mask=W_here, other=0.0)  # [d, J, D]
    of_w = tl.zeros([d2, J2, D2], tl.float32)
    here = real & (e < D)[None, :]
    for n in range(0, B):
        at = n * (J * D) + j[:, None] * D + e[None, :]
        v = tl.load(V + at, mask=here, other=0.0)  # [J, D]
        ds = tl.load(of_s + at, mask=here, other=0.0)
        u_at = n * (I * d) + i * d + k
        x = tl.load(u + u_at, mask=k < d, other=0.0)  # [d]
        u_hat = tl.sum(w * x[:, None, None], 0)  # [J, D]
        c = _couplings(u_hat, v, real, leaky, 0)
        of_u_hat = c * ds + _of_logits(u_hat, c, ds, 0) * v
        of_w += x[:, None, None] * of_u_hat[None, :, :]
        tl.store(of_u + u_at, tl.sum(tl.sum(w * of_u_hat[None, :, :], 2), 1), mask=k < d)
    tl.store(of_W + W_at, of_w, mask=W_here)


def runs_on(device: torch.device) -> bool:
    """Whether the kernels run on `device`: a GPU, or anything where Triton interprets them (TRITON_INTERPRET)."""
    return device.type == "cuda" or not isinstance(_sums, triton.runtime.JITFunction)


def fits(u: Tensor, W: Tensor) -> bool:
    """Whether the kernels take u [B, I, d] and W [I, J, d, D]: float32, W_i in registers, offsets of 32 bits."""
    (inputs, outputs, d, dim), batch = W.shape, len(u)
    blocks = triton.cdiv(inputs, INPUTS)
    largest = max(u.numel(), W.numel(), batch * inputs * outputs, blocks * batch * outputs * dim)
    return (
        u.shape == (batch, inputs, d)
        and u.dtype == W.dtype == torch.float32
        and u.numel() > 0
        and W.numel() > 0
        and _padded(d) * _padded(outputs) * _padded(dim) <= LARGEST
        and largest < 2**31
    )


def weighted_sums(u: Tensor, W: Tensor, V: Tensor, leaky: bool) -> tuple[Tensor, Tensor]:
    """s_j = sum_i c_ij u_hat_ij [B, J, D] and c [B, I, J] of contiguous u [B, I, d], V [B, J, D] and W [I, J, d, D]."""
    couplings = u.new_empty(*u.shape[:2], W.shape[1])
    return _summed(u, W, V, V, couplings, leaky, backward=False), couplings


def gradient_of_V(u: Tensor, W: Tensor, V: Tensor, of_s: Tensor, leaky: bool) -> Tensor:
    """dV_j = sum_i db_ij u_hat_ij [B, J, D] of ds [B, J, D]; every argument but W contiguous."""
    return _summed(u, W, V, of_s, V, leaky, backward=True)


def gradient_of_u_and_W(u: Tensor, W: Tensor, V: Tensor, of_s: Tensor, leaky: bool) -> tuple[Tensor, Tensor]:
    """du_i = sum_j W_ij^T du_hat_ij [B, I, d] and dW_ij = sum_b u_i du_hat_ij^T, laid out as W is."""
    (batch, inputs, d), outputs, dim = u.shape, W.shape[1], W.shape[3]
    of_u, of_W = torch.empty_like(u), torch.empty_strided(W.shape, W.stride(), dtype=W.dtype, device=W.device)
    d2, J2, D2 = _padded(d), _padded(outputs), _padded(dim)
    warps = min(max(d2 * J2 * D2 // 1024, 1), 8)  # 32 numbers of W_i a thread, as many of its gradient: the paper's 2
    with torch.cuda.device_of(u):
        _of_u_and_W[(inputs,)](
            *(u, W, V, of_s, of_u, of_W, batch, inputs, *W.stride()),
            **_sizes(W),
            d2=d2,
            leaky=leaky,
            num_warps=warps,
            enable_fp_fusion=True,  # Triton's default so far; said, since the bits depend on it
        )
    return of_u, of_W


def _summed(u: Tensor, W: Tensor, V: Tensor, of_s: Tensor, couplings: Tensor, leaky: bool, backward: bool) -> Tensor:
    batch, inputs, _ = u.shape
    sizes = _sizes(W)
    each = sizes["J2"] * sizes["D2"]
    images = min(max(TILE // each, 1), 64)
    blocks = triton.cdiv(inputs, INPUTS)
    parts = u.new_empty(blocks, *V.shape)
    with torch.cuda.device_of(u):
        _sums[(triton.cdiv(batch, images), blocks)](  # neighbours read the same W
            *(u, W, V, of_s, parts, couplings, batch, inputs, *W.stride()),
            **sizes,
            IMAGES=images,
            INPUTS=INPUTS,
            leaky=leaky,
            backward=backward,
            num_warps=4 if each <= 2 * TILE else 8,
            enable_fp_fusion=True,
        )
    return parts.sum(0)


def _sizes(W: Tensor) -> dict[str, Any]:
    _, outputs, d, dim = W.shape
    return {"J": outputs, "d": d, "D": dim, "J2": _padded(outputs), "D2": _padded(dim)}


def _padded(size: int) -> int:
    """The power of two that holds `size`; at least 2, since a sum along one number is nobody's common case."""
    return max(2, triton.next_power_of_2(size))
