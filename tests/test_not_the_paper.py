"""docs/not-the-paper.md: every test it names exists, and those that belong to no other file are here."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from stand_ins import Reader, trained
from torch import nn

from capsbench.data import mnist as mnist_data
from capsbench.data.batch import Batch, DigitSet
from capsbench.data.digits import Digits, load_digits
from capsbench.evaluation import mnist as mnist_evaluation
from capsbench.models import build_model, squash
from capsbench.models.output import Output
from capsbench.pipeline import dataset_record, open_house
from capsbench.plan import load_variants
from capsbench.plan.variants import CapsNetSpec
from capsbench.training.checkpoint import read_tensors, tensor_digest
from capsbench.training.losses import margin_loss, multi_hot, reconstruction_loss
from capsbench.training.run import Setting, make_stream, new_model, train_run
from capsbench.training.schedule import rate_at
from capsbench.training.step import Step

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"base": "capsnet-r3-recon", "channels": 16, "primary_types": 2, "decoder": [8, 16]}


@pytest.fixture
def digits() -> DigitSet:
    generator = torch.Generator().manual_seed(0)
    return DigitSet(
        torch.randint(1, 256, (200, 28, 28), generator=generator, dtype=torch.uint8),
        torch.randint(0, 10, (200,), generator=generator),
    )


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "not-the-paper.md").read_text()))
    assert len(named) > 20
    source = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    missing = [name for name in sorted(named) if f"def {name}(" not in source]
    assert not missing


def test_labels_do_not_reach_the_routing() -> None:
    model = build_model(SMALL)
    for forward, given in [
        (model.forward, {"images", "iterations", "trace"}),
        (model.digit_caps.forward, {"u", "iterations", "trace"}),
        (model.digit_caps.routing.forward, {"votes", "children", "iterations", "trace", "check_values"}),
    ]:
        assert set(inspect.signature(forward).parameters) == given  # nothing of the batch but its images


def test_capsnet_is_trained_with_the_margin_loss() -> None:
    for name, spec in load_variants().items():
        if isinstance(spec, CapsNetSpec) and re.match(r"capsnet-r\d", name):
            assert (spec.loss, spec.down_weight, spec.reconstruction != "none") == ("margin", 0.5, "recon" in name)


def test_the_default_squash_is_the_paper_s() -> None:
    spec = load_variants()["capsnet-r3-recon"]
    assert (spec.squash, spec.primary_squash) == ("hinton", "hinton")
    s = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(squash(s), 25 / 26 * s / 5)


def test_capsnet_has_no_normalisation_layers() -> None:
    kinds = {type(module) for module in build_model(SMALL).modules()}
    norms = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.RMSNorm)
    assert not [kind for kind in kinds if issubclass(kind, norms)]


def test_digits_are_grey_and_have_one_channel(digits: DigitSet) -> None:
    images = mnist_data.training_stream(digits, seed=0, batch=64).batch(0).images
    assert images.shape == (64, 1, 28, 28)
    assert len(images.unique()) > 100
    assert 0 <= images.min() <= images.max() <= 1


def test_nothing_is_routed_between_conv1_and_the_primary_capsules() -> None:
    """Convolution, ReLU, convolution, squash: each capsule is that of eight channels at one place, as they come."""
    model = build_model(SMALL)
    images = torch.rand(3, 1, 28, 28)
    s = F.conv2d(F.relu(F.conv2d(images, *model.conv1.parameters())), *model.primary.parameters(), stride=2)
    u = model.primary_capsules(images)  # [3, 72, 8]
    for capsule_type, row, column in [(0, 0, 0), (0, 2, 5), (1, 5, 4)]:
        channels = s[:, 8 * capsule_type : 8 * (capsule_type + 1), row, column]  # [3, 8]
        torch.testing.assert_close(u[:, 36 * capsule_type + 6 * row + column], squash(channels))


def test_votes_are_w_times_u() -> None:
    layer = build_model(SMALL).digit_caps
    u = torch.rand(2, 72, 8)
    votes = layer.votes(u)
    for i, j in [(0, 0), (3, 7), (71, 9)]:
        torch.testing.assert_close(votes[1, i, j], u[1, i] @ layer.weight[i, j])


def test_the_loss_is_margin_and_reconstruction_and_nothing_else() -> None:
    torch.manual_seed(0)
    model = build_model(SMALL)
    images = torch.rand(4, 1, 28, 28)
    labels = torch.tensor([[1], [2], [3], [4]])
    step = Step(model, model.spec, stream=None, seed=0, precision="float32", rate=1e-3)
    total, classification, drawing = step.losses(Batch(images, labels, images))
    output = model(images)
    margin = margin_loss(output.scores, multi_hot(labels)).mean()
    squares = reconstruction_loss(model.reconstruct(output.poses, labels[:, 0]), images[:, 0]).mean()
    torch.testing.assert_close(torch.stack([classification, drawing]), torch.stack([margin, squares]))
    torch.testing.assert_close(total, margin + 0.0005 * squares)


def test_each_image_has_its_own_shift(digits: DigitSet) -> None:
    same = DigitSet(digits.images[:1].expand(200, 28, 28).contiguous(), digits.labels)
    images = mnist_data.training_stream(same, seed=0, batch=100).batch(0).images
    assert len(images.flatten(1).unique(dim=0)) == 25  # every shift of up to 2 px each way


class Onlooker(Reader):
    """A reader that keeps the pixels it is shown, [n, 28, 28] uint8 a batch."""

    def forward(self, images: torch.Tensor) -> Output:
        self.seen = [*getattr(self, "seen", []), (images[:, 0] * 255).round().to(torch.uint8)]
        return super().forward(images)


def test_test_images_are_never_shifted(digits: DigitSet, tmp_path: Path) -> None:
    train = DigitSet(digits.images.flip(0), digits.labels.flip(0))
    model = Onlooker()
    with torch.inference_mode():
        mnist_evaluation.evaluate(trained("mnist", model, Digits(train, digits), tmp_path))
    seen = torch.cat(model.seen)
    assert torch.equal(seen[:200], digits.images)
    assert torch.equal(seen[200:], train.images)  # for the training error: unshifted, too


def test_the_last_epoch_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored weights are those after the last step, whatever the test images say: none is ever picked on them."""
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path))
    monkeypatch.setenv("CAPSBENCH_STAND_IN", "1")
    monkeypatch.delenv("CAPSBENCH_DATA", raising=False)
    path = tmp_path / "tiny.yaml"
    path.write_text(
        "{budget: reduced, seeds: [0], uci_digits: true, width: 0.0625, tasks: {mnist: {variants: [capsnet-r3]}},"
        " training: {steps: 12, batch: 16, precision: float32}}"
    )
    house, source = open_house(path, download=False)
    digits = load_digits(source)
    setting = Setting(house, house.cells[0], digits, dataset_record(source), torch.device("cpu"), 1, print)
    model = new_model(setting, 0)
    step = Step(model, model.spec, make_stream(setting.cell, digits.train, 0), 0, "float32", 1e-3)
    for number in range(12):
        step(number, rate_at(number, 12, setting.cell.training))
    wrong = digits._replace(test=digits.test._replace(labels=9 - digits.test.labels))
    train_run(replace(setting, digits=wrong), 0, lambda *_: None)
    stored = read_tensors(house.run_folder(setting.cell, 0) / "weights.safetensors").tensors
    assert tensor_digest(stored) == tensor_digest(model.state_dict())
