"""A model from outside: what the suite puts around it, and what is wrong with one, in a sentence before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.models import build_model
from capsbench.models.repeatable import build_and_try_twice
from capsbench.plan.load import build_spec
from capsbench.plan.variants import Spec

FILE = """
import random
import torch
from torch import nn

CALLS = []

class Good(nn.Module):
    def __init__(self, image_size, width=1.0, bias=True):
        super().__init__()
        self.pixels = image_size**2
        self.vectors = nn.Linear(self.pixels, 10 * max(1, round(16 * width)), bias=bias)

    def forward(self, images):
        poses = self.vectors(images.flatten(1)).unflatten(1, (10, -1))
        length = poses.square().sum(2).add(1e-9).sqrt()
        return length / (1 + length), poses

class Logits(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Linear(784, 10)

    def forward(self, images):
        return self.classes(images.flatten(1))

def made(classes=10):
    net = Logits()
    net.classes = nn.Linear(784, classes)
    return net

def a_number():
    return 3.0

class AnySize(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Conv2d(1, 10, 5)

    def forward(self, images):
        return self.classes(images).mean((2, 3))

class Anything(Logits):
    def __init__(self, **options):
        super().__init__()

class Needy(Logits):
    def __init__(self, strength):
        super().__init__()

class Raising(Logits):
    def __init__(self):
        super().__init__()
        self.weight = {}["weight"]

class Crash(Logits):
    def forward(self, images):
        return super().forward(images).reshape(3, 7)

class Text(Logits):
    def forward(self, images):
        return "scores"

class Transposed(Logits):
    def forward(self, images):
        return super().forward(images).t()

class Doubles(Logits):
    def forward(self, images):
        return super().forward(images).double()

class Nan(Logits):
    def forward(self, images):
        return super().forward(images) / 0

class NanOnBlack(Good):
    def forward(self, images):
        x = images.flatten(1)
        return Good.forward(self, x / x.norm(dim=1, keepdim=True))

class Steep(Good):
    def forward(self, images):
        scores, poses = Good.forward(self, images)
        return scores + (poses * 0).sum(2).sqrt(), poses

class Idle(Logits):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)

class Frozen(Idle):
    def __init__(self):
        super().__init__()
        self.head.requires_grad_(False)

class AllFrozen(Logits):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)

class Detached(Logits):
    def forward(self, images):
        return super().forward(images).detach()

class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.LazyLinear(10)

    def forward(self, images):
        return self.classes(images.flatten(1))

class InPlace(Logits):
    def forward(self, images):
        return super().forward(images.mul_(2))

class Dropping(Logits):
    def forward(self, images):
        return super().forward(nn.functional.dropout(images, 0.5, self.training))

class Normed(Logits):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, images):
        return super().forward(self.norm(images))

class Noisy(Logits):
    def forward(self, images):
        return super().forward(images + torch.randn_like(images))

class Python(Logits):
    def forward(self, images):
        return super().forward(images * (random.random() if self.training else 1))

class Counting(Logits):
    def forward(self, images):
        CALLS.append(1)
        return super().forward(images * (1 if self.training else len(CALLS)))

class Across(Logits):
    def forward(self, images):
        return super().forward(images - images.mean(0))

class Setting(Logits):
    def __init__(self):
        super().__init__()
        torch.set_float32_matmul_precision("medium")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_models.py").write_text(FILE)
    return tmp_path


def spec_of(name: str, **values: object) -> Spec:
    return build_spec({"model": f"my_models:{name}", "loss": "cross-entropy", **values}, Path("plan.yaml"), "mine")


def test_scores_and_poses_are_the_network_s_and_the_decoder_is_the_suite_s(folder: Path) -> None:
    torch.manual_seed(0)
    model = build_model(spec_of("Good", loss="margin", reconstruction="paper"), 28, folder)
    images = torch.rand(5, 1, 28, 28)
    output = model(images)
    scores, poses = model.net(images)
    assert torch.equal(output.scores, scores)
    assert torch.equal(output.poses, poses)
    assert model.reconstruct(poses, torch.arange(5)).shape == (5, 28, 28)
    paper = build_model("capsnet-r3-recon")
    assert [p.shape for p in model.decoder.parameters()] == [p.shape for p in paper.decoder.parameters()]
    assert build_model(spec_of("Good", loss="margin"), 28, folder).decoder is None
    assert build_model(spec_of("Logits"), 28, folder)(images).poses is None


def test_a_constructor_gets_what_it_takes(folder: Path) -> None:
    assert build_model(spec_of("Good", loss="margin"), 40, folder).net.pixels == 1600
    half = spec_of("Good", loss="margin", model_options={"bias": False}).scaled(0.5)
    net = build_model(half, 28, folder).net
    assert net.vectors.weight.shape == (80, 784)
    assert net.vectors.bias is None
    assert half.scaled(0.5).width == 0.25
    assert spec_of("Good", loss="margin", reconstruction="paper").scaled(0.5).decoder == [256, 512]
    assert build_model(spec_of("made", model_options={"classes": 10}), 28, folder).net.classes.out_features == 10
    build_model(spec_of("Anything", model_options={"whatever": 1}), 28, folder)


