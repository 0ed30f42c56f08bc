"""A convolution and its gradients on a GPU's tensor cores, in Triton: no patches, no atomics, each sum in one order.

A tile of results is a block of images at ONE place, not a block of places. Images [B, H, W, C] are then a matrix
[B, H*W*C] of which each tap of a place is a block of columns, so every factor is a plain two-dimensional tile, which
the GPU's copying unit (TMA) brings by itself, with zeros for images beyond the last. With images b, inputs c and
outputs o:

    y [b, o]  = sum over the taps of a place and c of  x [b, c] W [o, c]      `_forward`
    dx [b, c] = sum over a pixel's places and o of     g [b, o] W [o, c]      `_of_images`
    dW [o, c] = sum over the places of a tap and b of  g [b, o] x [b, c]      `_of_weight`

The gradient of an image so meets exactly those taps that reach a pixel. Products are of the factors' type, sums
float32, rounded once where the result is of less. What an image comes to does not depend on what stands beside it.
"""
# mypy: disable-error-code="no-untyped-def, misc, assignment"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["B"])
def _forward(
    x,  # descriptor of [B, WIDE_X rows of pixels * C], in blocks [IMAGES, STEP]
    w,  # descriptor of [N, SIDE * SIDE * C], in blocks [BLOCK, STEP]
    bias,  # [N]; read only of a sum in one part
    out,  # y [B, PLACES, N], or of a sum in several parts [PARTS, B, PLACES, N] float32, for `_added`
    B,
    C: tl.constexpr,
    N: tl.constexpr,
    WIDE_X: tl.constexpr,
    WIDE: tl.constexpr,
    PLACES: tl.constexpr,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    IMAGES: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One part of the sum of a block of images and outputs at a place. Grid: PLACES * PARTS, images, outputs."""
    place = tl.program_id(0) % PLACES
    part = tl.program_id(0) // PLACES
    b = tl.program_id(1) * IMAGES
    n = tl.program_id(2) * BLOCK
    a_tap: tl.constexpr = C // STEP
    steps: tl.constexpr = SIDE * SIDE * a_tap
    corner = (place // WIDE * WIDE_X + place % WIDE) * STRIDE
    acc = tl.zeros([IMAGES, BLOCK], tl.float32)
    for i in tl.range(part * steps // PARTS, (part + 1) * steps // PARTS, num_stages=STAGES):
        tap = i // a_tap
        at = (corner + tap // SIDE * WIDE_X + tap % SIDE) * C + i % a_tap * STEP
        acc = tl.dot(x.load([b, at]), w.load([n, i * STEP]).T, acc)
    rows = b + tl.arange(0, IMAGES)
    columns = n + tl.arange(0, BLOCK)
    if PARTS == 1 and HAS_BIAS:
        acc += tl.load(bias + columns).to(tl.float32)[None, :]
    at = (part * B + rows[:, None]) * (PLACES * N) + place * N + columns[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=(rows < B)[:, None])


@triton.jit(do_not_specialize=["rows"])
def _added(
    parts,  # [PARTS, rows, N] float32
    bias,  # [N]
    out,  # [rows, N]
    rows,
    N: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The parts of a sum and the bias, rounded once. Grid: blocks of numbers."""
    count = rows * N  # N is said to the compiler, and so that a thread's numbers are all there or none of them
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(parts + at, mask=at < count, other=0.0)
    for part in tl.static_range(1, PARTS):
        total += tl.load(parts + part * count + at, mask=at < count, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias + at % N).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < count)


