"""Routing sums in Triton: every vote u_hat_ij = W_ij u_i is made in registers where it is used, and written nowhere.

Three kernels, which `launch` starts, all of float32 multiply-adds (no tensor core, so no TF32), all without atomics:
partial sums are written by block and added in a fixed order, so the same arguments give the same bits.

How the work lies on a GPU is what makes them fast. An array here is [images, D] of one output; the J outputs and the d
dimensions of a lower capsule are Python tuples of such arrays, unrolled when the kernel is compiled. So a thread has a
few dimensions of every output of its images: a logit is a sum over eight neighbours, the softmax is no exchange at all,
and nothing waits for another warp. (With the outputs as one more dimension of the arrays the compiler spreads them over
lanes and warps, and every softmax goes through shared memory.) W is read from the cache, a few values for all images of
a warp; each value serves two images of a thread.

`tests/routing/fused_compiled.py` says what the compiler makes of them for compute capability 9.0, without a GPU.
"""
# mypy: disable-error-code="no-untyped-def, misc, assignment"

from __future__ import annotations

import triton
import triton.language as tl


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
def _tile(B, J: tl.constexpr, D: tl.constexpr, D2: tl.constexpr, IMAGES: tl.constexpr):
    """A block of images, the dimensions of an output; where both lie in one [B, J, D], and which of them are there."""
    rows = (tl.program_id(0) * IMAGES + tl.arange(0, IMAGES))[:, None]
    e = tl.max_contiguous(tl.arange(0, D2), 2)[None, :]  # a thread has two of them, and so two images
    return rows, e, rows * (J * D) + e, (rows < B) & (e < D)


@triton.jit
def _zeros(count: tl.constexpr, IMAGES: tl.constexpr, D2: tl.constexpr):
    """`count` sums [images, D] to be."""
    zeros = ()
    for _ in tl.static_range(count):
        zeros += (tl.zeros([IMAGES, D2], tl.float32),)
    return zeros


@triton.jit
def _read(at, here, J: tl.constexpr, D: tl.constexpr):
    """J arrays [images, D] of one [B, J, D]."""
    read = ()
    for j in tl.static_range(J):
        read += (tl.load(at + j * D, mask=here, other=0.0),)
    return read


@triton.jit
def _write_part(parts, sums, at, here, B, J: tl.constexpr, D: tl.constexpr):
    """Write a block's J sums [images, D] into its own of the parts [blocks of inputs, B, J, D]."""
    for j in tl.static_range(J):
        tl.store(parts + tl.program_id(1) * (B * J * D) + at + j * D, sums[j], mask=here)


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
    rows, e, at, here = _tile(B, J, D, D2, IMAGES)
    v = _read(V + at, here, J, D)
    s = _zeros(J, IMAGES, D2)
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
    _write_part(parts, s, at, here, B, J, D)


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
    rows, e, at, here = _tile(B, J, D, D2, IMAGES)
    v, ds = _read(V + at, here, J, D), _read(of_s + at, here, J, D)
    of_V = _zeros(J, IMAGES, D2)
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
        dx = _zeros(d, IMAGES, D2)
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
    _write_part(parts, of_V, at, here, B, J, D)


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
