"""Self-routing: each capsule decides alone."""

from __future__ import annotations

import torch
from torch import Tensor

from capsbench.errors import RoutingError
from capsbench.routing.parameters import Parameter, trained
from capsbench.routing.passes import inputs_last, normalise, record, weighted_sum
from capsbench.routing.squash import length
from capsbench.routing.types import Pass, Routed


@trained(
    gate_weight=Parameter(("inputs", "outputs", "child_dim")),
    gate_bias=Parameter(("inputs", "outputs")),
)
def self_routing(
    votes: Tensor,
    iterations: int = 1,
    *,
    children: Tensor | None = None,
    gate_weight: Tensor | None = None,
    gate_bias: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """Self-routing: a trained gate of each lower capsule decides where it goes, without agreement.

    Source: Hahn, Pyeon and Kim 2019. Their lower capsules have activations of their own, a convolution with batch
    normalisation and a sigmoid; here, as in every row, the length of a lower capsule says how active it is.

    votes [B, I, J, D], children [B, I, d]. c_i = softmax over the outputs of W_i u_i + b_i (`gate_weight` [I, J, d],
    `gate_bias` [I, J]; zeros without them, as published at the start). With a_i = |u_i| the score is
    a_j = sum_i c_ij a_i / sum_i a_i, which sums to 1 over the outputs, for the negative log-likelihood of log a_j; the
    pose is the mean of the votes weighted by c_ij a_i, not squashed. `iterations` is accepted and ignored.
    Raises RoutingError without children.
    """
    if children is None:
        raise RoutingError("it gates the lower capsules, so it needs them: give children=[B, I, d].")
    u_hat = inputs_last(votes)  # [B, J, D, I]
    b = u_hat.new_zeros(u_hat.shape[0], u_hat.shape[1], u_hat.shape[3])  # [B, J, I]
    if gate_weight is not None:
        b = b + torch.einsum("bid,ijd->bji", children, gate_weight)
    if gate_bias is not None:
        b = b + gate_bias.t()
    c = normalise(b)  # [B, J, I]
    a = length(children).clamp_min(1e-12).unsqueeze(1)  # [B, 1, I]; all capsules silent: all count alike
    a_out = (c * a).sum(-1) / a.sum(-1)  # [B, J]
    v = weighted_sum(c * a, u_hat) / (c * a).sum(-1, keepdim=True).clamp_min(1e-30)  # [B, J, D]
    passes: list[Pass] = []
    if trace:
        record(passes, b, c, v)
    return Routed(v, c.transpose(1, 2), a_out, tuple(passes) if trace else None)
