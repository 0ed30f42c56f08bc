"""Routing as soft k-means on directions."""

from __future__ import annotations

from torch import Tensor

from capsbench.routing.fused import fusible
from capsbench.routing.optimised import direction, optimised
from capsbench.routing.parameters import BIAS, PRIOR, trained
from capsbench.routing.types import Routed


@fusible(direction, accumulate=False)
@trained(bias=BIAS, prior=PRIOR)
def kmeans(
    votes: Tensor,
    iterations: int = 3,
    *,
    squash: str = "half",
    normaliser: str = "softmax",
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    detach_inner: bool = False,
    trace: bool = False,
) -> Routed:
    """Soft k-means: logits are the votes' projections on the unit vector of each cluster, squashed once at the end.

    Source: Su 2018, code of the two-digit test.

    One pass: c = softmax(b); o_j = sum_i c_ij u_hat_ij (+ bias); b_ij = prior_ij + <u_hat_ij, o_j/|o_j|>; at the end
    v_j = squash(o_j), by default of length n^2/(0.5+n^2). This is `optimised` at alpha = 1.
    """
    return optimised(
        votes,
        iterations,
        alpha=1.0,
        squash=squash,
        normaliser=normaliser,
        bias=bias,
        prior=prior,
        detach_inner=detach_inner,
        trace=trace,
    )
