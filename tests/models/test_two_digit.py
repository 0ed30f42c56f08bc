"""The two-digit models: first weights as the source's library draws them, and what capsules without routing are."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from capsbench.models import build_model


def is_uniform(weight: Tensor, inputs: int, outputs: int) -> bool:
    """Whether `weight` fills [-l, l] evenly, l = sqrt(6 / (inputs + outputs))."""
    limit = math.sqrt(6 / (inputs + outputs))
    near = weight.abs().max().item() / limit
    return 0.97 < near <= 1 and weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.06)


@pytest.mark.parametrize("variant", ["two-digit-average-mlp", "two-digit-sum-linear", "two-digit-kmeans"])
def test_convolutions_and_dense_layers_start_as_glorot_and_bengio_say(variant: str) -> None:
    torch.manual_seed(1)
    layers = [m for m in build_model(variant).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) >= 4
    for layer in layers:
        places = 9 if isinstance(layer, nn.Conv2d) else 1
        outputs, inputs = layer.weight.shape[:2]
        assert is_uniform(layer.weight, places * inputs, places * outputs), layer
        assert layer.bias is not None
        assert not layer.bias.any()


def test_w_of_the_capsules_starts_as_one_matrix_to_all_of_them() -> None:
    torch.manual_seed(1)
    capsules = build_model("two-digit-kmeans").capsules
    assert capsules.weight.shape == (1, 10, 128, 16)
    assert is_uniform(capsules.weight, 128, 160)


def test_capsules_with_uniform_couplings_are_sums_whose_lengths_are_scores() -> None:
    """docs/two-digits-why.md says so: W is shared, so the votes' sum is W times a sum, but for a tenth and a bias."""
    capsules, sums = build_model("two-digit-uniform").double(), build_model("two-digit-sum-vectors").double()
    sums.convolutions.load_state_dict(capsules.convolutions.state_dict())
    with torch.no_grad():
        sums.classes.weight.copy_(capsules.capsules.weight[0].permute(0, 2, 1).flatten(0, 1) / 10)  # [J, d, D]
    images = torch.rand(3, 1, 56, 28, dtype=torch.float64)
    ours, theirs = sums(images), capsules(images)
    torch.testing.assert_close(ours.scores, theirs.scores, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ours.poses, theirs.poses, rtol=1e-9, atol=1e-12)
    assert theirs.scores.min() > 0


def test_one_pass_of_dynamic_routing_is_uniform_couplings() -> None:
    """docs/two-digits-routing.md calls that row so."""
    uniform = build_model("two-digit-uniform")
    one_pass = build_model({"base": "two-digit-dynamic", "iterations": 1})
    one_pass.load_state_dict(uniform.state_dict())
    images = torch.rand(3, 1, 56, 28)
    assert torch.equal(one_pass(images).poses, uniform(images).poses)
