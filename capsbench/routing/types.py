"""What every routing returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Pass(NamedTuple):
    """What one pass of a routing did; detached, for diagnostics.

    `logits` [B, I, J] are what the pass normalised (zeros where it began uniform), `couplings` [B, I, J] what it
    weighted the votes with, `poses` [B, J, D] what the routing would have returned had it stopped here.
    """

    logits: Tensor
    couplings: Tensor
    poses: Tensor


class Routed(NamedTuple):
    """Output capsules: `poses` [B, J, D], `couplings` [B, I, J], `scores` [B, J] and, on request, one `Pass` per pass.

    `scores` are the lengths of the poses unless the algorithm scores its capsules otherwise.
    """

    poses: Tensor
    couplings: Tensor
    scores: Tensor
    trace: tuple[Pass, ...] | None = None
