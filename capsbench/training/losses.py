"""Losses, one value an image: [B] float32. The trainer averages over the batch, and only over the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from capsbench.models.output import one_hot
from capsbench.plan.variants import DecoderOptions, Spec

# Beside the margin loss summed over classes. `official`: the authors' code halves that loss and averages it over the
# ten classes, but not the reconstruction, which then weighs 20 times the paper's 0.0005.
RECONSTRUCTION_WEIGHT = {"none": 0.0, "paper": 0.0005, "official": 0.01}


def margin_loss(
    lengths: Tensor, targets: Tensor, positive: float = 0.9, negative: float = 0.1, down_weight: float = 0.5
) -> Tensor:
    """Equation 4: sum over classes of T_k max(0, m+ - |v_k|)^2 + lambda (1 - T_k) max(0, |v_k| - m-)^2.

    Args:
        lengths: [B, K] float, |v_k|; targets: [B, K] multi-hot T_k, one 1 for each digit in the image.
        positive: m+; negative: m-; down_weight: lambda, for the classes that are absent.

    Returns:
        [B], summed over classes.
    """
    targets = targets.to(lengths.dtype)
    present = targets * F.relu(positive - lengths).square()  # [B, K]
    absent = down_weight * (1 - targets) * F.relu(lengths - negative).square()  # [B, K]
    return (present + absent).sum(1)


def spread_loss(activations: Tensor, targets: Tensor, margin: float | Tensor) -> Tensor:
    """Hinton, Sabour and Frosst 2018, equation 3: sum over absent classes i of max(0, m - (a_t - a_i))^2.

    Args:
        activations: [B, K] float, a_k in [0, 1]; targets: [B, K] multi-hot; margin: m, a number or a tensor [].

    Returns:
        [B]. With two digits in the image the terms of both are added (the paper has one).
    """
    targets = targets.to(activations.dtype)
    gap = activations.unsqueeze(2) - activations.unsqueeze(1)  # a_t - a_i, [B, t, i]
    counts = targets.unsqueeze(2) * (1 - targets).unsqueeze(1)  # t present, i absent
    return (counts * F.relu(margin - gap).square()).sum((1, 2))


def spread_margin(progress: float | Tensor) -> float | Tensor:
    """The margin m of the spread loss when the share `progress` in [0, 1] of training is done: 0.2 to 0.9, linearly.

    The paper (section 4.1) gives both ends and says that it grows linearly, not over how many steps.
    """
    return 0.2 + 0.7 * progress


def reconstruction_loss(drawn: Tensor, digits: Tensor) -> Tensor:
    """Section 4.1: the SUM of squared pixel differences. drawn, digits [B, H, W] in [0, 1]; returns [B]."""
    return (drawn - digits).square().sum((1, 2))


def reconstruction_weight(spec: Spec) -> float:
    """What a variant's reconstruction loss is multiplied by; 0 for one without a decoder."""
    return RECONSTRUCTION_WEIGHT[spec.reconstruction] if isinstance(spec, DecoderOptions) else 0.0


def multi_hot(labels: Tensor, classes: int = 10) -> Tensor:
    """T_k of labels [B, n] int64: [B, classes] float32, 1 for every digit that is there."""
    return one_hot(labels, classes).any(1).float()


def classification_loss(spec: Spec, scores: Tensor, labels: Tensor, progress: float | Tensor = 1.0) -> Tensor:
    """The variant's loss on its scores [B, K] for labels [B, n] int64: [B].

    `nll` takes probabilities as scores, margin and spread loss lengths or activations, the cross entropies logits.
    `progress` is the share of training that is done; only the spread loss changes along it.
    """
    targets = multi_hot(labels, scores.shape[1])
    if spec.loss == "margin":
        return margin_loss(scores, targets, down_weight=spec.down_weight)
    if spec.loss == "spread":
        return spread_loss(scores, targets, spread_margin(progress))
    if spec.loss == "sigmoid-cross-entropy":
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(1)
    target = targets / targets.sum(1, keepdim=True)  # two digits share the probability
    log_p = scores.clamp_min(torch.finfo(scores.dtype).tiny).log() if spec.loss == "nll" else F.log_softmax(scores, 1)
    return -(target * log_p).sum(1)


def probabilities(spec: Spec, scores: Tensor) -> Tensor:
    """Scores [B, K] in [0, 1]: capsule lengths as they are, logits through their link.

    A sigmoid is taken in float64, and comes so: in float32 logits from 17 on are all 1, so a third high one would tie
    with the two that lead it, and a tie is no answer.
    """
    if spec.loss == "cross-entropy":
        return scores.softmax(1)
    return scores.double().sigmoid() if spec.loss == "sigmoid-cross-entropy" else scores
