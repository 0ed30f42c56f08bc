"""Under autocast to bf16 only the layers before capsules and classes compute in it: what follows stays in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from capsbench.models import build_model

SMALL = {"channels": 8, "primary_types": 2, "decoder": [8, 16]}
CNN = {"channels": [4, 4, 4], "decoder": [8, 16]}
TWO = {"channels": [4, 4, 8, 8]}
IMAGES = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([3, 1, 4])
MODELS: list[tuple[dict[str, Any], tuple[str, ...]]] = [  # and their parts that stay in float32
    ({"base": "capsnet-r3-recon", **SMALL}, ("digit_caps",)),
    ({"base": "em-matrix", "channels": 8, "primary_types": 2, "capsule_types": [3, 4]}, ("conv_caps1", "conv_caps2")),
    ({"base": "two-digit-kmeans", **TWO}, ("capsules",)),
    ({"base": "two-digit-average-mlp", **TWO}, ("dense.0", "classes")),
    ({"base": "two-digit-sum-vectors", **TWO}, ("classes",)),
    ({"base": "cnn-recon", **CNN}, ()),
    ({"base": "cnn-vectors", "dense": [12], **CNN}, ()),
    ({"base": "resnet-flops", "channels": [4, 8], "blocks": 1}, ()),
]


def tensors(values: object) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


@pytest.mark.parametrize(("variant", "parts"), MODELS, ids=[variant["base"] for variant, _ in MODELS])
def test_what_comes_out_is_float32_and_so_is_what_is_routed(variant: dict[str, Any], parts: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    model = build_model(variant).eval()
    seen: list[tuple[nn.Module, tuple[Any, ...], Any]] = []
    for name in parts:
        model.get_submodule(name).register_forward_hook(lambda *given: seen.append(given))
    with torch.no_grad():
        plain = model(IMAGES)
        seen.clear()
        with torch.autocast("cpu", torch.bfloat16):
            low = model(IMAGES)
            drawn = model.reconstruct(low.poses, LABELS) if getattr(model, "decoder", None) else None
        assert not torch.equal(low.scores, plain.scores)  # something was computed in bf16
        assert {tensor.dtype for tensor in tensors(low)} == {torch.float32}
        for module, given, answer in seen.copy():
            assert {tensor.dtype for tensor in tensors(given)} == {torch.float32}
            for found, expected in zip(tensors(answer), tensors(module(*given)), strict=True):
                assert torch.equal(found, expected)
        if drawn is not None:
            assert torch.equal(drawn, model.reconstruct(low.poses, LABELS))
