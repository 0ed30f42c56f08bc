"""EM routing for 4x4 poses with activations: the matrix capsules' own, outside the vote-level algorithms."""

from __future__ import annotations

from torch import Tensor

from capsbench.errors import RoutingError
from capsbench.routing.em import expectation_maximisation
from capsbench.routing.passes import inputs_last
from capsbench.routing.types import Routed


def em_matrix(
    votes: Tensor,
    activations: Tensor,
    beta_a: Tensor | None = None,
    beta_u: Tensor | None = None,
    iterations: int = 3,
    *,
    trace: bool = False,
) -> Routed:
    """EM routing on matrix capsules: poses are the means of the votes, scores the activations of the outputs.

    Source: Hinton, Sabour and Frosst 2018.

    votes [B, I, J, 16] of 4x4 poses, activations [B, I] in [0, 1], `beta_a`, `beta_u` [J] (zeros without them).
    Returns poses [B, J, 16], couplings [B, I, J], scores [B, J] = a_j; see `em.expectation_maximisation`.
    Raises RoutingError for other shapes.
    """
    if votes.dim() != 4 or votes.shape[3] != 16:
        raise RoutingError(f"routing 'em-matrix': votes must be [B, I, J, 16] (4x4 poses), not {list(votes.shape)}.")
    if activations.shape != votes.shape[:2]:
        raise RoutingError(
            f"routing 'em-matrix': activations must be [B, I] = {list(votes.shape[:2])}, not {list(activations.shape)}."
        )
    if iterations < 1:
        raise RoutingError(f"routing 'em-matrix': iterations must be a whole number, at least 1, not {iterations}.")
    return expectation_maximisation(
        inputs_last(votes),
        activations,
        iterations,
        pose=lambda mu, a: mu,
        beta_a=beta_a,
        beta_u=beta_u,
        trace=trace,
    )
