"""What couplings look like over many images, from sums that are kept a batch at a time."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from capsbench.routing.energy import entropy

HARD = 0.99  # a lower capsule is decided when one output has more of it than this


def shares(couplings: Tensor) -> Tensor:
    """Couplings [B, I, J] as shares of each lower capsule, summing to 1 over j.

    Leaky couplings sum to less, sigmoids and a prior added after the softmax to anything; below zero counts as zero,
    and a lower capsule that goes nowhere as spread evenly. What is not a number stays so.
    """
    c = couplings.double().clamp_min(0)  # [B, I, J]
    total = c.sum(2, keepdim=True)
    return torch.where(total == 0, 1 / c.shape[2], c / total)


class CouplingStatistics:
    """Entropy, hardness, spread and mutual information with the class of couplings c_ij, over images added in batches.

    Everything is of the shares (`shares`), in float64. Outputs and classes are J and K many.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.images = 0

    def add(self, couplings: Tensor, labels: Tensor, shuffled: Tensor) -> None:
        """Count in a batch: couplings [B, I, J], on the same device labels [B] int64 and labels of other images [B]."""
        p = shares(couplings)  # [B, I, J]
        if self.images == 0:
            _, inputs, outputs = p.shape
            self.origin = p[0]  # spread is measured from here, so that couplings which never change have none
            self.entropy_sum = self.hard_sum = self.within_sum = p.new_zeros(())
            self.sum, self.squares = torch.zeros_like(self.origin), torch.zeros_like(self.origin)
            self.counts = p.new_zeros(2, inputs, outputs, self.classes)  # with the labels, with the shuffled ones
        self.images += len(p)
        self.entropy_sum = self.entropy_sum + entropy(p, normalised=True).sum()
        most = p.amax(2)  # [B, I]
        self.hard_sum = self.hard_sum + torch.where(most.isnan(), most, most > HARD).mean(1).sum()
        self.within_sum = self.within_sum + p.std(1, correction=0).mean(1).sum()
        moved = p - self.origin
        self.sum += moved.sum(0)
        self.squares += moved.square().sum(0)
        favourite = F.one_hot(p.argmax(2), p.shape[2]).double()  # [B, I, J]
        classes = F.one_hot(torch.stack([labels, shuffled]), self.classes).double()  # [2, B, K]
        self.counts += torch.einsum("bij,nbk->nijk", favourite, classes)

    def entropy(self) -> float:
        """Mean over images and lower capsules of the entropy divided by ln J: 1 is uniform, 0 is hard."""
        return float(self.entropy_sum) / self.images

    def hard(self) -> float:
        """The share in [0, 1] of lower capsules of which one output has more than HARD."""
        return float(self.hard_sum) / self.images

    def spread(self) -> float:
        """Standard deviation of a c_ij over the images, mean over i and j: 0 where the image does not matter."""
        variance = self.squares / self.images - (self.sum / self.images).square()  # [I, J]
        return float(variance.clamp_min(0).sqrt().mean())

    def spread_within(self) -> float:
        """Standard deviation of the c_ij of one image over the lower capsules i, mean over j and the images."""
        return float(self.within_sum) / self.images

    def mutual_information(self) -> float:
        """Bits that the favourite output of a lower capsule, argmax_j c_ij, tells of the image's class; mean over i.

        What it would seem to tell of shuffled labels, by chance and so the more the fewer the images, is taken off.
        """
        joint = self.counts / self.images  # [2, I, J, K]
        favourite, label = joint.sum(3), joint.sum(2)  # [2, I, J], [2, I, K]
        nats = _nats(favourite) + _nats(label) - _nats(joint.flatten(2))  # [2, I]
        return float((nats[0] - nats[1]).mean()) / math.log(2)


def _nats(p: Tensor) -> Tensor:
    """The entropy of each row of p [..., n], in nats."""
    return torch.special.entr(p).sum(-1)
