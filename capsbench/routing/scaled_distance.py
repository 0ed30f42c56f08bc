"""Routing by scaled distances."""

from __future__ import annotations

import math

from torch import Tensor

from capsbench.routing.parameters import Parameter, trained
from capsbench.routing.passes import agree, inputs_last
from capsbench.routing.squash import length
from capsbench.routing.squash import squash as squash_vectors
from capsbench.routing.types import Routed


@trained(bias=Parameter(("outputs", "dim")))
def scaled_distance(
    votes: Tensor,
    iterations: int = 3,
    *,
    children: Tensor | None = None,
    squash: str = "hinton",
    bias: Tensor | None = None,
    detach_inner: bool = False,
    trace: bool = False,
) -> Routed:
    """Scaled-distance agreement: a vote at half the mean distance from a pose is coupled to it with 0.9.

    Source: Peer, Stabinger and Rodriguez-Sanchez, gamma-capsules.

    votes [B, I, J, D], children [B, I, d]. Votes are first shortened to at most the length of their capsule,
    |u_hat_ij| <= |u_i| (skipped without `children`). One pass: c = softmax(b); s_j = sum_i c_ij u_hat_ij + bias_j;
    v_j = squash(s_j); d_ij = |v_j - u_hat_ij|; b_ij = t d_ij with t = (ln(0.9 (J-1)) - ln 0.1) / (d_p - d_o),
    d_p = 0.5 d_o, and d_o the mean of d_ij over i and j within one image (the published code takes it over the batch
    as well, which makes an image's result depend on its neighbours). A single output leaves nothing to decide: t = 0.
    `bias` [J, D] begins at 0, that code's at 0.1.
    """
    u_hat = inputs_last(votes)  # [B, J, D, I]
    outputs = u_hat.shape[1]
    if children is not None:
        allowed = length(children)[:, None, None, :]  # |u_i|, [B, 1, 1, I]
        u_hat = u_hat * (allowed / length(u_hat, dim=2, keepdim=True).maximum(allowed).clamp_min(1e-12))
    # t = gain / (0.5 d_o - d_o); the gain makes softmax give 0.9 to one output at d_p against J-1 at d_o
    gain = math.log(0.9 * (outputs - 1)) - math.log(0.1) if outputs > 1 else 0.0

    def agreement(u_hat: Tensor, s: Tensor, v: Tensor) -> Tensor:
        d = length(u_hat - v.unsqueeze(-1), dim=2)  # [B, J, I]
        d_o = d.mean((1, 2), keepdim=True)  # [B, 1, 1]
        return d * (gain / (-0.5 * d_o.clamp_min(1e-12)))

    return agree(
        u_hat,
        iterations,
        agreement=agreement,
        activate=lambda s: squash_vectors(s, kind=squash),
        accumulate=False,
        bias=bias,
        detach_inner=detach_inner,
        trace=trace,
    )