@triton.jit(do_not_specialize=["B"])
def _of_images(
    g,  # descriptor of [B, TALL * WIDE * N], in blocks [IMAGES, STEP]
    w,  # descriptor of [N, SIDE * SIDE * C], in blocks [STEP, BLOCK]
    dx,  # [B, PIXELS, C]
    order,  # [PIXELS] int32: those that most taps reach come first, so that no long sum is begun last
    B,
    C: tl.constexpr,
    N: tl.constexpr,
    WIDE_X: tl.constexpr,
    PIXELS: tl.constexpr,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    IMAGES: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient of a block of images and inputs at a pixel. Grid: PIXELS, images, inputs."""
    pixel = tl.load(order + tl.program_id(0))
    b = tl.program_id(1) * IMAGES
    c = tl.program_id(2) * BLOCK
    row = pixel // WIDE_X
    column = pixel % WIDE_X
    # The last place that may reach the pixel does so by the least of its taps; the places before it, by taps that are
    # STRIDE further on each.
    top = tl.minimum(row // STRIDE, TALL - 1)
    left = tl.minimum(column // STRIDE, WIDE - 1)
    tap_y = row - top * STRIDE
    tap_x = column - left * STRIDE
    tall = tl.minimum((SIDE - 1 - tap_y) // STRIDE, top) + 1
    wide = tl.minimum((SIDE - 1 - tap_x) // STRIDE, left) + 1
    seen = (tap_y < SIDE) & (tap_x < SIDE)
    tall = tl.where(seen, tall, 0)
    wide = tl.where(seen, wide, 1)  # not 0: it divides, and a pipelined loop may do that before it is asked to
    a_tap: tl.constexpr = N // STEP
    acc = tl.zeros([IMAGES, BLOCK], tl.float32)
    for i in tl.range(0, tall * wide * a_tap, num_stages=STAGES):
        down = i // a_tap // wide
        across = i // a_tap % wide
        n = i % a_tap * STEP
        place = (top - down) * WIDE + left - across
        tap = (tap_y + down * STRIDE) * SIDE + tap_x + across * STRIDE
        acc = tl.dot(g.load([b, place * N + n]), w.load([n, tap * C + c]), acc)
    rows = b + tl.arange(0, IMAGES)
    columns = c + tl.arange(0, BLOCK)
    at = rows[:, None] * (PIXELS * C) + pixel * C + columns[None, :]
    tl.store(dx + at, acc.to(dx.dtype.element_ty), mask=(rows < B)[:, None])


@triton.jit(do_not_specialize=["blocks"])
def _of_weight(
    g,  # descriptor of [B, PLACES * N], in blocks [STEP, OUTPUTS]
    x,  # descriptor of [B, WIDE_X rows of pixels * C], in blocks [STEP, INPUTS]
    out,  # dW [N, SIDE * SIDE, C] float32, or of a sum in several parts [PARTS, N, SIDE * SIDE, C], for `_added`
    blocks,  # of STEP images
    C: tl.constexpr,
    N: tl.constexpr,
    WIDE_X: tl.constexpr,
    WIDE: tl.constexpr,
    PLACES: tl.constexpr,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    PARTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    STEP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One part of the gradient of outputs and inputs at a tap. Grid: SIDE * SIDE * PARTS, outputs, inputs."""
    tap = tl.program_id(0) % (SIDE * SIDE)
    part = tl.program_id(0) // (SIDE * SIDE)
    n = tl.program_id(1) * OUTPUTS
    c = tl.program_id(2) * INPUTS
    tap_at = tap // SIDE * WIDE_X + tap % SIDE
    steps = PLACES * blocks
    acc = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    for i in tl.range(part * steps // PARTS, (part + 1) * steps // PARTS, num_stages=STAGES):
        place = i // blocks
        b = i % blocks * STEP
        at = (place // WIDE * WIDE_X + place % WIDE) * STRIDE + tap_at
        acc = tl.dot(g.load([b, place * N + n]).T, x.load([b, at * C + c]), acc)
    rows = part * N + n + tl.arange(0, OUTPUTS)
    columns = c + tl.arange(0, INPUTS)
    tl.store(out + rows[:, None] * (SIDE * SIDE * C) + tap * C + columns[None, :], acc)


@triton.jit(do_not_specialize=["rows", "each"])
def _sums_of_rows(
    x,  # [rows, N]
    out,  # [programs, N] float32
    rows,
    each,  # rows of a program
    N: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums of blocks of rows. Grid: blocks of `each` rows, columns."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(0) * each
    last = tl.minimum(first + each, rows)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for row in range(first, last, ROWS):
        at = row + tl.arange(0, ROWS)
        acc += tl.load(x + at[:, None] * N + columns[None, :], mask=(at < last)[:, None], other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(0) * N + columns, tl.sum(acc, 0))
