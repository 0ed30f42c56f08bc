"""What must hold whatever the votes: equivalences, symmetries, energies, and numbers that stay numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_cases import ALL, ITERATIVE, ONE_PASS, generator, random_parameters, votes_and_children
from torch import Tensor

from capsbench.routing import route
from capsbench.routing.em_matrix import em_matrix
from capsbench.routing.energy import energy, entropy

SETTINGS = settings(max_examples=40)
SHAPES = {
    "seed": st.integers(0, 2**16),
    "inputs": st.integers(1, 12),
    "outputs": st.integers(2, 6),
    "dim": st.integers(1, 5),
    "scale": st.floats(-3, 2).map(lambda x: 10.0**x),
}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def assert_same(one, other, **tolerance):
    for got, expected in zip(one[:3], other[:3], strict=True):
        torch.testing.assert_close(got, expected, **tolerance)


def test_uniform_is_dynamic_of_one_pass_exactly():
    for dtype in (torch.float32, torch.float64):
        votes = votes_and_children(batch=5, inputs=50, outputs=10, dim=16)[0].to(dtype)
        bias = torch.randn(10, 16, dtype=dtype, generator=generator())
        for options in ({}, {"bias": bias}, {"squash": "half"}):
            one, other = route("uniform", votes, 3, **options), route("dynamic", votes, 1, **options)
            assert_same(one, other, rtol=0, atol=0)
        assert torch.equal(one.couplings, torch.full_like(one.couplings, 1 / 10))


def test_learned_at_zero_is_uniform_and_is_dynamic_of_one_pass_from_its_prior():
    votes, children = votes_and_children()
    assert_same(route("learned", votes), route("uniform", votes), rtol=0, atol=0)
    given = random_parameters("learned", votes, children)
    assert_same(route("learned", votes, 3, **given), route("dynamic", votes, 1, **given), rtol=0, atol=0)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_optimised_at_alpha_one_is_kmeans_and_leaky_is_dynamic_with_its_normaliser(iterations):
    votes, _ = votes_and_children()
    assert_same(route("optimised", votes, iterations, alpha=1.0), route("kmeans", votes, iterations), rtol=0, atol=0)
    assert not torch.allclose(route("optimised", votes, 2, alpha=0.3).poses, route("kmeans", votes, 2).poses)
    leaky = route("dynamic", votes, iterations, normaliser="leaky")
    assert_same(route("leaky", votes, iterations), leaky, rtol=0, atol=0)


def test_replace_differs_from_dynamic_only_from_the_third_pass_on():
    votes, _ = votes_and_children()
    plain = route("dynamic", votes, 2, trace=True)  # with a trace it does not go by_hand
    assert_same(route("replace", votes, 2), plain, rtol=0, atol=0)
    assert not torch.allclose(route("replace", votes, 3).poses, route("dynamic", votes, 3).poses)


@pytest.mark.parametrize("name", ALL)
def test_a_result_does_not_depend_on_the_rest_of_the_batch(name):
    votes, children = votes_and_children(batch=4)
    votes[2:] *= 50  # neighbours of another kind: logits or distances averaged over the batch would notice
    together = route(name, votes, 3, children=children)
    for image in range(4):
        one = slice(image, image + 1)
        alone = route(name, votes[one], 3, children=children[one])
        assert_same([part[one] for part in together[:3]], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_images_taken_a_few_at_a_time_change_nothing(name, monkeypatch):
    votes, children = votes_and_children(batch=7)
    whole = route(name, votes, 3, children=children, trace=True)
    monkeypatch.setattr("capsbench.routing.layer.CHUNK_BYTES", 2 * votes[0].numel() * votes.element_size())
    parts = route(name, votes, 3, children=children, trace=True)
    assert_same(parts, whole, rtol=1e-12, atol=1e-12)
    for one, other in zip(parts.trace, whole.trace, strict=True):
        assert_same(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_couplings_are_shared_out_over_the_outputs(name):
    """Of 1152 inputs and 10 outputs: each input gives away 1 (published faults normalise over the inputs)."""
    votes, children = votes_and_children(batch=1, inputs=1152, outputs=10, dim=4)
    c = route(name, votes * 0.1, 3, children=children).couplings
    over_outputs, over_inputs = c.sum(2), c.sum(1)
    if name == "leaky":
        assert ((over_outputs > 0.8) & (over_outputs < 1)).all()
    else:
        torch.testing.assert_close(over_outputs, torch.ones_like(over_outputs), **CLOSE)
    assert over_inputs.max() > 100  # 115 on average; over the inputs each would be 1


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.parametrize("iterations", [1, 3, 6])
def test_r_passes_are_r_passes(name, iterations):
    votes, children = votes_and_children()
    routed = route(name, votes, iterations, children=children, trace=True)
    assert len(routed.trace) == iterations
    for done, step in enumerate(routed.trace, start=1):
        stopped = route(name, votes, done, children=children, trace=True)
        assert_same((step.poses, step.couplings), stopped[:2], rtol=0, atol=0)
    assert (routed.trace[0].logits == 0).all()
    torch.testing.assert_close(routed.trace[0].couplings.std(-1), torch.zeros(votes.shape[:2], dtype=votes.dtype))


@pytest.mark.parametrize("name", ONE_PASS)
def test_one_pass_algorithms_ignore_iterations(name):
    votes, children = votes_and_children()
    routed = route(name, votes, 5, children=children, trace=True)
    assert_same(routed, route(name, votes, 1, children=children, trace=True), rtol=0, atol=0)
    assert_same(routed, route(name, votes, 1, children=children))  # up to rounding: without a trace some go by_hand
    assert len(routed.trace) == 1
    assert_same((routed.trace[0].poses, routed.trace[0].couplings), routed[:2], rtol=0, atol=0)


def test_there_is_no_trace_unless_asked_for():
    votes, children = votes_and_children()
    assert all(route(name, votes, children=children).trace is None for name in ALL)


def test_logits_of_the_trace_are_what_the_couplings_are_the_softmax_of():
    votes, children = votes_and_children()
    for name in ALL:
        if name != "leaky":
            for step in route(name, votes, 4, children=children, trace=True).trace:
                torch.testing.assert_close(step.couplings, step.logits.softmax(-1), **CLOSE)


@pytest.mark.parametrize("name", ALL)
@SETTINGS
@given(**SHAPES)
def test_permuting_capsules(name, seed, inputs, outputs, dim, scale):
    votes, children = votes_and_children(2, inputs, outputs, dim, 3, seed)
    votes = votes * scale
    order_i, order_j = (torch.randperm(size, generator=generator(seed)) for size in (inputs, outputs))
    poses, couplings, scores, _ = route(name, votes, 3, children=children)
    moved = route(name, votes[:, order_i], 3, children=children[:, order_i])
    loose = {"rtol": 1e-6, "atol": 1e-6}  # sums in another order
    assert_same(moved, (poses, couplings[:, order_i], scores), **loose)
    moved = route(name, votes[:, :, order_j], 3, children=children)
    assert_same(moved, (poses[:, order_j], couplings[:, :, order_j], scores[:, order_j]), **loose)


@SETTINGS
@given(**SHAPES)
def test_energy_never_falls_for_dynamic_routing(seed, inputs, outputs, dim, scale):
    votes = votes_and_children(2, inputs, outputs, dim, 1, seed)[0] * scale
    energies = torch.stack([energy(votes, step.couplings) for step in route("dynamic", votes, 12, trace=True).trace])
    assert (energies.diff(dim=0) >= -1e-9 * (1 + energies[1:].abs())).all()


@SETTINGS
@given(**SHAPES)
def test_energy_and_entropy_never_fall_for_replaced_logits(seed, inputs, outputs, dim, scale):
    votes = votes_and_children(2, inputs, outputs, dim, 1, seed)[0] * scale
    passes = route("replace", votes, 12, trace=True).trace
    free = torch.stack([energy(votes, step.couplings) + entropy(step.couplings) for step in passes])
    assert (free.diff(dim=0) >= -1e-9 * (1 + free[1:].abs())).all()


def test_entropy_alone_falls_and_energy_is_not_a_constant():
    """So that neither property above holds by accident."""
    votes = votes_and_children(4, 30, 5, 4)[0]
    passes = route("dynamic", votes, 12, trace=True).trace
    assert (energy(votes, passes[-1].couplings) > 1.01 * energy(votes, passes[0].couplings)).all()
    assert (entropy(passes[-1].couplings) < 0.5 * entropy(passes[0].couplings)).all()


def test_energy_has_the_agreement_as_its_gradient():
    votes = votes_and_children()[0]
    c = torch.rand(votes.shape[:3], dtype=votes.dtype, generator=generator()).requires_grad_()
    gradient = torch.autograd.grad(energy(votes, c).sum(), c)[0]
    s = torch.einsum("bij,bijd->bjd", c, votes)
    n = s.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(gradient, torch.einsum("bijd,bjd->bij", votes, s * n / (1 + n**2)))


def test_couplings_harden_with_the_passes_when_logits_add_up_and_stay_soft_when_replaced():
    """Normalised entropy on random votes: nearly uniform at the paper's r = 3, hard at 300 (issue facts, computed)."""
    votes = 0.1 * torch.randn(8, 200, 10, 16, generator=generator(), dtype=torch.float64)
    dynamic = route("dynamic", votes, 300, trace=True).trace
    found = [float(entropy(dynamic[r - 1].couplings, normalised=True).mean()) for r in (3, 10, 50, 300)]
    assert found == pytest.approx([0.999, 0.962, 0.228, 0.004], abs=0.02)
    replace = route("replace", votes, 300, trace=True).trace
    for r in (3, 10, 50, 300):
        assert float(entropy(replace[r - 1].couplings, normalised=True).mean()) == pytest.approx(0.9998, abs=1e-4)


