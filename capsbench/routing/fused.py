"""Fused routing on a GPU: the passes of routing by agreement without votes in memory.

With zero initial logits the logits of every pass are inner products of the votes with one vector an output: b_ij =
<u_hat_ij, V_j>, where V_j is the sum of the v_j so far (dynamic), the last one (replace) or o_j/|o_j| (kmeans). So a
pass is one call of `routed_sum`, which makes every vote from u and W where it is used and keeps none, forward or
backward (`kernels`, in Triton); all else are [B, J, D] tensors and ordinary autograd. The plain way (`passes.agree`) is
the reference: equal up to rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsbench.errors import RoutingError
from capsbench.routing.passes import coupling_of_zero_logits
from capsbench.routing.squash import length
from capsbench.routing.squash import squash as squash_vectors
from capsbench.routing.types import Routed

Algorithm = TypeVar("Algorithm", bound=Callable[..., Any])
Toward = Callable[[Tensor, Tensor], Tensor]  # of s and v [B, J, D]: what the next logits are inner products with


class Fused(NamedTuple):
    """How an algorithm goes by `routed_sum`; its other choices are the keywords of its own signature."""

    toward: Callable[[Mapping[str, Any]], Toward]  # of the algorithm's options
    accumulate: bool
    normaliser: str | None  # None: an option of the algorithm
    passes: int | None  # None: as many as asked for


def fusible(
    toward: Callable[[Mapping[str, Any]], Toward],
    *,
    accumulate: bool,
    normaliser: str | None = None,
    passes: int | None = None,
) -> Callable[[Algorithm], Algorithm]:
    """Mark an algorithm that can go by `routed_sum`, and say how (see `Fused`)."""

    def mark(algorithm: Algorithm) -> Algorithm:
        algorithm.fused = Fused(toward, accumulate, normaliser, passes)  # type: ignore[attr-defined]
        return algorithm

    return mark


def pose(options: Mapping[str, Any]) -> Toward:
    """Agreement with v_j itself."""
    return lambda s, v: v


def can_fuse(algorithm: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    """Whether an algorithm with these options (trained parameters included) can be fused: zero initial logits, softmax
    or leaky, gradient through all passes.
    """
    how: Fused | None = getattr(algorithm, "fused", None)
    return (
        how is not None
        and options.get("prior") is None
        and not options.get("detach_inner")
        and (how.normaliser or options.get("normaliser", "softmax")) in ("softmax", "leaky")
    )


def runs(u: Tensor, weight: Tensor) -> bool:
    """Whether the kernels take u [B, I, d] and W [I, J, d, D] where these lie. False where there is no Triton."""
    try:
        from capsbench.routing import kernels
    except ImportError:
        return False
    return kernels.runs_on(u.device) and kernels.fits(u, weight)


def route_fused(
    algorithm: Callable[..., Any], u: Tensor, weight: Tensor, iterations: int | None, options: Mapping[str, Any]
) -> Routed:
    """What `algorithm` makes of the votes W_ij u_i of u [B, I, d] and W [I, J, d, D] float32, without the votes.

    The couplings carry no gradient. Raises RoutingError where `can_fuse` says no, and as the algorithm does.
    """
    if not can_fuse(algorithm, options):
        raise RoutingError("it cannot be fused with these options.")
    how: Fused = algorithm.fused  # type: ignore[attr-defined]
    given = _with_defaults(algorithm, iterations, options)
    toward = how.toward(given)
    leaky = (how.normaliser or given.get("normaliser", "softmax")) == "leaky"
    last = (how.passes or given["iterations"]) - 1
    u = u.contiguous()
    V = None
    for t in range(last + 1):
        s, c = routed_sum(u, weight, V, leaky)  # [B, J, D], [B, I, J]
        if given["bias"] is not None:
            s = s + given["bias"]
        v = squash_vectors(s, kind=given["squash"])
        if t < last:
            new = toward(s, v)
            V = V + new if how.accumulate and V is not None else new
    return Routed(v, c, length(v))


def routed_sum(u: Tensor, weight: Tensor, V: Tensor | None, leaky: bool = False) -> tuple[Tensor, Tensor]:
    """s_j = sum_i c_ij u_hat_ij with c_ij = softmax_j <u_hat_ij, V_j> and u_hat_ij = W_ij u_i.

    u [B, I, d] contiguous, weight [I, J, d, D] dense, V [B, J, D], all float32; V None is zero, where a product of
    matrices does. `leaky`: one more logit, always zero. Returns s [B, J, D] and c [B, I, J], which is not
    differentiable.
    """
    if V is not None:
        s, c = _RoutedSum.apply(u, weight, V, leaky)
        return s, c
    outputs = weight.shape[1]
    share = coupling_of_zero_logits("leaky" if leaky else "softmax", outputs)
    s = _UniformSum.apply(u, weight, share)
    return s, u.new_full((1,), share).expand(*u.shape[:2], outputs)


class _UniformSum(torch.autograd.Function):
    """`routed_sum` where every coupling is `share`. Autograd's own way would keep W a second time, laid out anew."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, share: float) -> Tensor:
        ctx.save_for_backward(u, weight)
        ctx.share = share
        return torch.einsum("bid,ijde->bje", u, weight) * share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_s: Tensor) -> tuple[Tensor, Tensor, None]:
        u, weight = ctx.saved_tensors
        of_s = of_s * ctx.share
        return torch.einsum("bje,ijde->bid", of_s, weight), torch.einsum("bid,bje->ijde", u, of_s), None


class _RoutedSum(torch.autograd.Function):
    """`routed_sum` at some V; what is kept for the gradient are the arguments."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, V: Tensor, leaky: bool) -> tuple[Tensor, Tensor]:
        from capsbench.routing import kernels

        V = V.contiguous()
        s, c = kernels.weighted_sums(u, weight, V, leaky)
        ctx.save_for_backward(u, weight, V)
        ctx.leaky = leaky
        ctx.mark_non_differentiable(c)
        return s, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_s: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        from capsbench.routing import kernels

        u, weight, V = ctx.saved_tensors
        of_s = of_s.contiguous()
        of_u = of_weight = of_V = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            of_u, of_weight = kernels.gradient_of_u_and_W(u, weight, V, of_s, ctx.leaky)
        if ctx.needs_input_grad[2]:
            of_V = kernels.gradient_of_V(u, weight, V, of_s, ctx.leaky)
        return of_u, of_weight, of_V, None


def _with_defaults(algorithm: Callable[..., Any], iterations: int | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of an algorithm: those given, else the defaults of its signature."""
    asked = {} if iterations is None else {"iterations": iterations}
    bound = inspect.signature(algorithm).bind(None, **asked, **options)
    bound.apply_defaults()
    return bound.arguments
