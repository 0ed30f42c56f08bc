"""When an answer about two digits is right. Both digits, or nothing: the rule of section 6 and of the two-digit test.

A tie is no answer: a digit counts as found only if fewer than two other classes score as high as it does. So equal
scores for everything find nothing, and a score that is not a number is never found.
"""

from __future__ import annotations

import torch
from torch import Tensor


def found(scores: Tensor, labels: Tensor) -> Tensor:
    """Which of the true digits are among the two highest scores: scores [N, K], labels [N, 2] int64; [N, 2] bool."""
    own = scores.gather(1, labels)  # [N, 2]
    at_least = ~(scores[:, None, :] < own[:, :, None])  # [N, 2, K], the digit itself included
    return at_least.sum(2) <= 2


def exactly(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether the two highest scores are exactly the true set: [N] bool."""
    return found(scores, labels).all(1)


def both_above_half(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether the set is exactly right and the second score is above 0.5 as well: [N] bool."""
    return exactly(scores, labels) & (scores.gather(1, labels) > 0.5).all(1)


def top_two(scores: Tensor) -> Tensor:
    """The two classes of the highest scores, the higher first, equal ones by class: [N, 2] int64.

    What a model says when it must say two classes; whether that counts as right is the business of `found`.
    """
    return torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :2]
