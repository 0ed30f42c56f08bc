"""squash and length: finite everywhere, gradients included, in every precision."""

from __future__ import annotations

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.routing import SQUASH_KINDS, length, squash

KINDS = [kind for kind in SQUASH_KINDS if kind != "none"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
SIZES = [0.0, 1e-42, 1e-38, 1e-30, 1e-20, 1e-6, 1.0, 1e4, 1e19, 1e30, 3e37]


def vectors(size: float, dtype: torch.dtype) -> torch.Tensor:
    rows = torch.tensor([[1.0, -2, 0.5], [1, 1, 1], [0, 0, 3]], dtype=torch.float64)
    return (rows * size).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_value_and_gradient_are_finite(size, dtype):
    for kind in SQUASH_KINDS:
        s = vectors(size, dtype)
        v = squash(s, kind=kind)
        v.sum().backward()
        assert v.dtype == s.grad.dtype == dtype
        assert v.isfinite().all()
        assert s.grad.isfinite().all()
    s = vectors(size, dtype)
    n = length(s)
    n.sum().backward()
    assert n.dtype == dtype
    assert n.isfinite().all()
    assert s.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e4, 1e19, 1e30])
def test_lengths_stay_below_one_and_directions_stay(kind, size):
    s = vectors(size, torch.float32).detach()
    v = squash(s, kind=kind)
    assert (length(v) <= 1 + 1e-6).all()
    if size >= 1e19:
        torch.testing.assert_close(length(v), torch.ones(3))
    v, s = v.double(), s.double()
    torch.testing.assert_close(v / length(v, keepdim=True), s / length(s, keepdim=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-4, 1.0, 30.0])
def test_gradient(kind, size):
    s = vectors(size, torch.float64)
    assert torch.autograd.gradcheck(lambda x: squash(x, kind=kind), s, eps=1e-6 * size)


@pytest.mark.parametrize("kind", KINDS)
def test_squash_grows_with_the_vector(kind):
    s = torch.linspace(0, 5, 200, dtype=torch.float64).unsqueeze(1)
    assert (length(squash(s, kind=kind)).diff() > 0).all()


def test_squash_by_hand():
    """|s| = 5: 25/26, 25/25.5, 1-e^-5, tanh 5, 5/6 of the direction (0.6, 0.8)."""
    s = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    direction = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    by_hand = {"hinton": 0.9615384615, "half": 0.9803921569, "exp": 0.9932620530, "tanh": 0.9999092043, "ratio": 5 / 6}
    for kind, n in by_hand.items():
        torch.testing.assert_close(squash(s, kind=kind), direction * n, atol=1e-9, rtol=0)
    assert squash(s, kind="none") is s


def test_squash_along_another_dimension():
    s = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(squash(s, dim=1), squash(s.transpose(1, 2)).transpose(1, 2))


def test_an_unknown_kind_is_refused_with_the_nearest_one():
    with pytest.raises(RoutingError, match=r"squash kind 'hintom' is not known; did you mean 'hinton'\?"):
        squash(torch.zeros(1, 2), kind="hintom")
