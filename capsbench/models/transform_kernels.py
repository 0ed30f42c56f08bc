"""The transforms of `real_products` in Triton: from pixels to the frequencies' real products, and back.

A thread has a patch of one channel in its registers and transforms it along the columns, then along the rows, each by
the sums and differences of opposite places: some thousand operations where a product with the matrix takes ten times as
many. It reads pixels where an image, a kernel or an output has them and writes them there, so that nothing is laid out
anew. What is left is reading and writing. All are float32 multiply-adds in a fixed order.

With theta the angle of a frequency and a pixel, `kind` says whose transform it is, and so which three real numbers a
frequency is (`real_products`); X = Re + i Im is the sum of the pixels times e^(-i theta).

    kind      forward, of X                       back, the pixels being Re of the sum of (S + iT) e^(i theta)
    PATCH     Re + Im, Re, Im                     S = D1 + D2         T = D1 + D3
    WEIGHT    Re, -Re - Im, Re - Im               S = D1 - D2 + D3    T = -D2 - D3
    OUTPUT    (Re + Im, Im, -Re) of weighted X    S = D1 - D3         T = D1 + D2, weighted
"""
# mypy: disable-error-code="no-untyped-def, misc, assignment"

from __future__ import annotations

import triton
import triton.language as tl

PATCH, WEIGHT, OUTPUT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _halves(x, given: tl.constexpr, N: tl.constexpr):
    """x_p + x_(N-p) and x_p - x_(N-p) for p = 1, 2, ... below N/2, of `given` numbers and zeros beyond."""
    even, odd = (), ()
    for p in tl.static_range(1, (N + 1) // 2):
        if N - p < given:
            even += (x[p] + x[N - p],)
            odd += (x[p] - x[N - p],)
        elif p < given:
            even += (x[p],)
            odd += (x[p],)
    return even, odd


@triton.jit
def _ends(x, v: tl.constexpr, given: tl.constexpr, N: tl.constexpr):
    """What has no opposite: x_0, and x_(N/2) with the sign that frequency v gives it."""
    total = x[0]
    if N % 2 == 0 and given > N // 2:
        total = x[0] + x[N // 2] * (1 if v % 2 == 0 else -1)
    return total


@triton.jit
def _real_transform(x, given: tl.constexpr, N: tl.constexpr, COS: tl.constexpr, SIN: tl.constexpr):
    """Real, then imaginary parts of frequencies 0 to N/2 of `given` real numbers and zeros beyond."""
    even, odd = _halves(x, given, N)
    real, imaginary = (), ()
    for v in tl.static_range(N // 2 + 1):
        a = _ends(x, v, given, N)
        b = tl.zeros_like(a)
        for p in tl.static_range(1, (N + 1) // 2):
            if p < given:
                a += even[p - 1] * COS[(v * p) % N]
                b -= odd[p - 1] * SIN[(v * p) % N]
        real += (a,)
        imaginary += (b,)
    return real, imaginary


@triton.jit
def _complex_transform(x, y, given: tl.constexpr, N: tl.constexpr, COS: tl.constexpr, SIN: tl.constexpr):
    """Real, then imaginary parts of all N frequencies of `given` complex numbers x + iy and zeros beyond."""
    even_x, odd_x = _halves(x, given, N)
    even_y, odd_y = _halves(y, given, N)
    real, imaginary, real_after, imaginary_after = (), (), (), ()
    for n in tl.static_range(N // 2 + 1):
        a, b = _ends(x, n, given, N), _ends(y, n, given, N)
        c, d = tl.zeros_like(a), tl.zeros_like(b)
        for p in tl.static_range(1, (N + 1) // 2):
            if p < given:
                a += even_x[p - 1] * COS[(n * p) % N]
                b += even_y[p - 1] * COS[(n * p) % N]
                c += odd_x[p - 1] * SIN[(n * p) % N]
                d += odd_y[p - 1] * SIN[(n * p) % N]
        real += (a + d,)
        imaginary += (b - c,)
        if n > 0 and 2 * n < N:  # frequency N - n
            real_after = (a - d,) + real_after  # noqa: RUF005
            imaginary_after = (b + c,) + imaginary_after  # noqa: RUF005
    return real + real_after, imaginary + imaginary_after


@triton.jit
def _real_sum(S, T, N: tl.constexpr, COS: tl.constexpr, SIN: tl.constexpr):
    """Re of the sum over frequencies v from 0 to N/2 of (S + iT)_v e^(i 2 pi v p / N), for all N places p."""
    first, last = (), ()
    for p in tl.static_range(N // 2 + 1):
        a = _ends(S, p, N, N)
        b = tl.zeros_like(a)
        for v in tl.static_range(1, (N + 1) // 2):
            a += S[v] * COS[(v * p) % N]
            b += T[v] * SIN[(v * p) % N]
        first += (a - b,)
        if p > 0 and 2 * p < N:  # place N - p
            last = (a + b,) + last  # noqa: RUF005
    return first + last


@triton.jit
def _write(at, a, b, here, one, pair, own: tl.constexpr, kind: tl.constexpr, weight: tl.constexpr):
    """Write a frequency's number, or its three; `one` and `pair` say where the first and the others lie."""
    if own:
        tl.store(at + one, a * weight if kind == OUTPUT else a, mask=here)
    else:
        if kind == PATCH:
            k1, k2, k3 = a + b, a, b
        elif kind == WEIGHT:
            k1, k2, k3 = a, -a - b, a - b
        else:
            a, b = a * (2 * weight), b * (2 * weight)
            k1, k2, k3 = a + b, b, -a
        tl.store(at + one, k1, mask=here)
        tl.store(at + pair[0], k2, mask=here)
        tl.store(at + pair[1], k3, mask=here)


@triton.jit
def _read(at, here, one, pair, own: tl.constexpr, kind: tl.constexpr, weight: tl.constexpr):
    """S and T of a frequency from its number, or its three."""
    D1 = tl.load(at + one, mask=here, other=0.0)
    if own:
        S, T = D1 * weight if kind == OUTPUT else D1, tl.zeros_like(D1)
    else:
        D2 = tl.load(at + pair[0], mask=here, other=0.0)
        D3 = tl.load(at + pair[1], mask=here, other=0.0)
        if kind == PATCH:
            S, T = D1 + D2, D1 + D3
        elif kind == WEIGHT:
            S, T = D1 - D2 + D3, -D2 - D3
        else:
            S, T = (D1 - D3) * (2 * weight), (D1 + D2) * (2 * weight)
    return S, T


@triton.jit
def _places(C, blocks, down, across, step, stride: tl.constexpr, CHANNELS: tl.constexpr):
    """Image, first row and column of a program's patch; its channels, those of its phase, and which are there."""
    patch, tiles = tl.program_id(0), down * across
    image, tile = patch // tiles, patch % tiles
    phase, block = tl.program_id(1) // blocks, tl.program_id(1) % blocks
    c = block * CHANNELS + tl.arange(0, CHANNELS)
    # of as many numbers as there are channels, though all are equal: else the interpreter cannot join two conditions
    top = (tile // across) * step * stride + phase // stride + 0 * c
    left = (tile % across) * step * stride + phase % stride + 0 * c
    return image, top, left, c, phase * C + c, c < C


@triton.jit
def _where(row: tl.constexpr, column: tl.constexpr, N: tl.constexpr, K):
    """Where a frequency's first number lies among the n of a patch, and where its two others do; rows are up to N/2."""
    ahead: tl.constexpr = N // 2 + 1 if row > 0 else 0  # of row 0 half is kept, of row N/2 too
    alone: tl.constexpr = (N - 1) // 2 if row > 0 else -1  # pairs of row 0; in it column 0 is none
    whole: tl.constexpr = (row - 1) * N if row > 0 else 0
    lone: tl.constexpr = 1 if row > 0 and 2 * row == N else 0  # column 0 of row N/2 is none either
    count: tl.constexpr = (N * N - (1 if N % 2 else 4)) // 2  # pairs
    total: tl.constexpr = count + (1 if N % 2 else 4)
    pair: tl.constexpr = alone + whole + column - lone
    return (ahead + whole + column) * K, ((total + pair) * K, (total + count + pair) * K)


@triton.jit(do_not_specialize=["H", "W", "blocks", "down", "across", "step"])
def _to_frequencies(
    x,  # [images, H, W, C]
    out,  # [patches, n, K]
    H,
    W,
    C,
    blocks,
    down,
    across,
    step,
    stride: tl.constexpr,
    given: tl.constexpr,
    N: tl.constexpr,
    COS: tl.constexpr,
    SIN: tl.constexpr,
    kind: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Transform given x given pixels of every phase of a patch, zeros beside them."""
    image, top, left, c, k, here = _places(C, blocks, down, across, step, stride, CHANNELS)
    K = C * stride * stride
    pixels = x + image * (H * W * C) + c
    real, imaginary = (), ()  # of column q at q
    for q in tl.static_range(given):
        column = ()
        for p in tl.static_range(given):
            row, at = top + p * stride, left + q * stride
            inside = here & (row < H) & (at < W)
            column += (tl.load(pixels + (row * W + at) * C, mask=inside, other=0.0),)
        a, b = _real_transform(column, given, N, COS, SIN)
        real += (a,)
        imaginary += (b,)
    at = out + tl.program_id(0) * ((3 * N * N - (1 if N % 2 else 4)) // 2 * K) + k
    for v in tl.static_range(N // 2 + 1):
        x, y = (), ()
        for q in tl.static_range(given):
            x += (real[q][v],)
            y += (imaginary[q][v],)
        if v == 0 or 2 * v == N:
            a, b = _real_transform(x, given, N, COS, SIN)
            for u in tl.static_range(N // 2 + 1):
                one, pair = _where(v, u, N, K)
                _write(at, a[u], b[u], here, one, pair, u == 0 or 2 * u == N, kind, 1 / (N * N))
        else:
            a, b = _complex_transform(x, y, given, N, COS, SIN)
            for u in tl.static_range(N):
                one, pair = _where(v, u, N, K)
                _write(at, a[u], b[u], here, one, pair, False, kind, 1 / (N * N))


@triton.jit(do_not_specialize=["H", "W", "blocks", "down", "across", "step"])
def _from_frequencies(
    k,  # [patches, n, K]
    out,  # [images, H, W, C]
    H,
    W,
    C,
    blocks,
    down,
    across,
    step,
    stride: tl.constexpr,
    wanted: tl.constexpr,
    N: tl.constexpr,
    COS: tl.constexpr,
    SIN: tl.constexpr,
    kind: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The first wanted x wanted pixels of every phase of a patch again, each where it lies in its image."""
    image, top, left, c, channel, here = _places(C, blocks, down, across, step, stride, CHANNELS)
    K = C * stride * stride
    at = k + tl.program_id(0) * ((3 * N * N - (1 if N % 2 else 4)) // 2 * K) + channel
    real, imaginary = (), ()  # of row v at v: N places along it
    for v in tl.static_range(N // 2 + 1):
        S, T = (), ()
        if v == 0 or 2 * v == N:
            for u in tl.static_range(N // 2 + 1):
                one, pair = _where(v, u, N, K)
                s, t = _read(at, here, one, pair, u == 0 or 2 * u == N, kind, 1 / (N * N))
                S += (s,)
                T += (t,)
            places = _real_sum(S, T, N, COS, SIN)
            real += (places,)
            imaginary += (places,)  # nobody reads it
        else:
            for u in tl.static_range(N):
                one, pair = _where(v, u, N, K)
                s, t = _read(at, here, one, pair, False, kind, 1 / (N * N))
                S += (s,)
                T += (t,)
            b, a = _complex_transform(T, S, N, N, COS, SIN)  # e^(i theta): real and imaginary part change places
            real += (a,)
            imaginary += (b,)
    pixels = out + image * (H * W * C) + c
    for q in tl.static_range(wanted):
        S, T = (), ()
        for v in tl.static_range(N // 2 + 1):
            S += (real[v][q],)
            T += (imaginary[v][q],)
        column = _real_sum(S, T, N, COS, SIN)
        for p in tl.static_range(wanted):
            row, place = top + p * stride, left + q * stride
            tl.store(pixels + (row * W + place) * C, column[p], mask=here & (row < H) & (place < W))
