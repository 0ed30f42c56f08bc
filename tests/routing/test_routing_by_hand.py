"""Dynamic routing with its gradient written out against the plain passes, which a trace makes it take."""

from __future__ import annotations

import pytest
import torch

from capsbench.routing import route
from capsbench.routing.squash import SQUASH_KINDS


def answers(votes: torch.Tensor, bias: torch.Tensor | None, iterations: int, squash: str, trace: bool):
    """Poses, couplings, and the gradients of a sum that all of poses, couplings and scores stand in."""
    given = [tensor.clone().requires_grad_() for tensor in (votes, bias) if tensor is not None]
    options = {"bias": given[1]} if bias is not None else {}
    routed = route("dynamic", given[0], iterations, squash=squash, trace=trace, **options)
    draw = torch.Generator().manual_seed(9)
    parts = [(torch.randn(x.shape, generator=draw, dtype=x.dtype) * x).sum() for x in routed[:3]]
    return *routed[:3], *torch.autograd.grad(sum(parts), given)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@pytest.mark.parametrize("squash", SQUASH_KINDS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 7, 4, 5), (2, 40, 10, 16)])
def test_values_and_gradients_are_those_of_the_plain_passes(iterations, squash, biased, shape) -> None:
    draw = torch.Generator().manual_seed(iterations)
    votes = torch.randn(shape, generator=draw, dtype=torch.float64)
    bias = torch.randn(shape[2:], generator=draw, dtype=torch.float64) if biased else None
    by_hand, plain = (answers(votes, bias, iterations, squash, trace) for trace in (False, True))
    assert not torch.equal(by_hand[-1], plain[-1]) or shape == (1, 1, 1, 1) or iterations == 1  # they are two ways
    for one, other in zip(by_hand, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
