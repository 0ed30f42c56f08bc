"""Dynamic routing without memory."""

from __future__ import annotations

from torch import Tensor

from capsbench.routing.fused import fusible, pose
from capsbench.routing.parameters import BIAS, PRIOR, trained
from capsbench.routing.passes import agree, inner_product, inputs_last
from capsbench.routing.squash import squash as squash_vectors
from capsbench.routing.types import Routed


@fusible(pose, accumulate=False)
@trained(bias=BIAS, prior=PRIOR)
def replace(
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
    """Dynamic routing whose logits are replaced, not accumulated: couplings stay soft however many passes.

    Source: Su 2018.

    As `dynamic`, but b_ij = prior_ij + <u_hat_ij, v_j> of the last pass alone.
    """
    return agree(
        inputs_last(votes),
        iterations,
        agreement=lambda u_hat, s, v: inner_product(u_hat, v),
        activate=lambda s: squash_vectors(s, kind=squash),
        accumulate=False,
        normaliser=normaliser,
        bias=bias,
        prior=prior,
        detach_inner=detach_inner,
        trace=trace,
    )
