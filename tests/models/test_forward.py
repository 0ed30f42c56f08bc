"""What CapsNet's rivals compute, by hand from their own layers: pooling, order of places, dropout, residual sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models import build_model


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def trunk(model: nn.Module, images: Tensor) -> Tensor:
    """The two-digit models' convolutions: images [B, 1, H, W] to [B, C, h, w]."""
    a, b, c, d = model.convolutions
    return F.relu(d(F.relu(c(F.avg_pool2d(F.relu(b(F.relu(a(images)))), 2)))))


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [("average", lambda x: x.mean((2, 3))), ("sum", lambda x: x.sum((2, 3))), ("max", lambda x: x.amax((2, 3)))],
)
@pytest.mark.parametrize("head", ["mlp", "linear"])
def test_the_two_digit_cnn(pooling: str, pooled: Callable[[Tensor], Tensor], head: str) -> None:
    model, images = build_model(f"two-digit-{pooling}-{head}").eval(), torch.rand(2, 1, 56, 28)
    features = pooled(trunk(model, images))  # [B, 128]
    assert len(model.dense) == (head == "mlp")
    for layer in model.dense:
        features = F.relu(layer(features))
    torch.testing.assert_close(model(images).scores, model.classes(features).sigmoid())


def test_a_lower_capsule_of_the_two_digit_model_is_one_place_s_channels() -> None:
    model, images = build_model("two-digit-kmeans").eval(), torch.rand(2, 1, 56, 28)
    given: list[Tensor] = []
    model.capsules.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
    model(images)
    maps = trunk(model, images)  # [B, 128, 22, 8]
    assert given[0].shape == (2, 22 * 8, 128)
    for row, column in ((0, 0), (3, 5), (21, 7)):
        torch.testing.assert_close(given[0][:, 8 * row + column], maps[:, :, row, column])


def test_the_pooling_cnn_of_affnist() -> None:
    model = build_model({"base": "cnn-pool", "channels": [2, 3, 4], "dense": [5, 6]}, 40).eval()
    images = torch.rand(2, 1, 40, 40)
    x = images
    for convolution, pool in zip(model.convolutions, model.spec.pools, strict=True):
        x = F.relu(F.conv2d(x, convolution.weight, convolution.bias, padding=2))
        x = F.max_pool2d(x, pool)
    assert max(model.spec.pools) == 2
    x = x.flatten(1)
    for layer in model.dense:
        x = F.relu(layer(x))
    torch.testing.assert_close(model(images).scores, model.classes(x))


def test_its_dropout_is_of_whole_maps_and_in_training_alone() -> None:
    model = build_model({"base": "cnn-pool", "channels": [8, 8, 8], "dense": [5, 6], "dropout": 0.0}, 40)
    images = torch.rand(2, 1, 40, 40)
    assert 0 < model.spec.conv_dropout < 1
    seen: list[Tensor] = []
    model.convolutions[1].register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    for training in (True, True, False, False):
        model.train(training)(images)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], seen[3])
    dropped = (seen[0] == 0).flatten(2).all(2)  # [B, C]
    kept = seen[2][~dropped] / (1 - model.spec.conv_dropout)
    assert dropped.any()
    torch.testing.assert_close(seen[0][~dropped], kept)


def test_convnet_avg_averages_over_all_places() -> None:
    model = build_model({"base": "convnet-avg", "channels": [2, 3]}, 40).eval()
    images = torch.rand(2, 1, 40, 40)
    x = images
    for convolution in model.convolutions:
        x = F.relu(convolution(x))
    assert x.shape[2] > 1
    torch.testing.assert_close(model(images).scores, model.classes(x.mean((2, 3))))


def test_a_residual_block_adds_its_input() -> None:
    model, images = build_model("resnet-flops").eval(), torch.rand(2, 1, 28, 28)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # else they would be identities
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    x = F.relu(model.stem[1](model.stem[0](images)))
    for stage in model.stages:
        for block in stage:
            y = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(x)))))
            around = x
            if not isinstance(block.shortcut, nn.Identity):
                convolution, normalisation = block.shortcut
                around = normalisation(F.conv2d(x, convolution.weight, stride=block.stride))
            x = F.relu(around + y)
    torch.testing.assert_close(model(images).scores, model.classes(x.mean((2, 3))))


@pytest.mark.parametrize(("loss", "linked"), [("margin", True), ("spread", True), ("cross-entropy", False)])
@pytest.mark.parametrize("variant", [{"base": "cnn", "channels": [4, 4, 4]}, {"base": "resnet-flops", "channels": [4]}])
def test_a_loss_that_wants_activations_gets_sigmoids(variant: dict[str, object], loss: str, linked: bool) -> None:
    model, logits = build_model({**variant, "loss": loss}).eval(), []
    model.classes.register_forward_hook(lambda *given: logits.append(given[2]))
    scores = model(torch.rand(2, 1, 28, 28)).scores
    torch.testing.assert_close(scores, logits[0].sigmoid() if linked else logits[0])
