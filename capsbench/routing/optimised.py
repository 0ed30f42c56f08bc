"""Routing as an optimisation with an entropy term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from capsbench.errors import RoutingError
from capsbench.routing.fused import Toward, fusible
from capsbench.routing.parameters import BIAS, PRIOR, trained
from capsbench.routing.passes import agree, inner_product, inputs_last
from capsbench.routing.squash import squash as squash_vectors
from capsbench.routing.types import Routed


def direction(options: Mapping[str, Any]) -> Toward:
    """Agreement with s_j/|s_j| / alpha. Raises RoutingError unless alpha > 0."""
    alpha = options.get("alpha", 1.0)
    _check_alpha(alpha)
    return lambda s, v: F.normalize(s, dim=-1) / alpha


@fusible(direction, accumulate=False)
@trained(bias=BIAS, prior=PRIOR)
def optimised(
    votes: Tensor,
    iterations: int = 3,
    *,
    alpha: float = 1.0,
    squash: str = "half",
    normaliser: str = "softmax",
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    detach_inner: bool = False,
    trace: bool = False,
) -> Routed:
    """Routing as KL-regularised clustering: a small alpha makes the couplings hard, a large one uniform.

    Source: the update of the couplings is that of Wang and Liu 2018. Their scaling of W and of the outputs is not
    followed: W is as in every row, and the squash, by default, Su's.

    One pass: c = softmax(b); s_j = sum_i c_ij u_hat_ij (+ bias); b_ij = prior_ij + <u_hat_ij, s_j/|s_j|> / alpha.
    The squash is applied once, to the last pass's s. alpha = 1 is `kmeans`. Raises RoutingError unless alpha > 0.
    """
    _check_alpha(alpha)
    return agree(
        inputs_last(votes),
        iterations,
        agreement=lambda u_hat, s, v: inner_product(u_hat, F.normalize(s, dim=-1)) / alpha,
        activate=lambda s: squash_vectors(s, kind=squash),  # only the last pass's v is used
        accumulate=False,
        normaliser=normaliser,
        bias=bias,
        prior=prior,
        detach_inner=detach_inner,
        trace=trace,
    )


def _check_alpha(alpha: object) -> None:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not alpha > 0:
        raise RoutingError(f"alpha must be a number above 0, not {alpha!r}.")
