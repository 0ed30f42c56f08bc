"""On a CPU a capsule layer makes and routes the votes of a few images at a time, to the same result and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.models import build_model, capsule_layer
from capsbench.models.capsnet import CapsNet

OUTSIDE = """
from capsbench.routing import Routed, length, squash

def route(votes):
    v = squash(votes.mean(1))
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))
"""


def answers(model: CapsNet, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
    model.zero_grad()
    output = model(images, trace=True)
    assert output.poses is not None
    (output.scores.square().sum() + output.poses.square().sum()).backward()
    assert output.couplings is not None
    assert output.trace is not None
    gradient = model.digit_caps.weight.grad
    assert gradient is not None
    return output.scores, output.poses, output.couplings, output.trace[-1].logits, gradient.clone()


@pytest.mark.parametrize(
    "variant", ["capsnet-r3-recon", "capsnet-em-vector", "capsnet-self-routing", "capsnet-share-type"]
)
@pytest.mark.parametrize("images_at_a_time", [1, 3, 4])
def test_a_few_images_at_a_time_change_nothing(
    monkeypatch: pytest.MonkeyPatch, variant: str, images_at_a_time: int
) -> None:
    torch.manual_seed(2)
    model = build_model({"base": variant, "channels": 8, "primary_types": 2, "reconstruction": "none"})
    assert isinstance(model, CapsNet)
    images = torch.rand(7, 1, 28, 28)
    whole = answers(model, images)
    monkeypatch.setattr(capsule_layer, "VOTE_BYTES", images_at_a_time * 72 * 10 * 16 * 4)
    seen: list[int] = []
    model.digit_caps.routing.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    parts = answers(model, images)
    assert sum(seen) == 7
    assert max(seen) == images_at_a_time
    for a, b in zip(parts, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_routing_from_outside_sees_all_images_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may look across the batch in training; in parts it would be another routing on a CPU than on a GPU."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    variant = {"base": "capsnet-r3", "channels": 8, "primary_types": 2, "routing": "outside:route"}
    model = build_model(variant, 28, tmp_path)
    assert isinstance(model, CapsNet)
    monkeypatch.setattr(capsule_layer, "VOTE_BYTES", 1)
    seen: list[int] = []
    model.digit_caps.routing.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    model(torch.rand(5, 1, 28, 28))
    assert seen == [5]


def test_a_fused_layer_makes_the_passes_it_is_asked_for_and_is_plain_where_passes_or_values_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fused routing keeps no pass and looks at no vote. What stands for it here notes its passes."""
    model = build_model({"base": "capsnet-r3", "channels": 8, "primary_types": 2})
    assert isinstance(model, CapsNet)
    layer, u = model.digit_caps, torch.rand(2, 72, 8)
    passes: list[int] = []
    monkeypatch.setattr(capsule_layer, "runs", lambda u, weight: True)
    monkeypatch.setattr(layer.routing, "fused", lambda u, weight, iterations: passes.append(iterations) or "fused")
    layer.fused = True
    assert layer(u) == layer(u, 1) == "fused"
    assert passes == [3, 1]
    assert len(layer(u, trace=True).trace) == 3
    layer.check_values = True
    with pytest.raises(RoutingError, match="not finite"):
        layer(u / 0)
    assert passes == [3, 1]


@pytest.mark.parametrize("variant", ["capsnet-r3", "em-matrix"])
def test_no_pass_at_all_is_refused_and_not_taken_for_none_said(variant: str) -> None:
    model = build_model(variant, 28).eval()
    with torch.no_grad(), pytest.raises(RoutingError, match="iterations must be a whole number, at least 1, not 0"):
        model(torch.rand(1, 1, 28, 28), iterations=0)