def degenerate(kind: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    votes, children = (x.to(dtype) for x in votes_and_children(batch=2, inputs=30))
    if kind == "zero":
        return votes * 0, children * 0
    if kind == "equal":
        return torch.ones_like(votes), torch.ones_like(children)
    if kind == "huge and equal":
        return torch.full_like(votes, 1e4), children
    if kind == "opposite":  # sums cancel
        return torch.cat([votes, -votes], 1), torch.cat([children, children], 1)
    return votes * {"huge": 1e4, "tiny": 1e-20}[kind], children


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["zero", "equal", "huge", "huge and equal", "tiny", "opposite"])
@pytest.mark.parametrize("name", [*ALL, "em-matrix"])
def test_numbers_stay_numbers(name, kind, dtype):
    votes, children = degenerate(kind, dtype)
    votes.requires_grad_()
    children.requires_grad_()
    for iterations in (1, 3, 5):
        votes.grad = children.grad = None
        if name == "em-matrix":
            routed = em_matrix(votes.repeat(1, 1, 1, 4)[..., :16], children.sigmoid()[..., 0], iterations=iterations)
        else:
            routed = route(name, votes, iterations, children=children)
        assert all(part.isfinite().all() for part in routed[:3])
        assert routed.poses.dtype == dtype
        (routed.poses.sum() + routed.scores.sum() + routed.couplings.square().sum()).backward()
        assert votes.grad.isfinite().all()
        assert children.grad is None or children.grad.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_one_input_and_one_output(name):
    votes, children = votes_and_children(inputs=1, outputs=1)
    routed = route(name, votes, 3, children=children)
    assert all(part.isfinite().all() for part in routed[:3])
    if name != "leaky":
        torch.testing.assert_close(routed.couplings, torch.ones_like(routed.couplings))
