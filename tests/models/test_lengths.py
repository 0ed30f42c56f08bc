"""The ladder's rung between CNN and CapsNet: the squashed lengths of ten vectors as scores; strides of convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from capsbench.errors import PlanError
from capsbench.models import build_model, count_parameters
from capsbench.models.build import as_spec
from capsbench.models.flops import forward_flops

NARROW = {"channels": [4, 4, 4], "dense": [12], "decoder": [8, 16]}


@pytest.mark.parametrize(
    "variant", [{"base": "cnn-vectors", **NARROW}, {"base": "two-digit-sum-vectors", "channels": [4, 4, 4, 8]}]
)
def test_scores_are_the_squashed_lengths_of_the_vectors(variant: dict[str, object]) -> None:
    torch.manual_seed(0)
    model = build_model(variant).eval()
    raw: list[torch.Tensor] = []
    layer = model.vectors if hasattr(model, "vectors") else model.classes
    assert isinstance(layer, nn.Linear)
    layer.register_forward_hook(lambda *given: raw.append(given[2]))
    output = model(torch.rand(3, 1, 28, 28))
    n = raw[0].double().view(3, 10, 16).norm(dim=2)
    assert torch.allclose(output.scores.double(), n**2 / (1 + n**2), atol=1e-6)  # equation 1's length
    assert torch.allclose(output.poses.norm(dim=2), output.scores, atol=1e-6)
    assert output.scores.dtype == torch.float32


def test_dropout_is_before_the_vectors_in_training_alone() -> None:
    torch.manual_seed(0)
    model = build_model({"base": "cnn-vectors", **NARROW, "dropout": 0.5})
    images = torch.rand(3, 1, 28, 28)
    assert not torch.equal(model(images).scores, model(images).scores)
    model.eval()
    assert torch.equal(model(images).scores, model(images).scores)


def test_the_decoder_reads_the_vectors_that_score() -> None:
    model = build_model({"base": "cnn-vectors", **NARROW})
    output = model(torch.rand(2, 1, 28, 28))
    model.reconstruct(output.poses, torch.tensor([3, 4])).sum().backward()
    assert model.vectors.weight.grad.abs().sum() > 0
    assert model.classes is None


def test_the_trunk_rung_has_capsnet_s_convolutions() -> None:
    with torch.device("meta"):
        rung, capsnet = build_model("cnn-vectors-trunk", 28), build_model("capsnet-uniform", 28)
    first, second = rung.convolutions
    assert first.weight.shape == capsnet.conv1.weight.shape
    assert second.weight.shape == capsnet.primary.weight.shape
    assert second.stride == capsnet.primary.stride
    # one dense layer of 9,216 x 160 reads ten vectors: as many numbers as 1,152 x 10 matrices of 8 x 16
    assert rung.vectors.weight.numel() == capsnet.digit_caps.weight.numel()
    assert count_parameters(rung) == count_parameters(capsnet) + 160  # the biases of the vectors


@pytest.mark.parametrize("size", [28, 36, 40])
def test_a_model_with_strides_fits_what_its_spec_says(size: int) -> None:
    spec = as_spec({"base": "cnn-vectors-trunk", "channels": [2, 3], "decoder": [4]})
    assert spec.smallest_image() == 17  # CapsNet's: 2 x 9 - 1
    assert build_model(spec, size)(torch.rand(1, 1, size, size)).scores.shape == (1, 10)
    build_model(spec, 17)
    with pytest.raises(PlanError, match="at least 17x17"):
        build_model(spec, 16)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"base": "cnn", "scores": "length"}, "loss must be margin or spread, not cross-entropy"),
        ({"base": "cnn", "strides": [2, 1, 1]}, "strides need padding: valid"),
        ({"base": "cnn-valid", "strides": [2]}, "channels names 3 convolutions, strides 1"),
        ({"base": "two-digit-dynamic", "scores": "length"}, "scores can be set only with head: pool"),
    ],
)
def test_what_would_do_nothing_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        as_spec(values)
    assert sentence in str(caught.value)


def test_flops_are_torch_s_count_of_one_image_s_forward_pass() -> None:
    model = build_model({"base": "cnn", "channels": [4, 4, 4], "dense": [12], "dropout": 0.5}).train()
    convolutions = 2 * 28 * 28 * 25 * (1 * 4 + 4 * 4 + 4 * 4)
    dense = 2 * (28 * 28 * 4 * 12 + 12 * 10)
    assert forward_flops(model, (28, 28)) == convolutions + dense
    assert model.training
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(8, 1, 28, 28))
    assert counter.get_total_flops() == 8 * forward_flops(model, (28, 28))


def test_counting_flops_leaves_running_means_as_they_were() -> None:
    """One black image is counted with: its mean would be part of the model from then on."""
    model = build_model({"base": "resnet-flops", "channels": [4, 8], "blocks": 1}).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward_flops(model, (28, 28))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
