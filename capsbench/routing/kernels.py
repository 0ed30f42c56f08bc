"""Routing sums in Triton: every vote u_hat_ij = W_ij u_i is made in registers where it is used, and written nowhere.

Three kernels, all of float32 multiply-adds (no tensor core, so no TF32), all without atomics: partial sums are written
by block and added in a fixed order, so the same arguments give the same bits.

How the work lies on a GPU is what makes them fast. An array here is [images, D] of one output; the J outputs and the d
dimensions of a lower capsule are Python tuples of such arrays, unrolled when the kernel is compiled. So a thread has a
few dimensions of every output of its images: a logit is a sum over eight neighbours, the softmax is no exchange at all,
and nothing waits for another warp. (With the outputs as one more dimension of the arrays the compiler spreads them over
lanes and warps, and every softmax goes through shared memory.) W is read from the cache, a few values for all images of
a warp; each value serves two images of a thread.

Sizes are reasoned and not tuned, for no GPU was at hand. What was at hand is the compiler: `tests/routing/
fused_compiled.py` says what it makes of them for compute capability 9.0.
"""
# mypy: disable-error-code="no-untyped-def, misc, assignment"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 4
TILE = 512  # numbers in an array of four warps: two dimensions of two images a thread
MANY = 12  # outputs; of more, a thread has one image, since of each output it holds its part of some five arrays
PROGRAMS = 256  # that the sums of the paper's 128 images are divided into, and those of a slice: two a multiprocessor
SLICE = 64  # images whose couplings and gradients of logits `_gradients` hands on to `_of_W` at a time
MOST_OUTPUTS, MOST_DIMENSIONS, MOST_UNROLLED = 32, 64, 256  # J, d and J * d: more spills, and compiles for minutes


@triton.jit
def _votes(u, W, rows, e, i, B, I, J: tl.constexpr, d: tl.constexpr, D: tl.constexpr):  # noqa: E741
    """u_hat_ij = W_ij u_i for every output j: J arrays [images, D]."""
    x = ()
    for k in tl.static_range(d):
        x += (tl.load(u + rows * (I * d) + i * d + k, mask=rows < B, other=0.0),)  # [images, 1]
    u_hat = ()
    for j in tl.static_range(J):
        W_ij = W + i * (J * d * D) + j * (d * D) + e
        vote = x[0] * tl.load(W_ij, mask=e < D, other=0.0)
        for k in tl.static_range(1, d):
            vote += x[k] * tl.load(W_ij + k * D, mask=e < D, other=0.0)
        u_hat += (vote,)
    return u_hat


@triton.jit
def _couplings(u_hat, V, J: tl.constexpr, leaky: tl.constexpr):
    """Softmax over the outputs of <u_hat, V>: J arrays [images, 1]."""
    b = ()
    for j in tl.static_range(J):
        b += (tl.sum(u_hat[j] * V[j], 1, keep_dims=True),)
    m = b[0]
    for j in tl.static_range(1, J):
        m = tl.maximum(m, b[j])
    if leaky:  # one more logit, always zero
        m = tl.maximum(m, 0.0)
    e = (tl.exp(b[0] - m),)
    total = e[0]
    for j in tl.static_range(1, J):
        e += (tl.exp(b[j] - m),)
        total += e[j]
    if leaky:
        total += tl.exp(-m)
    share = 1 / total
    c = ()
    for j in tl.static_range(J):
        c += (e[j] * share,)
    return c


@triton.jit
def _read(at, here, J: tl.constexpr, D: tl.constexpr):
    """J arrays [images, D] of one [B, J, D]."""
    read = ()
    for j in tl.static_range(J):
        read += (tl.load(at + j * D, mask=here, other=0.0),)
    return read


