"""Dynamic routing on a CPU: every sum a product of matrices, and the gradient written out.

A gradient taken step by step makes three arrays as large as the votes for each of the 2r - 1 products in r passes.
Written out, a pass needs two products that read the votes, and the gradient of the votes is one product of rank 2r - 1:

    d u_hat_ij = sum_t c_ij(t) ds_j(t) + sum_t db_ij(t+1) v_j(t)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsbench.routing.squash import squash as squash_vectors

Algorithm = TypeVar("Algorithm", bound=Callable[..., Any])


def takes_all(algorithm: Algorithm) -> Algorithm:
    """Mark an algorithm that loses by being given a few images at a time, where others win."""
    algorithm.takes_all = True  # type: ignore[attr-defined]
    return algorithm


def route_by_hand(votes: Tensor, iterations: int, squash: str, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """`dynamic`'s poses [B, J, D] and last couplings [B, I, J] of votes [B, I, J, D], softmax from zero logits.

    Equal to `passes.agree` up to rounding, in value and gradient; a gradient of the gradient there is not. `bias`
    [J, D] is added to every s_j.
    """
    u_hat = votes.transpose(1, 2).contiguous()  # [B, J, I, D]
    poses, couplings = _Dynamic.apply(u_hat, bias, iterations, squash)
    return poses, couplings.transpose(1, 2)


def _weighted(c: Tensor, u_hat: Tensor) -> Tensor:
    """sum_i c_ij u_hat_ij: c [B, J, I], u_hat [B, J, I, D] -> [B, J, D]."""
    return torch.bmm(c.flatten(0, 1).unsqueeze(1), u_hat.flatten(0, 1)).view(u_hat.shape[0], u_hat.shape[1], -1)


def _inner(u_hat: Tensor, v: Tensor) -> Tensor:
    """<u_hat_ij, v_j>: u_hat [B, J, I, D], v [B, J, D] -> [B, J, I]. The vector stands first: five times the rate."""
    rows = torch.bmm(v.flatten(0, 1).unsqueeze(1), u_hat.flatten(0, 1).transpose(1, 2))  # [B*J, 1, I]
    return rows.view(u_hat.shape[:3])


class _Dynamic(torch.autograd.Function):
    """u_hat [B, J, I, D] to poses [B, J, D] and the last pass's couplings [B, J, I]."""

    @staticmethod
    def forward(ctx: Any, u_hat: Tensor, bias: Tensor | None, iterations: int, squash: str) -> tuple[Tensor, Tensor]:
        batch, outputs, inputs, _ = u_hat.shape
        b, c = u_hat.new_zeros(1), u_hat.new_full((1,), 1 / outputs).expand(batch, outputs, inputs)
        cs: list[Tensor] = []  # of every pass but the first, where all are 1/J
        ss: list[Tensor] = []
        for t in range(iterations):
            if t == 0:
                s = u_hat.sum(2) / outputs
            else:
                b = b + _inner(u_hat, squash_vectors(ss[-1], kind=squash))  # [B, J, I]
                c = b.softmax(1)
                cs.append(c)
                s = _weighted(c, u_hat)
            ss.append(s if bias is None else s + bias)  # [B, J, D]
        ctx.save_for_backward(u_hat, *cs, *ss)
        ctx.squash, ctx.iterations, ctx.has_bias = squash, iterations, bias is not None
        return squash_vectors(ss[-1], kind=squash), c.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_poses: Tensor, of_couplings: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        u_hat, *rest = ctx.saved_tensors
        outputs, last = u_hat.shape[1], ctx.iterations - 1
        cs, ss = rest[:last], rest[last:]  # couplings of passes 2..r, sums of passes 1..r
        left: list[Tensor] = []  # [B, J, I], and the [B, J, D] beside each: their products add up to d u_hat
        right: list[Tensor] = []
        of_b = of_v = of_bias = None
        for t in range(last, -1, -1):
            with torch.enable_grad():
                s = ss[t].detach().requires_grad_()
                v = squash_vectors(s, kind=ctx.squash)
            (of_s,) = torch.autograd.grad(v, s, of_poses if of_v is None else of_v)  # [B, J, D]
            if t < last:
                left.append(of_b)  # type: ignore[arg-type]  # of pass t + 1, whose logits this v went into
                right.append(v.detach())
            of_bias = of_s if of_bias is None else of_bias + of_s
            right.append(of_s)
            if t == 0:
                left.append(u_hat.new_full((1,), 1 / outputs).expand(u_hat.shape[:3]))
                break
            c = cs[t - 1]
            left.append(c)
            of_c = _inner(u_hat, of_s)
            if t == last:
                of_c = of_c + of_couplings
            through = torch._softmax_backward_data(of_c, c, 1, c.dtype)
            of_b = through if of_b is None else of_b + through  # logits add up: they are in every later pass
            of_v = _weighted(of_b, u_hat)  # of pass t - 1
        columns = torch.stack(left, 2).flatten(0, 1).transpose(1, 2)  # [B*J, I, 2r-1]
        of_u_hat = torch.bmm(columns, torch.stack(right, 2).flatten(0, 1)).view_as(u_hat)
        return of_u_hat, of_bias.sum(0) if ctx.has_bias and of_bias is not None else None, None, None
