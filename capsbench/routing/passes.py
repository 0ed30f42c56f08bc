"""What the algorithms share: the passes of routing by agreement and their pieces.

Inside a routing the inputs stand last, u_hat [B, J, D, I] and c, b [B, J, I]: both sums of a pass (over i for s_j, over
D for the agreement) then run along contiguous memory, in half the time on a CPU that other orders take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from capsbench.errors import RoutingError, nearest
from capsbench.routing.squash import length
from capsbench.routing.types import Pass, Routed

NORMALISERS = ("softmax", "leaky", "sigmoid")

Agreement = Callable[[Tensor, Tensor, Tensor], Tensor]


def inputs_last(votes: Tensor) -> Tensor:
    """Votes [B, I, J, D] as contiguous [B, J, D, I]: one copy for all passes, none if they already lie so."""
    u_hat = votes.permute(0, 2, 3, 1)
    # From other layouts (a product over i leaves I first) two orderly copies take a quarter of one wild one's time.
    return u_hat if u_hat.is_contiguous() else votes.contiguous().permute(0, 2, 3, 1).contiguous()


def weighted_sum(c: Tensor, u_hat: Tensor) -> Tensor:
    """s_j = sum_i c_ij u_hat_ij: c [B, J, I], u_hat [B, J, D, I] -> [B, J, D]."""
    return (c.unsqueeze(2) * u_hat).sum(-1)


def inner_product(u_hat: Tensor, v: Tensor) -> Tensor:
    """<u_hat_ij, v_j>: u_hat [B, J, D, I], v [B, J, D] -> [B, J, I]."""
    return (u_hat * v.unsqueeze(-1)).sum(2)


def normalise(b: Tensor, kind: str = "softmax") -> Tensor:
    """Couplings of logits b [B, J, I], every input capsule for itself.

    `softmax` over the output capsules j (Sabour 2017, eq. 3); `leaky`: over [0, b_1 .. b_J], the first dropped, so that
    an input may go nowhere (the authors' code); `sigmoid`: each pair on its own.
    """
    check_normaliser(kind)
    if kind == "leaky":
        return F.pad(b, (0, 0, 1, 0)).softmax(1)[:, 1:]
    return b.softmax(1) if kind == "softmax" else b.sigmoid()


def check_normaliser(kind: str) -> None:
    """Raise RoutingError unless `kind` is one of `NORMALISERS`."""
    if kind not in NORMALISERS:
        raise RoutingError(f"normaliser {kind!r} is not known{nearest(kind, NORMALISERS)}")


def coupling_of_zero_logits(kind: str, outputs: int) -> float:
    """The coupling, the same for every pair, of logits that are all zero."""
    return {"softmax": 1 / outputs, "leaky": 1 / (outputs + 1), "sigmoid": 0.5}[kind]


def record(trace: list[Pass], logits: Tensor, c: Tensor, v: Tensor) -> None:
    """Append a pass, logits and c [B, J, I] turned to [B, I, J]."""
    trace.append(Pass(logits.detach().transpose(1, 2), c.detach().transpose(1, 2), v.detach()))


def agree(
    u_hat: Tensor,
    iterations: int,
    *,
    agreement: Agreement,
    activate: Callable[[Tensor], Tensor],
    accumulate: bool,
    normaliser: str = "softmax",
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    detach_inner: bool = False,
    trace: bool = False,
) -> Routed:
    """Routing by agreement on votes u_hat [B, J, D, I]; exactly `iterations` passes, the first from the prior alone.

    One pass: c = normalise(b); s_j = sum_i c_ij u_hat_ij (+ bias_j); v = activate(s). Between two passes the logits
    become b = prior + agreement(u_hat, s, v), or, with `accumulate`, grow by it (Sabour 2017, procedure 1).
    `bias` [J, D]; `prior` [I, J] are initial logits, zeros without it. With `detach_inner` gradient flows through the
    last pass only (as many re-implementations do), otherwise through all.
    """
    check_normaliser(normaliser)
    batch, outputs, _, inputs = u_hat.shape
    first = coupling_of_zero_logits(normaliser, outputs)
    start = u_hat.new_zeros(1) if prior is None else prior.t()
    b = start.expand(batch, outputs, inputs)  # [B, J, I]
    passes: list[Pass] = []
    for t in range(iterations):
        last = t == iterations - 1
        with torch.no_grad() if detach_inner and not last else contextlib.nullcontext():
            if prior is None and t == 0:  # no need to multiply every vote by the same number
                c = u_hat.new_full((1,), first).expand(batch, outputs, inputs)  # [B, J, I]
                s = u_hat.sum(-1) * first  # [B, J, D]
            else:
                c = normalise(b, normaliser)  # [B, J, I]
                s = weighted_sum(c, u_hat)  # [B, J, D]
            if bias is not None:
                s = s + bias
            v = activate(s)  # [B, J, D]
            if trace:
                record(passes, b, c, v)
            if last:
                break
            new = agreement(u_hat, s, v)  # [B, J, I]
        b = (b if accumulate else start) + new  # outside no_grad: a trained prior learns through the last pass
    return Routed(v, c.transpose(1, 2), length(v), tuple(passes) if trace else None)
