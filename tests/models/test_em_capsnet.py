"""Matrix capsules: receptive fields, votes and coordinate addition by hand, EM against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from capsbench.models import build_model, em_capsnet
from capsbench.models.em_capsnet import BETA_A_UNIT, ConvCapsules, EmCapsNet, MatrixCapsules
from capsbench.routing.em_matrix import em_matrix

SMALL = {"channels": 8, "primary_types": 2, "capsule_types": [3, 4]}


@pytest.fixture
def small() -> EmCapsNet:
    torch.manual_seed(0)
    return build_model({"base": "em-matrix", **SMALL})


@pytest.mark.parametrize(("size", "places"), [(28, 3), (36, 5), (40, 6), (17, 1)])
def test_shapes(size: int, places: int, small: EmCapsNet) -> None:
    model = build_model({"base": "em-matrix", **SMALL}, size)
    output = model(torch.rand(2, 1, size, size), trace=True)
    assert output.scores.shape == (2, 10)
    assert output.poses.shape == (2, 10, 16)
    assert output.couplings.shape == (2, places * places * 4, 10)
    assert len(output.trace) == 3
    assert len(model(torch.rand(2, 1, size, size), iterations=2, trace=True).trace) == 2
    assert ((output.scores > 0) & (output.scores < 1)).all()
    torch.testing.assert_close(output.couplings.sum(2), torch.ones(2, places * places * 4))


def em_by_hand(votes: np.ndarray, a: np.ndarray, beta_a: np.ndarray, beta_u: np.ndarray, passes: int):
    """Procedure 1 of the paper for votes [I, J, H] and activations a [I], loop by loop."""
    inputs, outputs, _ = votes.shape
    r = np.full((inputs, outputs), 1 / outputs)
    for t in range(passes):
        weight = r * a[:, None]
        mu = np.stack([weight[:, j] @ votes[:, j] / weight[:, j].sum() for j in range(outputs)])
        var = np.stack([weight[:, j] @ (votes[:, j] - mu[j]) ** 2 / weight[:, j].sum() for j in range(outputs)])
        var += 1e-9
        mass = weight.sum(0) * 100 / inputs
        cost = np.stack([((beta_u[j] + 0.5 * np.log(var[j])) * mass[j]).sum() for j in range(outputs)])
        odds = 0.01 * (1 - 0.95 ** (t + 1)) * (beta_a - cost)
        activation = 1 / (1 + np.exp(-odds))
        if t < passes - 1:
            log_p = -(((votes - mu) ** 2) / (2 * var) + 0.5 * np.log(2 * math.pi * var)).sum(2)
            logits = np.log(activation) + log_p
            r = np.exp(logits - logits.max(1, keepdims=True))
            r /= r.sum(1, keepdims=True)
    return mu, activation


def test_one_parent_of_a_convolutional_layer_by_hand() -> None:
    """The parents of place (1, 2) at stride 2 see rows 2..4 and columns 4..6 of every type below."""
    torch.manual_seed(1)
    layer = ConvCapsules(types=2, outputs=3, kernel=3, stride=2, iterations=3).double()
    with torch.no_grad():
        layer.capsules.weight.add_(0.3 * torch.randn_like(layer.capsules.weight))
        layer.capsules.beta_a.copy_(torch.tensor([-1.0, 0.0, 0.5]))
        layer.capsules.beta_u.copy_(torch.tensor([0.0, 0.2, -0.1]))
    poses = torch.randn(2, 2, 16, 7, 9, dtype=torch.float64)
    activations = torch.rand(2, 2, 7, 9, dtype=torch.float64)
    above, active = layer(poses, activations)
    assert above.shape == (2, 3, 16, 3, 4)
    assert active.shape == (2, 3, 3, 4)
    weight = layer.capsules.weight.detach().numpy()
    votes, a = [], []
    for row in range(3):
        for column in range(3):
            for kind in range(2):
                pose = poses[1, kind, :, 2 + row, 4 + column].numpy().reshape(4, 4)
                w = weight[(row * 3 + column) * 2 + kind]
                votes.append([(pose @ w[j]).reshape(16) for j in range(3)])
                a.append(activations[1, kind, 2 + row, 4 + column].item())
    beta_a = BETA_A_UNIT * layer.capsules.beta_a.detach().numpy()
    mu, activation = em_by_hand(np.array(votes), np.array(a), beta_a, layer.capsules.beta_u.detach().numpy(), 3)
    np.testing.assert_allclose(above[1, :, :, 1, 2].detach().numpy(), mu, rtol=1e-9)
    np.testing.assert_allclose(active[1, :, 1, 2].detach().numpy(), activation, rtol=1e-9)


def test_primary_capsules_see_relu_s_and_have_an_activation_each(small: EmCapsNet) -> None:
    """An activation is a sigmoid of its own: types do not compete for one."""
    given = []
    small.conv_caps1.register_forward_pre_hook(lambda module, args: given.extend(args[:2]))
    images = torch.rand(2, 1, 28, 28)
    small(images)
    x = F.conv2d(images, small.conv1.weight, small.conv1.bias, stride=2)
    assert (x < 0).any()  # what ReLU takes away
    x = F.relu(x)
    poses = F.conv2d(x, small.pose.weight, small.pose.bias).view(2, 2, 16, 12, 12)
    logits = F.conv2d(x, small.activation.weight, small.activation.bias)
    torch.testing.assert_close(given[0], poses)
    torch.testing.assert_close(given[1], 1 / (1 + torch.exp(-logits)))


def test_w_starts_near_the_identity() -> None:
    torch.manual_seed(0)
    noise = MatrixCapsules(72, 16, iterations=3).weight.detach() - torch.eye(4)
    assert noise.mean().item() == pytest.approx(0, abs=0.001)
    assert noise.std().item() == pytest.approx(0.03, rel=0.03)


def test_coordinates_are_added_to_the_right_hand_column_of_the_class_votes(small: EmCapsNet) -> None:
    poses = torch.randn(2, 4, 16, 3, 5)
    votes = small.class_votes(poses).view(2, 3, 5, 4, 10, 4, 4)
    for row, column, kind in [(0, 0, 0), (2, 1, 3), (1, 4, 2)]:
        plain = poses[1, kind, :, row, column].view(4, 4) @ small.class_caps.weight[kind, 7]
        moved = plain.clone()
        moved[0, 3] += (row + 0.5) / 3
        moved[1, 3] += (column + 0.5) / 5
        torch.testing.assert_close(votes[1, row, column, kind, 7], moved)


def test_a_class_capsule_shares_its_w_over_all_places(small: EmCapsNet) -> None:
    assert small.class_caps.weight.shape == (4, 10, 4, 4)
    torch.testing.assert_close(small.class_caps.beta_a * BETA_A_UNIT, torch.full((10,), -1000.0))


def test_routing_a_part_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    capsules = MatrixCapsules(6, 3, iterations=3)
    poses, a = torch.randn(11, 6, 4, 4), torch.rand(11, 6)
    whole = capsules(poses, a)
    monkeypatch.setattr("capsbench.models.em_capsnet.CHUNK_BYTES", {"cpu": 4 * 6 * 3 * 16 * 4})
    parts = capsules(poses, a)
    torch.testing.assert_close(parts.poses, whole.poses)
    torch.testing.assert_close(parts.scores, whole.scores)


def test_gradient_reaches_every_weight_in_float64() -> None:
    torch.manual_seed(0)
    capsules = MatrixCapsules(3, 2, iterations=2).double()
    poses = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    a = torch.rand(2, 3, dtype=torch.float64).add(0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p, q: capsules(p, q)[0:3:2], (poses, a))
    capsules(poses, a).scores.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in capsules.parameters())


@pytest.mark.parametrize(("spec", "asked", "taken"), [(2, None, 2), (3, 1, 1)])
def test_every_layer_makes_the_passes_that_the_spec_or_the_caller_asks_for(
    monkeypatch: pytest.MonkeyPatch, spec: int, asked: int | None, taken: int
) -> None:
    made = []
    monkeypatch.setattr(
        em_capsnet, "em_matrix", lambda *given, **more: made.append(given[4]) or em_matrix(*given, **more)
    )
    build_model({"base": "em-matrix", **SMALL, "iterations": spec})(torch.rand(1, 1, 28, 28), asked)
    assert made == [taken] * 3


def test_each_vote_for_a_class_has_the_activation_of_its_own_capsule(
    small: EmCapsNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places by rows, at each of them the types, as `class_votes` has them."""
    above, routed = [], []
    small.conv_caps2.register_forward_hook(lambda _, __, answer: above.extend(answer))
    route = small.class_caps.route
    monkeypatch.setattr(small.class_caps, "route", lambda *given: routed.append(given[:2]) or route(*given))
    small(torch.rand(2, 1, 28, 28))
    (_, activations), ((votes, given),) = above, routed
    assert votes.shape[:2] == given.shape == (2, 3 * 3 * 4)
    for row, column, kind in [(0, 1, 0), (2, 0, 3), (1, 2, 2)]:
        assert torch.equal(given[:, (row * 3 + column) * 4 + kind], activations[:, kind, row, column])