@triton.jit
def _write(at, columns, rows, e, B, J: tl.constexpr):
    """Write J columns [images, 1] beside each other: stored singly, each would go through shared memory."""
    array = columns[0] + 0.0 * e
    for j in tl.static_range(1, J):
        array = tl.where(e == j, columns[j], array)
    tl.store(at + e, array, mask=(rows < B) & (e < J))


@triton.jit(do_not_specialize=["B", "I", "inputs"])
def _sums(
    u,  # [B, I, d]
    W,  # [I, J, d, D]
    V,  # [B, J, D]
    parts,  # [blocks of inputs, B, J, D]
    couplings,  # [B, I, J]; written where `keep`
    B,
    I,  # noqa: E741
    inputs,
    J: tl.constexpr,
    d: tl.constexpr,
    D: tl.constexpr,
    D2: tl.constexpr,
    IMAGES: tl.constexpr,
    leaky: tl.constexpr,
    keep: tl.constexpr,
):
    """Sums over a block of inputs of c_ij u_hat_ij, for a block of images."""
    rows = (tl.program_id(0) * IMAGES + tl.arange(0, IMAGES))[:, None]
    e = tl.max_contiguous(tl.arange(0, D2), 2)[None, :]  # a thread has two of them, and so two images
    at, here = rows * (J * D) + e, (rows < B) & (e < D)
    v = _read(V + at, here, J, D)
    s = ()
    for _ in tl.static_range(J):
        s += (tl.zeros([IMAGES, D2], tl.float32),)
    first = tl.program_id(1) * inputs
    for i in range(first, tl.minimum(first + inputs, I)):
        u_hat = _votes(u, W, rows, e, i, B, I, J, d, D)
        c = _couplings(u_hat, v, J, leaky)
        more = ()
        for j in tl.static_range(J):
            more += (s[j] + c[j] * u_hat[j],)
        s = more
        if keep:
            _write(couplings + rows * (I * J) + i * J, c, rows, e, B, J)
    for j in tl.static_range(J):
        tl.store(parts + tl.program_id(1) * (B * J * D) + at + j * D, s[j], mask=here)


@triton.jit(do_not_specialize=["B", "I", "inputs"])
def _gradients(
    u,
    W,
    V,
    of_s,  # [B, J, D], the gradient of s
    of_u,  # [B, I, d], added to
    parts,  # of V's gradient: [blocks of inputs, B, J, D]
    couplings,  # [B, I, J], c_ij
    of_b,  # [B, I, J], the gradient of the logits
    B,
    I,  # noqa: E741
    inputs,
    J: tl.constexpr,
    d: tl.constexpr,
    D: tl.constexpr,
    D2: tl.constexpr,
    IMAGES: tl.constexpr,
    leaky: tl.constexpr,
):
    """Of a block of inputs and images: the gradient of u, sums of db_ij u_hat_ij, and what `_of_W` goes on with."""
    rows = (tl.program_id(0) * IMAGES + tl.arange(0, IMAGES))[:, None]
    e = tl.max_contiguous(tl.arange(0, D2), 2)[None, :]
    at, here = rows * (J * D) + e, (rows < B) & (e < D)
    v, ds = _read(V + at, here, J, D), _read(of_s + at, here, J, D)
    of_V = ()
    for _ in tl.static_range(J):
        of_V += (tl.zeros([IMAGES, D2], tl.float32),)
    first = tl.program_id(1) * inputs
    for i in range(first, tl.minimum(first + inputs, I)):
        u_hat = _votes(u, W, rows, e, i, B, I, J, d, D)
        c = _couplings(u_hat, v, J, leaky)
        of_c = ()
        for j in tl.static_range(J):
            of_c += (tl.sum(u_hat[j] * ds[j], 1, keep_dims=True),)
        mean = c[0] * of_c[0]
        for j in tl.static_range(1, J):
            mean += c[j] * of_c[j]
        db, more = (), ()
        for j in tl.static_range(J):
            db += (c[j] * (of_c[j] - mean),)  # through the (leaky) softmax
            more += (of_V[j] + db[j] * u_hat[j],)
        of_V = more
        dx = ()
        for _ in tl.static_range(d):
            dx += (tl.zeros([IMAGES, D2], tl.float32),)
        for j in tl.static_range(J):
            of_u_hat = c[j] * ds[j] + db[j] * v[j]
            W_ij = W + i * (J * d * D) + j * (d * D) + e
            more = ()
            for k in tl.static_range(d):
                # read again, by other words: else the compiler keeps all of W_i from above in registers, and spills
                w = tl.load(W_ij + k * D, mask=e < D, other=0.0, eviction_policy="evict_last")
                more += (dx[k] + of_u_hat * w,)
            dx = more
        sums = ()
        for k in tl.static_range(d):
            sums += (tl.sum(dx[k], 1, keep_dims=True),)
        du = of_u + rows * (I * d) + i * d
        total = tl.load(du + e, mask=(rows < B) & (e < d), other=0.0)
        for k in tl.static_range(d):
            total += tl.where(e == k, sums[k], 0.0)
        tl.store(du + e, total, mask=(rows < B) & (e < d))
        _write(couplings + rows * (I * J) + i * J, c, rows, e, B, J)
        _write(of_b + rows * (I * J) + i * J, db, rows, e, B, J)
    for j in tl.static_range(J):
        tl.store(parts + tl.program_id(1) * (B * J * D) + at + j * D, of_V[j], mask=here)


