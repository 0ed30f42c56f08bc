"""Squash: a vector keeps its direction, its length goes to [0, 1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from capsbench.errors import RoutingError, nearest

# |squash(s)| / |s| as a function of n = |s|, each finite at n -> 0 where it tends to n (hinton), 2n (half) or 1.
_FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "hinton": lambda n: n / (1 + n * n),  # |v| = n^2 / (1 + n^2), Sabour 2017 eq. 1
    "half": lambda n: n / (0.5 + n * n),  # |v| = n^2 / (0.5 + n^2), Su 2018
    "exp": lambda n: -torch.expm1(-n) / n,  # |v| = 1 - e^-n, Efficient-CapsNet 2021
    "tanh": lambda n: torch.tanh(n) / n,  # |v| = tanh n
    "ratio": lambda n: 1 / (1 + n),  # |v| = n / (1 + n)
}
SQUASH_KINDS = (*_FACTORS, "none")

SMALL, LARGE = 1e-30, 1e15  # n and 1/n, n^2 and 1/n^2 stay inside float32's (and bfloat16's) range between these
TINY = 1e-37  # about the smallest number whose inverse is finite there


def squash(s: Tensor, dim: int = -1, kind: str = "hinton") -> Tensor:
    """`s` with its vectors along `dim` shortened to a length below 1, direction kept.

    `kind` is the length as a function of n = |s|: `hinton` n^2/(1+n^2) (Sabour 2017, eq. 1), `half` n^2/(0.5+n^2),
    `exp` 1-e^-n, `tanh`, `ratio` n/(1+n); `none` returns `s` itself (hidden layers). Value and gradient are finite
    for every finite `s`, zero included. The dtype is kept; half precisions are computed in float32.
    Raises RoutingError for a kind that is not known.
    """
    check_squash(kind)
    if kind == "none":
        return s
    x = at_least_float32(s)
    n = length(x, dim=dim, keepdim=True)
    # Beyond LARGE every kind has length 1 to the last bit, so the factor goes on as 1/n without forming n^2.
    factor = _FACTORS[kind](n.clamp(SMALL, LARGE)) * (LARGE / n.clamp_min(LARGE))
    return (x * factor).to(s.dtype)


def check_squash(kind: str) -> None:
    """Raise RoutingError unless `kind` is one of `SQUASH_KINDS`."""
    if kind not in SQUASH_KINDS:
        raise RoutingError(f"squash kind {kind!r} is not known{nearest(kind, SQUASH_KINDS)}")


def length(v: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Euclidean length along `dim`, without overflow or underflow; its gradient at a zero vector is zero."""
    # |v| = m |v/m| for any m; with the largest entry as m, held constant, the squares stay in range and add up to at
    # least 1 unless v is zero. vector_norm would do, but takes ten times as long along any but the last dimension.
    x = at_least_float32(v)
    m = x.detach().abs().amax(dim, keepdim=True)
    n = m * (x / m.clamp_min(TINY)).square().sum(dim, keepdim=True).clamp_min(0.5).sqrt()
    return (n if keepdim else n.squeeze(dim)).to(v.dtype)


def at_least_float32(x: Tensor) -> Tensor:
    """`x`, half precisions raised to float32."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
