"""The kernels of fused routing, started: which arguments they take, and how their work is divided.

Sizes are reasoned and not tuned: an H200 has run them, and other sizes have not been tried there.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from capsbench.routing.kernels import _gradients, _of_W, _sums

WARPS = 4
TILE = 512  # numbers in an array of four warps: two dimensions of two images a thread
MANY = 12  # outputs; of more, a thread has one image, since of each output it holds its part of some five arrays
PROGRAMS = 256  # that the sums of the paper's 128 images are divided into, and those of a slice: two a multiprocessor
SLICE = 64  # images whose couplings and gradients of logits `_gradients` hands on to `_of_W` at a time
MOST_OUTPUTS, MOST_DIMENSIONS, MOST_UNROLLED = 32, 64, 256  # J, d and J * d: more spills, and compiles for minutes


def runs_on(device: torch.device) -> bool:
    """Whether the kernels run on `device`: a GPU, or anything where Triton interprets them (TRITON_INTERPRET)."""
    return device.type == "cuda" or not isinstance(_sums, triton.runtime.JITFunction)


def fits(u: Tensor, W: Tensor) -> bool:
    """Whether the kernels take u [B, I, d] and W [I, J, d, D]: float32, few enough outputs, offsets of 32 bits."""
    (inputs, outputs, d, dim), batch = W.shape, len(u)
    if _images(W) == 0:
        return False
    blocks = triton.cdiv(PROGRAMS, triton.cdiv(SLICE, _images(W)))
    largest = max(u.numel(), W.numel(), batch * inputs * outputs, blocks * batch * outputs * dim)
    return (
        u.shape == (batch, inputs, d)
        and u.dtype == W.dtype == torch.float32
        and u.numel() > 0
        and W.numel() > 0
        and outputs <= MOST_OUTPUTS
        and d <= MOST_DIMENSIONS
        and outputs * d <= MOST_UNROLLED
        and largest < 2**31
    )


def weighted_sums(u: Tensor, W: Tensor, V: Tensor, leaky: bool, keep: bool) -> tuple[Tensor, Tensor | None]:
    """s_j = sum_i c_ij u_hat_ij [B, J, D] and, where `keep`, c [B, I, J] of u [B, I, d], W [I, J, d, D], V [B, J, D].

    All of them contiguous float32.
    """
    batch, inputs, _ = u.shape
    couplings = u.new_empty(batch, inputs, W.shape[1]) if keep else None
    each = _inputs_a_program(W, images=2 * SLICE)
    parts = u.new_empty(triton.cdiv(inputs, each), *V.shape)
    with torch.cuda.device_of(u):
        _sums[(triton.cdiv(batch, _images(W)), len(parts))](  # neighbours read the same W
            *(u, W, V, parts, V if couplings is None else couplings, batch, inputs, each),
            **_sizes(W),
            IMAGES=_images(W),
            leaky=leaky,
            keep=keep,
            num_warps=WARPS,
            enable_fp_fusion=True,  # Triton's default so far; said, since the bits depend on it
        )
    return parts.sum(0), couplings


def gradients(u: Tensor, W: Tensor, V: Tensor, of_s: Tensor, leaky: bool, of_u: Tensor, of_W: Tensor) -> Tensor:
    """dV_j = sum_i db_ij u_hat_ij [B, J, D] of ds [B, J, D]; du and dW are added to `of_u` and `of_W`.

    All of them contiguous float32. A slice of images at a time, so that what one kernel hands on to the next takes
    2 * SLICE * I * J numbers for any batch.
    """
    (batch, inputs, d), (_, outputs, _, dim) = u.shape, W.shape
    of_V = torch.empty_like(V)
    # each alone: the second of two in one would begin where its address is no multiple of 16, and compile anew
    couplings, of_b = (u.new_empty(min(batch, SLICE), inputs, outputs) for _ in range(2))
    each = _inputs_a_program(W, images=SLICE)
    D2 = _padded(dim)
    rows, columns = max(128 // D2, 1), 2 if outputs % 2 == 0 and d <= 8 else 1  # 4 * d * columns sums a thread
    with torch.cuda.device_of(u):
        for start in range(0, batch, SLICE):
            some = slice(start, start + SLICE)
            count = len(u[some])
            parts = u.new_empty(triton.cdiv(inputs, each), *V[some].shape)
            _gradients[(triton.cdiv(count, _images(W)), len(parts))](
                *(u[some], W, V[some], of_s[some], of_u[some], parts, couplings, of_b, count, inputs, each),
                **_sizes(W),
                IMAGES=_images(W),
                leaky=leaky,
                num_warps=WARPS,
                enable_fp_fusion=True,
            )
            torch.sum(parts, 0, out=of_V[some])
            del parts
            _of_W[(triton.cdiv(inputs, rows), outputs // columns)](
                *(u[some], V[some], of_s[some], couplings, of_b, of_W, count, inputs),
                **{**_sizes(W), "D2": D2},
                INPUTS=rows,
                OUTPUTS=columns,
                num_warps=1,
                enable_fp_fusion=True,
            )
    return of_V


def _inputs_a_program(W: Tensor, images: int) -> int:
    """So many that `images` images are divided into about PROGRAMS programs; of W and not of the batch that there is,
    so that an image's sums are added in the same order whatever stands beside it.
    """
    return triton.cdiv(len(W), triton.cdiv(PROGRAMS, triton.cdiv(images, _images(W))))


def _images(W: Tensor) -> int:
    """Images of a program; 0 where not one fits."""
    return (TILE if W.shape[1] <= MANY else TILE // 2) // _sizes(W)["D2"]


def _sizes(W: Tensor) -> dict[str, int]:
    """J, d, D, and the columns of an array: D, and where results are written the outputs or the d of u."""
    _, outputs, d, dim = W.shape
    return {"J": outputs, "d": d, "D": dim, "D2": _padded(max(outputs, d, dim))}


def _padded(size: int) -> int:
    """The power of two that holds `size`; at least 2, as `tl.max_contiguous` says of D."""
    return max(2, triton.next_power_of_2(size))
