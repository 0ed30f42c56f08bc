"""Inverted dot-product attention."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from capsbench.routing.parameters import Parameter, trained
from capsbench.routing.passes import inner_product, inputs_last, normalise, record, weighted_sum
from capsbench.routing.squash import length
from capsbench.routing.types import Pass, Routed


@trained(gain=Parameter(("dim",), start=1.0), shift=Parameter(("dim",)), head=Parameter(("dim",)))
def inverted_attention(
    votes: Tensor,
    iterations: int = 2,
    *,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
    head: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """Inverted dot-product attention: the outputs compete for each vote, poses are layer-normalised, not squashed.

    Source: Tsai, Srivastava, Goh and Salakhutdinov 2020. Their lower capsules are layer-normalised as well; here, as in
    every row, they are squashed, and W starts as in every row. The head starts at 0 instead of at random.

    First pass: couplings 1/J, v_j = LN(sum_i u_hat_ij / J); every further one: c = softmax over the outputs of
    <u_hat_ij, v_j> / sqrt(D), v_j = LN(sum_i c_ij u_hat_ij). `gain`, `shift` [D] are LN's (one and zero without them;
    epsilon 1e-5). LN fixes the length, so it says nothing about the class: scores_j = <v_j, head> with `head` [D]
    shared by the outputs, for cross entropy. The published head has a bias too; shared by all outputs, it cancels in
    the softmax and is left out. Without a head the scores are the lengths.
    """
    u_hat = inputs_last(votes)  # [B, J, D, I]
    batch, outputs, dim, inputs = u_hat.shape
    b = u_hat.new_zeros(1).expand(batch, outputs, inputs)  # [B, J, I]
    c = u_hat.new_full((1,), 1 / outputs).expand(batch, outputs, inputs)
    # a mean over i would be LN's epsilon away from this: its variance is (I/J)^2 times smaller
    v = F.layer_norm(u_hat.sum(-1) / outputs, (dim,), gain, shift)  # [B, J, D]
    passes: list[Pass] = []
    if trace:
        record(passes, b, c, v)
    for _ in range(iterations - 1):
        b = inner_product(u_hat, v) / math.sqrt(dim)  # [B, J, I]
        c = normalise(b)  # [B, J, I]
        v = F.layer_norm(weighted_sum(c, u_hat), (dim,), gain, shift)  # [B, J, D]
        if trace:
            record(passes, b, c, v)
    scores = length(v) if head is None else v @ head  # [B, J]
    return Routed(v, c.transpose(1, 2), scores, tuple(passes) if trace else None)
