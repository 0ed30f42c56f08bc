"""Self-attention over the votes."""

from __future__ import annotations

import math

from torch import Tensor

from capsbench.routing.parameters import Parameter, trained
from capsbench.routing.passes import inner_product, inputs_last, normalise, record, weighted_sum
from capsbench.routing.squash import length
from capsbench.routing.squash import squash as squash_vectors
from capsbench.routing.types import Pass, Routed


@trained(prior=Parameter(("inputs", "outputs")))
def self_attention(
    votes: Tensor,
    iterations: int = 1,
    *,
    average: bool = False,
    squash: str = "exp",
    prior: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """Self-attention: a vote is coupled by its agreement with the sum of all votes for the same output.

    Source: Mazzia, Salvetti and Chiaberge 2021 (Efficient-CapsNet).

    c_ij = softmax over the outputs of <u_hat_ij, sum_k u_hat_kj> / sqrt(D), plus `prior` [I, J] after the softmax (as
    published, so couplings need not sum to 1); v_j = squash(sum_i c_ij u_hat_ij), of length 1-e^-n by default.
    Published for 16 inputs. `average` takes the mean over k instead of the sum, an adaptation of this project: over
    1152 inputs its b_ij are so small that the softmax is uniform. `iterations` is accepted and ignored.
    """
    u_hat = inputs_last(votes)  # [B, J, D, I]
    _, _, dim, inputs = u_hat.shape
    total = u_hat.sum(-1) / (math.sqrt(dim) * (inputs if average else 1))  # [B, J, D]
    b = inner_product(u_hat, total)  # [B, J, I]
    c = normalise(b)  # [B, J, I]
    if prior is not None:
        c = c + prior.t()
    v = squash_vectors(weighted_sum(c, u_hat), kind=squash)  # [B, J, D]
    passes: list[Pass] = []
    if trace:
        record(passes, b, c, v)
    return Routed(v, c.transpose(1, 2), length(v), tuple(passes) if trace else None)
