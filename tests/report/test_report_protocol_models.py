"""docs/protocol.md: what it says of models, their tuning, arithmetic and first weights is what the code has."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from protocol_page import NUMBER, cell, cells, house, said
from torch import nn

from capsbench.models import build_model, count_parameters
from capsbench.plan import config_folder, load_variants
from capsbench.plan.tuning import DECAYS, RATES

SIZES = {"CapsNet": 28, "cnn": 28, "cnn-valid": 40, "cnn-pool": 40, "convnet-avg": 40, "multimnist-cnn": 36}


@pytest.mark.parametrize("name", SIZES)
def test_models_have_the_parameters_that_the_page_gives_them(name: str) -> None:
    variant = "capsnet-r3-recon" if name == "CapsNet" else name
    with torch.device("meta"):
        ours = count_parameters(build_model(variant, image_size=SIZES[name]))
    assert ours in [
        int(word.replace(",", "")) for word in re.findall(r"\d{1,2}(?:,\d{3}){2}", cell("The models", name))
    ]
    if name == "cnn-pool":
        with torch.device("meta"):
            assert f"CapsNet {count_parameters(build_model('capsnet-r3-recon', 40)):,}" in cell("The models", name)


def test_the_layers_of_the_cnns() -> None:
    specs: dict[str, Any] = dict(load_variants())
    cnn, pool, average, pairs = (specs[name] for name in ("cnn", "cnn-pool", "convnet-avg", "multimnist-cnn"))
    table_1 = cell("The models", "cnn", column=2)
    assert [cnn.channels, cnn.dense] == [[256, 256, 128], [328, 192]]
    assert "5x5 convolutions of 256, 256 and 128, dense 328 and 192" in table_1
    assert (cnn.kernels, cnn.padding, cnn.loss) == ([5, 5, 5], "same", "cross-entropy")
    assert said(rf"dropout {NUMBER} before", cell("The models", "cnn")) == [cnn.dropout]
    assert specs["cnn-valid"] == cnn.model_copy(
        update={name: getattr(specs["cnn-valid"], name) for name in ("padding", "home", "title", "source")}
    )
    assert specs["cnn-valid"].padding == "valid"
    ours = cell("The models", "cnn-pool")
    assert (pool.kernels, pool.padding, pool.pools) == ([5, 5, 5], "same", [2, 2, 1])
    assert said(rf"5x5 of {NUMBER}, {NUMBER} and {NUMBER}", ours) == pool.channels
    assert said(rf"channel dropout \({NUMBER}\)", ours) == [pool.conv_dropout]
    assert said(rf"dense {NUMBER} and {NUMBER}, dropout {NUMBER};", ours) == [*pool.dense, pool.dropout]
    assert "two 9x9 convolutions of 256, no padding, average over places, no dropout" in cell(
        "The models", "convnet-avg"
    )
    assert (average.kernels, average.channels, average.padding) == ([9, 9], [256, 256], "valid")
    assert (average.head, average.dense, average.dropout, average.loss) == ("average", [], 0, "cross-entropy")
    assert (pairs.channels, pairs.kernels, pairs.pools, pairs.dense) == ([512, 256], [9, 5], [2, 2], [1024])
    assert (pairs.padding, pairs.dropout, pairs.loss) == ("same", 0, "sigmoid-cross-entropy")
    assert "SAME padding" in cell("The models", "multimnist-cnn")
    assert "9x9 of 512, 5x5 of 256, each with 2x2 max-pooling, dense 1024" in cell(
        "The models", "multimnist-cnn", column=2
    )


def test_the_layers_of_the_capsules() -> None:
    specs: dict[str, Any] = dict(load_variants())
    capsnet, shared = specs["capsnet-r3-recon"], specs["capsnet-shared-uniform"]
    kernel, channels, types, child, dim, passes, *decoder = said(
        rf"^{NUMBER}x\d of {NUMBER}; 9x9, stride 2, of {NUMBER} types of {NUMBER}-D capsules.* ten of {NUMBER}-D"
        rf".* {NUMBER} passes.*decoder {NUMBER}, {NUMBER}, pixels",
        cell("The models", "CapsNet", column=2),
    )
    assert (capsnet.kernel, capsnet.channels, capsnet.primary_types) == (kernel, channels, types)
    assert (capsnet.primary_dim, capsnet.dim, capsnet.iterations) == (child, dim, passes)
    assert (capsnet.decoder, capsnet.bias, capsnet.primary_scale, capsnet.share) == (decoder, "paper", "paper", "none")
    assert (capsnet.detach_inner, capsnet.loss, capsnet.routing) == (False, "margin", "dynamic")
    assert (shared.share, shared.routing, shared.iterations, shared.reconstruction) == ("type", "uniform", 1, "paper")


def test_the_tuned_rows() -> None:
    rates, decays = (
        r"rates (0\.\d+), (0\.\d+) and (0\.\d+)",
        r"decays (0\.\d+), (0\.\d+) and (\d)",
    )
    assert [tuple(said(rates)), tuple(said(decays))] == [RATES, DECAYS]
    tuning = house("ablation").plan.tuning
    assert tuning is not None
    assert said(rf"best on {NUMBER} held-out training digits after {NUMBER} steps") == [tuning.held_out, tuning.steps]
    tuned = {one.variant for one in cells("ablation", "mnist") if one.tuned}
    assert {"cnn+tuned", "capsnet-r3-recon+tuned"} <= tuned


def test_every_shipped_plan_is_in_float32_but_for_rows_called_so() -> None:
    plans = [
        path.stem for path in config_folder().glob("*.yaml") if path.stem not in ("variants", "claims", "published")
    ]
    assert len(plans) > 10
    found = [one for plan in plans for one in house(plan).cells]
    assert {one.training.precision for one in found if "+bf16" not in one.variant} == {"float32"}
    assert {one.training.precision for one in found if "+bf16" in one.variant} == {"bf16"}


def layers(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear))


def test_the_first_weights() -> None:
    here = cell("What is the same everywhere", "first weights")
    torch.manual_seed(0)
    capsnet: Any = build_model("capsnet-r3-recon")
    (spread,) = said(rf"W normal, {NUMBER};", here)
    weight = capsnet.digit_caps.weight
    assert weight.std().item() == pytest.approx(spread, rel=0.01)
    assert weight.abs().max().item() > 4 * spread  # not truncated
    assert "uniform, at most 1/√fan-in, biases too" in here
    for layer in [*layers(capsnet), *layers(build_model("multimnist-cnn", 36))]:
        bound = layer.weight[0].numel() ** -0.5
        for values in (layer.weight, layer.bias):
            assert bound * 0.5 < values.abs().max().item() <= bound * (1 + 1e-6)
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
