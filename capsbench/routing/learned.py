"""Couplings learned like any other weight."""

from __future__ import annotations

from torch import Tensor

from capsbench.routing.dynamic import dynamic
from capsbench.routing.parameters import BIAS, Parameter, trained
from capsbench.routing.types import Routed


@trained(prior=Parameter(("inputs", "outputs")), bias=BIAS)
def learned(
    votes: Tensor,
    iterations: int = 1,
    *,
    squash: str = "hinton",
    normaliser: str = "softmax",
    prior: Tensor | None = None,
    bias: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """Couplings trained by back-propagation: c = softmax over the outputs of a weight B_ij, the same for every image.

    Source: control (the open question whether routing beats learning the couplings).

    `prior` [I, J] is B, zeros (uniform couplings) without it: this is one pass of `dynamic` from a learned prior.
    `iterations` is accepted and ignored. Where each pair has its own W_ij the couplings are absorbed by it.
    """
    return dynamic(votes, 1, squash=squash, normaliser=normaliser, prior=prior, bias=bias, trace=trace)
