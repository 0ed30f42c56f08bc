"""What routing maximises: the energy F of couplings and their entropy H."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from capsbench.routing.squash import length


def energy(votes: Tensor, couplings: Tensor, bias: Tensor | None = None) -> Tensor:
    """F(c) = sum_j (|s_j| - arctan |s_j|) with s_j = sum_i c_ij u_hat_ij (+ bias_j), per image: [B], float64.

    votes [B, I, J, D], couplings [B, I, J], bias [J, D]. dF/dc_ij = <u_hat_ij, squash(s_j)>: accumulating logits are
    mirror ascent on the convex F, which never falls; replaced logits raise F + H. Both hold for the hinton squash and
    the softmax. Computed in float64, for |s| - arctan |s| of a short s cancels.
    """
    s = torch.einsum("bij,bijd->bjd", couplings.double(), votes.double())  # [B, J, D]
    if bias is not None:
        s = s + bias.double()
    n = length(s)  # [B, J]
    return (n - n.arctan()).sum(-1)


def entropy(couplings: Tensor, normalised: bool = False) -> Tensor:
    """H(c) = -sum_ij c_ij ln c_ij, per image: [B], in nats.

    With `normalised` the mean over the inputs i divided by ln J: 1 for uniform couplings, 0 for hard ones.
    couplings [B, I, J] with J > 1 if normalised.
    """
    h = torch.special.entr(couplings).sum(-1)  # [B, I]
    return h.mean(-1) / math.log(couplings.shape[-1]) if normalised else h.sum(-1)
