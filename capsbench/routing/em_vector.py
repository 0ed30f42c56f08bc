"""EM routing for vectors."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from capsbench.errors import RoutingError
from capsbench.routing.em import expectation_maximisation
from capsbench.routing.parameters import Parameter, trained
from capsbench.routing.passes import inputs_last
from capsbench.routing.squash import length
from capsbench.routing.types import Routed


@trained(beta_a=Parameter(("outputs",)), beta_u=Parameter(("outputs",)))
def em_vector(
    votes: Tensor,
    iterations: int = 3,
    *,
    children: Tensor | None = None,
    beta_a: Tensor | None = None,
    beta_u: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """EM routing on vector capsules: a Gaussian per output, its activation is the length of the pose.

    Source: after the code of Peer, Stabinger and Rodriguez-Sanchez, who take vectors through the EM of Hinton, Sabour
    and Frosst 2018. Theirs has ln var where Hinton's cost has ln of the deviation, which is half of it, 1e-4 added to
    the variance, a cost that grows with the number of inputs, betas drawn at random, and a bias in the votes. Here the
    cost, its scale and what is added are those of `em.expectation_maximisation`, the betas start where told, and votes
    have no bias.

    votes [B, I, J, D], children [B, I, d]; activations a_i = |u_i|. Poses are a_j mu_j/|mu_j| of
    `em.expectation_maximisation`, scores a_j. `beta_a`, `beta_u` [J]. `beta_a` counts under a lambda of at most 0.0014,
    and Adam moves it by some 10 in a whole training, 0.01 of log-odds: in effect it stays what it is set to (matrix
    capsules learn it in thousands, models/em_capsnet.py). Raises RoutingError without children.
    """
    if children is None:
        raise RoutingError("the length of a lower capsule is its activation: give children=[B, I, d].")
    return expectation_maximisation(
        inputs_last(votes),
        length(children),
        iterations,
        pose=lambda mu, a: a.unsqueeze(-1) * F.normalize(mu, dim=-1),
        beta_a=beta_a,
        beta_u=beta_u,
        trace=trace,
    )
