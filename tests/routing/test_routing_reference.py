"""Each algorithm against its equations in NumPy, and its gradient against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from routing_cases import ALL, ITERATIVE, ONE_PASS, OPTIONS, random_parameters, votes_and_children
from routing_reference import REFERENCE
from routing_reference import em_matrix as reference_em_matrix
from routing_reference import squash as reference_squash

from capsbench.routing import route, squash
from capsbench.routing.em_matrix import em_matrix
from capsbench.routing.energy import energy, entropy

PARTS = ("poses", "couplings", "scores")


def check(name, votes, children, iterations, options, parameters, tolerance=1e-9):
    routed = route(name, votes, iterations, children=children, **options, **parameters)
    arrays = {word: value.numpy() for word, value in parameters.items()}
    children = None if children is None else children.double().numpy()
    expected = REFERENCE[name](votes.double().numpy(), children, iterations=iterations, **options, **arrays)
    for word, value in zip(PARTS, expected, strict=True):
        got = getattr(routed, word)
        assert got.dtype == votes.dtype
        np.testing.assert_allclose(got.numpy(), value, atol=tolerance, rtol=tolerance, err_msg=f"{name} {word}")


def test_every_algorithm_is_covered():
    assert set(ALL) == set(REFERENCE) == set(OPTIONS) == {*ITERATIVE, *ONE_PASS}


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ALL)
def test_neutral_parameters(name, iterations):
    votes, children = votes_and_children()
    check(name, votes, children, iterations, {}, {})


@pytest.mark.parametrize("iterations", [1, 3, 5])
@pytest.mark.parametrize("name", ALL)
def test_random_parameters_and_options(name, iterations):
    votes, children = votes_and_children(seed=2)
    for options in OPTIONS[name]:
        check(name, votes, children, iterations, options, random_parameters(name, votes, children))


@pytest.mark.parametrize("name", ALL)
def test_float32(name):
    votes, children = votes_and_children(batch=2, inputs=40, outputs=10, dim=16, child_dim=8)
    check(name, (votes * 0.3).float(), (children * 0.3).float(), 3, {}, {}, tolerance=2e-4)


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (1, 0, 2, 3), (0, 3, 1, 2)])
def test_any_memory_layout(layout):
    votes, _ = votes_and_children()
    inverse = [layout.index(k) for k in range(4)]
    check("dynamic", votes.permute(layout).contiguous().permute(inverse), None, 3, {}, {})


def test_scaled_distance_without_children_skips_the_clip():
    votes, children = votes_and_children()
    check("scaled-distance", votes, None, 3, {}, {})
    clipped = route("scaled-distance", votes, children=children).poses
    assert not torch.allclose(clipped, route("scaled-distance", votes).poses)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_em_matrix(iterations):
    votes, _ = votes_and_children(dim=16)
    activations = torch.rand(votes.shape[:2], dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    beta_a, beta_u = torch.randn(2, votes.shape[2], dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    got = em_matrix(votes, activations, beta_a, beta_u, iterations)
    expected = reference_em_matrix(
        votes.numpy(), activations.numpy(), iterations=iterations, beta_a=beta_a.numpy(), beta_u=beta_u.numpy()
    )
    for value, array in zip(got[:3], expected, strict=True):
        np.testing.assert_allclose(value.numpy(), array, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", ["hinton", "half", "exp", "tanh", "ratio", "none"])
def test_squash(kind):
    s = votes_and_children()[0][0, 0] * torch.tensor([[1e-3], [0.1], [1.0], [30.0]], dtype=torch.float64)
    expected = np.stack([reference_squash(row, kind) for row in s.numpy()])
    np.testing.assert_allclose(squash(s, kind=kind).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(squash(s.T, dim=0, kind=kind).numpy(), expected.T, rtol=1e-12)


def test_energy_and_entropy():
    votes, _ = votes_and_children(batch=2)
    c = torch.rand(votes.shape[:3], dtype=torch.float64, generator=torch.Generator().manual_seed(5)).softmax(-1)
    bias = torch.randn(votes.shape[2:], dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    u, weights = votes.numpy(), c.numpy()
    n = np.sqrt(((np.einsum("bij,bijd->bjd", weights, u) + bias.numpy()) ** 2).sum(-1))
    np.testing.assert_allclose(energy(votes, c, bias).numpy(), (n - np.arctan(n)).sum(-1), rtol=1e-12)
    h = -(weights * np.log(weights)).sum((1, 2))
    np.testing.assert_allclose(entropy(c).numpy(), h, rtol=1e-12)
    expected = h / votes.shape[1] / np.log(votes.shape[2])
    np.testing.assert_allclose(entropy(c, normalised=True).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_gradient(name, iterations):
    votes, children = votes_and_children(batch=2, inputs=3, outputs=3, dim=2, child_dim=2, seed=4)
    parameters = random_parameters(name, votes, children)

    def scalars(votes, children, *values):
        given = dict(zip(parameters, values, strict=True))
        routed = route(name, votes, iterations, children=children, **given)
        return routed.poses, routed.couplings, routed.scores

    leaves = [tensor.clone().requires_grad_() for tensor in (votes, children, *parameters.values())]
    assert torch.autograd.gradcheck(scalars, leaves)


def test_gradient_of_em_matrix():
    votes, _ = votes_and_children(batch=1, inputs=3, outputs=2, dim=16)
    activations = torch.rand(1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.1
    beta = torch.zeros(2, dtype=torch.float64)
    leaves = [tensor.clone().requires_grad_() for tensor in (votes, activations, beta, beta)]
    assert torch.autograd.gradcheck(lambda *given: em_matrix(*given)[:3], leaves)


@pytest.mark.parametrize("name", ["dynamic", "leaky", "replace", "kmeans", "optimised", "scaled-distance"])
def test_gradient_reaches_back_through_every_pass_unless_detached(name):
    """The full gradient is gradcheck's above; here the detached one is the last pass's with its logits held fixed."""
    votes, _ = votes_and_children()
    u = votes.clone().requires_grad_()
    full = torch.autograd.grad(route(name, u, 3).poses.square().sum(), u)[0]
    u = votes.clone().requires_grad_()
    detached = torch.autograd.grad(route(name, u, 3, detach_inner=True).poses.square().sum(), u)[0]
    u = votes.clone().requires_grad_()
    c = route(name, votes, 3).couplings  # constants
    kind = "half" if name in ("kmeans", "optimised") else "hinton"
    last = squash(torch.einsum("bij,bijd->bjd", c, u), kind=kind)
    expected = torch.autograd.grad(last.square().sum(), u)[0]
    torch.testing.assert_close(detached, expected)
    assert not torch.allclose(full, expected)


def test_a_trained_prior_learns_through_the_last_pass_when_inner_ones_are_detached():
    votes, _ = votes_and_children()
    prior = torch.zeros(votes.shape[1:3], dtype=torch.float64, requires_grad=True)
    route("dynamic", votes, 3, prior=prior, detach_inner=True).poses.square().sum().backward()
    assert prior.grad is not None
    assert prior.grad.abs().max() > 0