@triton.jit(do_not_specialize=["B", "I"])
def _of_W(
    u,
    V,
    of_s,
    couplings,
    of_b,
    of_W,  # [I, J, d, D], added to
    B,
    I,  # noqa: E741
    J: tl.constexpr,
    d: tl.constexpr,
    D: tl.constexpr,
    D2: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """dW_ij = sum_b u_i du_hat_ij^T of a block of inputs and OUTPUTS outputs: in registers while all images go by."""
    i = (tl.program_id(0) * INPUTS + tl.arange(0, INPUTS))[:, None]
    e = tl.arange(0, D2)[None, :]
    first = tl.program_id(1) * OUTPUTS
    here = (i < I) & (e < D)
    W_at = of_W + i * (J * d * D) + first * (d * D) + e
    dW = ()
    for n in tl.static_range(OUTPUTS * d):
        dW += (tl.load(W_at + n * D, mask=here, other=0.0),)
    for n in tl.range(0, B, loop_unroll_factor=4):
        x = ()
        for k in tl.static_range(d):
            x += (tl.load(u + n * (I * d) + i * d + k, mask=i < I, other=0.0),)  # [inputs, 1]
        more = ()
        for o in tl.static_range(OUTPUTS):
            at = n * (I * J) + i * J + first + o
            c = tl.load(couplings + at, mask=i < I, other=0.0)
            db = tl.load(of_b + at, mask=i < I, other=0.0)
            # of two dimensions though all inputs read the same: so the compiler finds one layout
            row = n * (J * D) + (first + o) * D + e + 0 * i
            of_u_hat = c * tl.load(of_s + row, mask=here, other=0.0) + db * tl.load(V + row, mask=here, other=0.0)
            for k in tl.static_range(d):
                more += (dW[o * d + k] + x[k] * of_u_hat,)
        dW = more
    for n in tl.static_range(OUTPUTS * d):
        tl.store(W_at + n * D, dW[n], mask=here)


def runs_on(device: torch.device) -> bool:
    """Whether the kernels run on `device`: a GPU, or anything where Triton interprets them (TRITON_INTERPRET)."""
    return device.type == "cuda" or not isinstance(_sums, triton.runtime.JITFunction)


def fits(u: Tensor, W: Tensor) -> bool:
    """Whether the kernels take u [B, I, d] and W [I, J, d, D]: float32, few enough outputs, offsets of 32 bits."""
    (inputs, outputs, d, dim), batch = W.shape, len(u)
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
        and _images(W) > 0
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
