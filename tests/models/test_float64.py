"""Every kind of model computes in float64 when it is asked to: what float32 is held against."""

from __future__ import annotations

import pytest
import torch

from capsbench.models import build_model

VARIANTS = [
    *("cnn", "capsnet-r1", "capsnet-r1-recon", "capsnet-r3", "capsnet-r3-recon"),
    *("cnn-recon", "cnn-vectors", "resnet-flops", "em-matrix", "two-digit-kmeans", "two-digit-average-mlp"),
    *("capsnet-em-vector", "capsnet-primary-scale-official"),
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_in_float64_answers_in_float64(variant: str) -> None:
    torch.manual_seed(0)
    model = build_model(variant, image_size=28).eval()
    images = torch.rand(2, 1, 28, 28)
    labels = torch.tensor([3, 7])
    with torch.inference_mode():
        single = model(images)
        drawn = model.reconstruct(single.poses, labels) if getattr(model, "decoder", None) else None
        model.double()
        double = model(images.double())
        assert double.scores.dtype == torch.float64
        assert torch.allclose(single.scores.double(), double.scores, atol=1e-4)
        assert not torch.equal(single.scores.double(), double.scores)  # float32 would have been used inside
        if drawn is not None:
            again = model.reconstruct(double.poses, labels)
            assert again.dtype == torch.float64
            assert torch.allclose(drawn.double(), again, atol=1e-4)
