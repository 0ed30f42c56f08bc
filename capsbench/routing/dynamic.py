"""Dynamic routing, the paper's."""

from __future__ import annotations

from torch import Tensor

from capsbench.routing.by_hand import route_by_hand, takes_all
from capsbench.routing.fused import fusible, pose
from capsbench.routing.parameters import BIAS, PRIOR, trained
from capsbench.routing.passes import agree, inner_product, inputs_last
from capsbench.routing.squash import check_squash, length
from capsbench.routing.squash import squash as squash_vectors
from capsbench.routing.types import Routed


@takes_all
@fusible(pose, accumulate=True)
@trained(bias=BIAS, prior=PRIOR)
def dynamic(
    votes: Tensor,
    iterations: int = 3,
    *,
    squash: str = "hinton",
    normaliser: str = "softmax",
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    detach_inner: bool = False,
    trace: bool = False,
) -> Routed:
    """Dynamic routing: the logits add up the agreement of each vote with the pose.

    Source: Sabour, Frosst and Hinton 2017, procedure 1.

    votes [B, I, J, D]. One pass: c = softmax over the output capsules of b; s_j = sum_i c_ij u_hat_ij (+ bias [J, D]);
    v_j = squash(s_j); b_ij += <u_hat_ij, v_j>. `prior` [I, J]: initial logits instead of zeros. `normaliser`: see
    `passes.normalise`. `detach_inner`: gradient through the last pass only. On a CPU the common case goes by
    products of matrices and a gradient written out (`by_hand`): the same up to rounding.
    """
    common = normaliser == "softmax" and prior is None and not (detach_inner or trace)
    if common and votes.device.type == "cpu" and votes.numel():
        check_squash(squash)
        poses, couplings = route_by_hand(votes, iterations, squash, bias)
        return Routed(poses, couplings, length(poses))
    return agree(
        inputs_last(votes),
        iterations,
        agreement=lambda u_hat, s, v: inner_product(u_hat, v),
        activate=lambda s: squash_vectors(s, kind=squash),
        accumulate=True,
        normaliser=normaliser,
        bias=bias,
        prior=prior,
        detach_inner=detach_inner,
        trace=trace,
    )
