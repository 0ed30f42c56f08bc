"""A model from outside: what the suite puts around it, and what is wrong with one, in a sentence before it trains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.models import build_model
from capsbench.models.repeatable import build_and_try_twice
from capsbench.plan.load import build_spec
from capsbench.plan.variants import Spec

FILE = Path(__file__).with_name("outside_models.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(FILE, tmp_path / "my_models.py")
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
    "Counting": ({}, "in evaluation, another model with its weights and buffers gives other scores"),
    "Plain": ({}, "in evaluation, another model with its weights and buffers gives other scores"),
    "Mean": ({}, "in evaluation, another model with its weights and buffers gives other scores"),
    "Steps": ({}, "in training, another model with its weights and buffers gives other scores"),
    "InAList": ({}, "in evaluation, another model with its weights and buffers gives other scores"),
    "Generator": ({}, "in training, another model with its weights and buffers gives other scores"),
    "Later": ({}, "it makes extra when it first sees images, which is too late to be learned; make it in the"),
    "Numpy": ({}, "built twice from one seed of torch it starts with other weights the second time"),
    "OwnSeed": ({}, "it starts with the same weights whatever torch's seed is"),
    "Seeded": ({}, "it sets torch's seed, which is each run's own; leave it alone."),
    "Tied": ({}, "classes.weight and other.weight lie in the same memory, which a file of weights cannot hold"),
    "Extra": ({}, "its state has _extra_state, no tensor, which a file of weights cannot hold."),
    "Complex": ({}, "its parameter turn is of torch.complex64, not torch.float32."),
    "NanLater": ({}, "its scores are not finite."),
    "DoublePoses": (
        {"loss": "margin", "reconstruction": "paper"},
        "it must return poses of torch.float32, not torch.floa",
    ),
    "Pictures": ({}, "it must return poses [3, 10, 28], not [3, 28, 28]."),
    "Three": ({}, "it must return scores [B, 10], or scores and poses [B, 10, D], not tuple."),
    "Words": ({}, "it must return poses [3, 10, 16], not str."),
    "PosesAlone": ({}, "no gradient comes back to its parameter vectors.weight"),
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
        RoutingError, match=r"'my_models:Logits', shown images of 56x28: my_models.py, line \d+: it raised Runtime"
    ):
        build_and_try_twice(spec_of("Logits", any_size=True), 28, folder)


def test_a_width_that_changes_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(RoutingError, match=r"it takes no `width`, so the plan's width 0.125 would change nothing"):
        build_model(spec_of("Logits").scaled(0.125), 28, folder)


@pytest.mark.parametrize(
    ("channels", "options", "refused"),
    [
        (2, {}, True),
        (15, {}, True),
        (4, {"stride": [1, 2]}, True),
        (4, {"padding": "valid"}, True),
        (1, {}, False),
        (16, {}, False),
        (4, {"stride": 1}, False),
        (4, {"groups": 4}, False),
        (4, {"padding": 1}, False),
        (4, {"kernel_size": 2}, False),
    ],
)
def test_a_convolution_whose_gradient_damages_memory_is_refused(
    folder: Path, channels: int, options: dict[str, object], refused: bool
) -> None:
    """The others are tried; one of these would take the process with it, or not, and on another machine otherwise."""
    spec = spec_of("Strided", model_options={"channels": channels, **options})
    if not refused:
        build_and_try_twice(spec, 28, folder)
        return
    with pytest.raises(RoutingError, match=f"skip is a 1x1 convolution of {channels} channels with a stride, whose"):
        build_and_try_twice(spec, 28, folder)


def test_what_is_to_be_done_instead_of_it_is_the_same() -> None:
    torch.manual_seed(0)
    images, skip = torch.rand(3, 4, 28, 28), torch.nn.Conv2d(4, 8, 1, stride=(2, 3))
    with torch.no_grad():
        expected = skip(images)
        skip.stride = (1, 1)
        torch.testing.assert_close(skip(images[:, :, ::2, ::3]), expected)


def test_probabilities_sum_to_one(folder: Path) -> None:
    with pytest.raises(RoutingError, match=r"loss nll takes scores that sum to 1, not to [3-7]"):
        build_and_try_twice(spec_of("Sigmoids", loss="nll"), 28, folder)
    build_and_try_twice(spec_of("Sigmoids", loss="margin"), 28, folder)


def test_width_and_size_are_the_plan_s(folder: Path) -> None:
    for word in ("width", "image_size"):
        with pytest.raises(RoutingError, match=f"model_options: {word} is the plan's; leave it out."):
            build_model(spec_of("Good", loss="margin", model_options={word: 1}), 28, folder)


def test_files_of_one_name_beside_two_plans_are_each_plan_s_own(tmp_path: Path) -> None:
    for name, features in (("one", 11), ("two", 12)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "constants.py").write_text(f"FEATURES = {features}\n")
        (tmp_path / name / f"net_{name}.py").write_text(
            "import torch\nfrom constants import FEATURES\n\ndef net():\n    return torch.nn.Sequential("
            "torch.nn.Flatten(), torch.nn.Linear(784, FEATURES), torch.nn.Linear(FEATURES, 10))\n"
        )
    for name, features in (("one", 11), ("two", 12), ("one", 11)):
        spec = build_spec({"model": f"net_{name}:net", "loss": "cross-entropy"}, Path("plan.yaml"), "mine")
        assert build_model(spec, 28, tmp_path / name).net[1].out_features == features


@pytest.mark.parametrize("name", ["Dropping", "Normed", "Frozen", "Shares"])
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
