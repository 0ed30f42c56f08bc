"""Fused routing: the passes of routing by agreement without votes in memory.

With zero initial logits the logits of every pass are inner products of the votes with one vector an output: b_ij =
<u_hat_ij, V_j>, where V_j is the sum of the v_j so far (dynamic), the last one (replace) or o_j/|o_j| (kmeans). So a
pass is one call of `routed_sum`, which makes every vote from u and W where it is used and keeps none, forward or
backward (`kernels`, in Triton; on a CPU `cpu_kernels`, in C); all else are [B, J, D] tensors and ordinary autograd. The
plain way (`passes.agree`) is the reference: equal up to rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsbench.errors import RoutingError
from capsbench.routing import cpu_fused
from capsbench.routing.passes import coupling_of_zero_logits
from capsbench.routing.squash import length, squash
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
    """Whether the kernels take u [B, I, d] and W [I, J, d, D] where these lie.

    False where there is no Triton or, on a CPU, no compiler.
    """
    if u.device.type == "cpu" and cpu_fused.fits(u, weight):
        return True
    try:
        from capsbench.routing import launch
    except ImportError:
        return False
    return launch.runs_on(u.device) and launch.fits(u, weight)


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
    V = c = None
    for t in range(last + 1):
        s, c, u, weight = routed_sum(u, weight, V, leaky, keep=t == last)  # [B, J, D], [B, I, J] of the last pass
        if given["bias"] is not None:
            s = s + given["bias"]
        v = fused_squash(s, given["squash"])
        if t < last:
            new = toward(s, v)
            V = V + new if how.accumulate and V is not None else new
    assert c is not None
    return Routed(v, c, fused_length(v))


def fused_squash(s: Tensor, kind: str = "hinton") -> Tensor:
    """`squash` of vectors [..., D] by one kernel each way where there is one; else the plain way."""
    if s.device.type == "cpu" and cpu_fused.squashes(s, kind):
        return cpu_fused.squash(s, kind)
    kernels = _vector_kernels(s)
    if kernels is None or kind not in kernels.KINDS:
        return squash(s, kind=kind)
    vectors: Tensor = _Squash.apply(s.contiguous(), kind)
    return vectors


def fused_length(v: Tensor) -> Tensor:
    """Lengths [...] of vectors [..., D], as `fused_squash`."""
    if _vector_kernels(v) is None:
        return length(v)
    lengths: Tensor = _Length.apply(v.contiguous())
    return lengths


def routed_sum(
    u: Tensor, weight: Tensor, V: Tensor | None, leaky: bool = False, keep: bool = True
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """s_j = sum_i c_ij u_hat_ij with c_ij = softmax_j <u_hat_ij, V_j> and u_hat_ij = W_ij u_i.

    u [B, I, d], weight [I, J, d, D], V [B, J, D], all float32; V None is zero, where a product of matrices does.
    `leaky`: one more logit, always zero. Returns s [B, J, D]; c [B, I, J], which is not differentiable, or None unless
    `keep`; and u and weight, for the next sum and nothing else: each sum adds its gradient to that of the sums after
    it, in place, where autograd would hold one of every pass.
    """
    u, weight = u.contiguous(), weight.contiguous()
    if V is not None:
        if u.device.type == "cpu" and cpu_fused.fits(u, weight):
            return cpu_fused.routed_sum(u, weight, V.contiguous(), leaky, keep)
        s, c, u, weight = _RoutedSum.apply(u, weight, V.contiguous(), leaky, keep)
        return s, c, u, weight
    batch, (inputs, outputs, _, _) = len(u), weight.shape
    share = coupling_of_zero_logits("leaky" if leaky else "softmax", outputs)
    s, u, weight = _UniformSum.apply(u, weight, share)
    return s, u.new_full((1,), share).expand(batch, inputs, outputs) if keep else None, u, weight


class _UniformSum(torch.autograd.Function):
    """`routed_sum` where every coupling is `share`. Autograd's own way would keep W a second time, laid out anew."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(u, weight)
        ctx.set_materialize_grads(False)
        ctx.share = share
        return torch.einsum("bid,ijde->bje", u, weight) * share, u, weight

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_s: Tensor | None, of_u: Tensor | None, of_weight: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        u, weight = ctx.saved_tensors
        if of_s is not None:
            of_s = of_s * ctx.share
            of_u = _added(of_u, torch.einsum("bje,ijde->bid", of_s, weight))
            of_weight = _added(of_weight, torch.einsum("bid,bje->ijde", u, of_s))
        return of_u, of_weight, None


class _RoutedSum(torch.autograd.Function):
    """`routed_sum` at some V; what is kept for the gradient are the arguments."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, weight: Tensor, V: Tensor, leaky: bool, keep: bool
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        from capsbench.routing import launch

        s, c = launch.weighted_sums(u, weight, V, leaky, keep)
        ctx.save_for_backward(u, weight, V)
        ctx.set_materialize_grads(False)
        ctx.leaky = leaky
        if c is not None:
            ctx.mark_non_differentiable(c)
        return s, c, u, weight

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_s: Tensor | None, _: Tensor | None, of_u: Tensor | None, of_weight: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        from capsbench.routing import launch

        u, weight, V = ctx.saved_tensors
        of_V = None
        if of_s is not None:
            of_u = torch.zeros_like(u) if of_u is None else of_u
            of_weight = torch.zeros_like(weight) if of_weight is None else of_weight
            of_V = launch.gradients(u, weight, V, of_s.contiguous(), ctx.leaky, of_u, of_weight)
        return of_u, of_weight, of_V, None, None


class _Squash(torch.autograd.Function):
    """`vector_kernels.squash` and its gradient; what is kept for it are the vectors."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, kind: str) -> Tensor:
        from capsbench.routing import vector_kernels

        ctx.save_for_backward(s)
        ctx.kind = kind
        return vector_kernels.squash(s, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_v: Tensor) -> tuple[Tensor, None]:
        from capsbench.routing import vector_kernels

        (s,) = ctx.saved_tensors
        return vector_kernels.squash(s, ctx.kind, of_v.contiguous()), None


class _Length(torch.autograd.Function):
    """`vector_kernels.length` and its gradient; what is kept for it are the vectors."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        from capsbench.routing import vector_kernels

        ctx.save_for_backward(v)
        return vector_kernels.length(v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_n: Tensor) -> Tensor:
        from capsbench.routing import vector_kernels

        (v,) = ctx.saved_tensors
        return vector_kernels.length(v, of_n.contiguous())


def _vector_kernels(x: Tensor) -> ModuleType | None:
    """The kernels for vectors, if they take these; None too where there is no Triton."""
    try:
        from capsbench.routing import launch, vector_kernels
    except ImportError:
        return None
    return vector_kernels if launch.runs_on(x.device) and vector_kernels.fits(x) else None


def _added(later: Tensor | None, ours: Tensor) -> Tensor:
    """Our gradient, added in place to that of the sums after ours where there is one."""
    return ours.contiguous() if later is None else later.add_(ours)


def _with_defaults(algorithm: Callable[..., Any], iterations: int | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of an algorithm: those given, else the defaults of its signature."""
    asked = {} if iterations is None else {"iterations": iterations}
    bound = inspect.signature(algorithm).bind(None, **asked, **options)
    bound.apply_defaults()
    return bound.arguments
