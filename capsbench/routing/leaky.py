"""Dynamic routing with somewhere else to go."""

from __future__ import annotations

from torch import Tensor

from capsbench.routing.dynamic import dynamic
from capsbench.routing.fused import fusible, pose
from capsbench.routing.parameters import BIAS, PRIOR, trained
from capsbench.routing.types import Routed


@fusible(pose, accumulate=True, normaliser="leaky")
@trained(bias=BIAS, prior=PRIOR)
def leaky(
    votes: Tensor,
    iterations: int = 3,
    *,
    squash: str = "hinton",
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    detach_inner: bool = False,
    trace: bool = False,
) -> Routed:
    """Dynamic routing with a leaky softmax: an extra zero logit lets an input capsule go to none of the outputs.

    Source: the code released with Sabour, Frosst and Hinton 2017 (off for MNIST).

    As `dynamic` with `normaliser="leaky"`: the couplings of an input sum to less than 1.
    """
    return dynamic(
        votes,
        iterations,
        squash=squash,
        normaliser="leaky",
        bias=bias,
        prior=prior,
        detach_inner=detach_inner,
        trace=trace,
    )
