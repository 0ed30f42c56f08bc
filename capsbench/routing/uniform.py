"""No routing: the control."""

from __future__ import annotations

from torch import Tensor

from capsbench.routing.by_hand import takes_all
from capsbench.routing.dynamic import dynamic
from capsbench.routing.fused import fusible, pose
from capsbench.routing.parameters import BIAS, trained
from capsbench.routing.types import Routed


@takes_all
@fusible(pose, accumulate=True, passes=1)
@trained(bias=BIAS)
def uniform(
    votes: Tensor,
    iterations: int = 1,
    *,
    squash: str = "hinton",
    bias: Tensor | None = None,
    trace: bool = False,
) -> Routed:
    """Uniform couplings 1/J: a capsule layer without routing, bit for bit dynamic routing of one pass.

    Source: control (routing that does not route).

    `iterations` is accepted and ignored: there is one pass.
    """
    return dynamic(votes, 1, squash=squash, bias=bias, trace=trace)