WRONG = {
    "made": ({"model_options": {"clases": 9}}, "model_options: it takes no option 'clases'; did you mean 'classes'?"),
    "Logits": ({"model_options": {"depth": 9}}, "model_options: it takes no option 'depth'; it takes none."),
    "Missing": ({}, "my_models has no 'Missing'"),
    "a_number": ({}, "must be a torch.nn.Module or return one, not float."),
    "CALLS": ({}, "must be a function or a subclass of torch.nn.Module, not []."),
    "Needy": ({}, "model_options: its constructor needs 'strength'; say it there."),
    "Raising": ({}, "my_models.py, line |it raised KeyError: 'weight'."),
    "Crash": ({}, "my_models.py, line |it raised RuntimeError: "),
    "Text": ({}, "it must return scores [B, 10], or scores and poses [B, 10, D], not str."),
    "Transposed": ({}, "it must return scores [3, 10], not [10, 3]."),
    "Doubles": ({}, "it must return scores of torch.float32, not torch.float64."),
    "Nan": ({}, "its scores are not finite."),
    "NanOnBlack": ({"loss": "margin"}, "its scores are not finite."),
    "Steep": ({"loss": "margin"}, "the gradient of its parameter vectors.weight is not finite."),
    "Idle": ({}, "no gradient comes back to its parameter head.weight, so it cannot be learned; use it, or freeze it"),
    "AllFrozen": ({}, "it has no parameter that learns."),
    "Detached": ({}, "no gradient comes back to its parameter classes.weight"),
    "Lazy": ({}, "a lazy layer has no size before its first image; give it one."),
    "InPlace": ({}, "it changes its images in place"),
    "Noisy": ({}, "shown the same images again, in evaluation, it gives other scores"),
    "Python": ({}, "in training, from the same seed of torch, it gives other scores the second time"),
    "Counting": ({}, "shown the same images again, in evaluation, it gives other scores"),
    "Across": ({}, "in evaluation an image's scores depend on the other images of its batch"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_model_is_said(folder: Path, name: str) -> None:
    values, sentence = WRONG[name]
    with pytest.raises(RoutingError) as error:
        build_and_try_twice(spec_of(name, **values), 28, folder)
    assert str(error.value).startswith(f"model 'my_models:{name}'")
    assert all(part in str(error.value) for part in sentence.split("|"))
    assert "routing" not in str(error.value)


def test_scores_have_to_be_what_the_loss_takes(folder: Path) -> None:
    for loss in ("margin", "spread", "nll"):
        with pytest.raises(RoutingError, match=rf"loss {loss} takes scores in \[0, 1\], not -"):
            build_and_try_twice(spec_of("Logits", loss=loss), 28, folder)
    for loss in ("cross-entropy", "sigmoid-cross-entropy"):
        build_and_try_twice(spec_of("Logits", loss=loss), 28, folder)
    with pytest.raises(
        RoutingError, match=r"poses \[3, 10, 16\], which reconstruction: paper draws from, not NoneType"
    ):
        build_and_try_twice(spec_of("Logits", reconstruction="paper"), 28, folder)
    with pytest.raises(
        RoutingError, match=r"poses \[3, 10, 8\], which reconstruction: paper draws from, not \[3, 10, 16"
    ):
        build_and_try_twice(spec_of("Good", loss="margin", reconstruction="paper", dim=8), 28, folder)


def test_a_model_of_any_size_takes_two_digits(folder: Path) -> None:
    build_and_try_twice(spec_of("AnySize", any_size=True), 28, folder)
    with pytest.raises(
        RoutingError, match=r"model 'my_models:Logits': my_models.py, line \d+: it raised RuntimeError: "
    ):
        build_and_try_twice(spec_of("Logits", any_size=True), 28, folder)


def test_a_width_that_changes_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(RoutingError, match=r"it takes no `width`, so the plan's width 0.125 would change nothing"):
        build_model(spec_of("Logits").scaled(0.125), 28, folder)


@pytest.mark.parametrize("name", ["Dropping", "Normed", "Frozen"])
def test_what_is_random_or_looks_across_a_batch_in_training_alone_is_no_fault(folder: Path, name: str) -> None:
    build_and_try_twice(spec_of(name), 28, folder)


def test_the_trial_leaves_no_trace(folder: Path) -> None:
    torch.manual_seed(0)
    untried = build_model(spec_of("Normed"), 28, folder).state_dict()
    torch.manual_seed(0)
    tried = build_and_try_twice(spec_of("Normed"), 28, folder).state_dict()
    assert all(torch.equal(value, tried[key]) for key, value in untried.items())


def test_torch_s_settings_are_nobody_s_to_change(folder: Path) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        with pytest.raises(
            RoutingError, match="model 'my_models:Setting': it changes the precision of float32 products"
        ):
            build_and_try_twice(spec_of("Setting"), 28, folder)
    finally:
        torch.set_float32_matmul_precision(before)
