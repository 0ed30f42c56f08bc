"""Expectation-maximisation on votes, shared by `em-vector` and `em_matrix`."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from capsbench.routing.passes import record, weighted_sum
from capsbench.routing.types import Pass, Routed

VARIANCE_FLOOR = 1e-9
REFERENCE_CHILDREN = 100  # of one parent: ours, about what the convolutional layers of Hinton 2018 have (72 and 144)


def expectation_maximisation(
    u_hat: Tensor,
    activations: Tensor,
    iterations: int,
    *,
    pose: Callable[[Tensor, Tensor], Tensor],
    beta_a: Tensor | None = None,
    beta_u: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """Fit one Gaussian with diagonal variance per output to votes u_hat [B, J, H, I] weighted by activations [B, I].

    Source: Hinton, Sabour and Frosst 2018, procedure 1; the schedule of lambda, which the paper leaves open, as its
    authors gave it in the paper's discussion. The scale of the cost, 100 / I, is ours. R_ij starts at 1/J; each pass is
    an M step, between two passes stands an E step (none after the last M).

    M: r_ij = R_ij a_i; mu_j, var_j its weighted mean and variance (+ 1e-9); cost_j = sum_h (beta_u + 0.5 ln var_jh)
    sum_i r_ij, scaled by 100 / I; a_j = sigmoid(lambda (beta_a - cost_j)), lambda = 0.01 (1 - 0.95^(t+1)).
    E: R = softmax over j of ln a_j + ln N(u_hat_ij; mu_j, var_j).
    All in log space; the variance is never square-rooted. `beta_a`, `beta_u` [J], zeros without them.
    Returns pose(mu [B, J, H], a [B, J]) as poses, R as couplings [B, I, J], a_j as scores [B, J].
    """
    batch, outputs, _, inputs = u_hat.shape
    zeros = u_hat.new_zeros(outputs)
    beta_a, beta_u = zeros if beta_a is None else beta_a, zeros if beta_u is None else beta_u
    log_a_in = activations.clamp_min(1e-30).log().unsqueeze(1)  # [B, 1, I]
    logits = u_hat.new_zeros(batch, outputs, inputs)  # [B, J, I]
    passes: list[Pass] = []
    for t in range(iterations):
        log_r = logits.log_softmax(1)  # ln R_ij, [B, J, I]
        # M step. Normalised over i in log space, r_ij has a mean even where every R_ij a_i underflows.
        log_weight = log_r + log_a_in  # [B, J, I]
        weight = log_weight.softmax(-1)  # [B, J, I]
        mu = weighted_sum(weight, u_hat)  # [B, J, H]
        apart = u_hat - mu.unsqueeze(-1)  # [B, J, H, I]
        square = apart * apart  # its gradient takes fewer passes than that of a power
        variance = weighted_sum(weight, square) + VARIANCE_FLOOR  # [B, J, H]
        mass = log_weight.logsumexp(-1).exp() * (REFERENCE_CHILDREN / inputs)  # sum_i r_ij, scaled, [B, J]
        cost = (beta_u.unsqueeze(-1) + 0.5 * variance.log()).sum(-1) * mass  # [B, J]
        log_odds = 0.01 * (1 - 0.95 ** (t + 1)) * (beta_a - cost)  # [B, J]
        a = log_odds.sigmoid()  # [B, J]
        if trace:
            record(passes, logits, log_r.exp(), pose(mu, a))
        if t < iterations - 1:  # E step
            log_p = -(square * (0.5 / variance).unsqueeze(-1)).sum(2)  # [B, J, I]
            log_p = log_p - 0.5 * (2 * math.pi * variance).log().sum(-1, keepdim=True)
            logits = F.logsigmoid(log_odds).unsqueeze(-1) + log_p
    return Routed(pose(mu, a), log_r.exp().transpose(1, 2), a, tuple(passes) if trace else None)
