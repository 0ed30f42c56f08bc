"""docs/protocol.md: what it says of "here" is what the code and the shipped plans do."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from pages import words_of
from protocol_page import NUMBER, TO, cell, cells, last_rate, lengths, said
from torch import nn

from capsbench.data import affine, mnist, multimnist, order
from capsbench.data.affnist import CANVAS, FACTORS, MAX_SHIFT, SyntheticAffnist
from capsbench.data.batch import DigitSet
from capsbench.data.multimnist import PairSet, overlap
from capsbench.data.testing import TEST_SEED
from capsbench.plan import load_variants
from capsbench.plan.schema import SHORT_EPOCHS, Training
from capsbench.plan.task import PUBLISHED_STEPS, TEST_DIGITS, TRAINING_DIGITS
from capsbench.plan.tasks import (
    AFFNIST_EPOCHS,
    DRAWN_PAIRS,
    PAPER_PAIRS,
    TEST_PAIRS,
    AffnistTask,
    MultimnistTask,
    TwoDigitTask,
)
from capsbench.training.losses import RECONSTRUCTION_WEIGHT, margin_loss
from capsbench.training.schedule import rate_at
from capsbench.training.step import adam


def digits(count: int = 200) -> DigitSet:
    """A digit of ink in the middle, as MNIST's are: more of them than shifts."""
    images = torch.zeros(count, 28, 28, dtype=torch.uint8)
    images[:, 6:22, 8:20] = 255
    return DigitSet(images, torch.arange(count) % 10)


def test_how_mnist_is_shown() -> None:
    here = cell("MNIST", "shifts")
    (side,) = said(rf"up to {NUMBER} pixels each way", cell("MNIST", "shifts", column=2))
    assert inspect.signature(mnist.training_stream).parameters["max_shift"].default == side
    assert said(rf"one of {NUMBER}, drawn", here) == [(2 * side + 1) ** 2]
    images = mnist.training_stream(digits(), seed=0, batch=200).batch(0).images
    assert len(images.flatten(1).unique(dim=0)) == (2 * side + 1) ** 2
    assert images.unique().tolist() == [0, 1]  # 255 divided by 255
    assert said(rf"divided by {NUMBER}", cell("MNIST", "pixels")) == [255]
    assert torch.equal(mnist.test_images(digits(), 0, 200)[:, 0] * 255, digits().images.float())
    assert said(rf"{NUMBER} and {NUMBER}", cell("MNIST", "digits", column=2)) == [TRAINING_DIGITS, TEST_DIGITS]


def test_batch_rate_and_decay_are_one_default_for_every_row_of_mnist() -> None:
    training = Training(steps=PUBLISHED_STEPS, decay_period="published")
    assert said(rf"{NUMBER}, theirs", cell("MNIST", "batch")) == [training.batch]
    rate, decay, period, floor = said(
        rf"max\({NUMBER} x {NUMBER}\^\(step / {NUMBER}\), {NUMBER}\)", cell("MNIST", "rate", column=3)
    )
    assert (training.rate, training.decay, training.floor) == (rate, decay, floor)
    for step in (0, 777, 123_456, PUBLISHED_STEPS):
        assert rate_at(step, PUBLISHED_STEPS, training) == max(rate * decay ** (step / period), floor)
    scaled, steps, end = said(
        rf"shorter period \({NUMBER} steps in {NUMBER}\) and ends at {NUMBER} too", cell("MNIST", "rate")
    )
    assert lengths("paper", "mnist") == {steps}
    assert scaled == period * steps / PUBLISHED_STEPS
    assert end == pytest.approx(rate_at(PUBLISHED_STEPS, PUBLISHED_STEPS, training), rel=0.02)
    for one in cells("paper", "mnist"):  # the CNN's too
        told = (one.training.batch, one.training.rate, one.training.decay, one.training.floor)
        assert told == (training.batch, rate, decay, floor)
        assert last_rate(one, int(steps)) == pytest.approx(end, rel=0.02)


def test_how_long_mnist_trains_and_with_which_seeds() -> None:
    epochs, steps = said(rf"`paper.yaml`: {NUMBER} epochs \({NUMBER} steps\)", cell("MNIST", "length"))
    assert (epochs, {steps}) == (SHORT_EPOCHS, lengths("paper", "mnist"))
    assert said(rf"^{NUMBER} steps", cell("MNIST", "length", column=3)) == [PUBLISHED_STEPS]
    assert lengths("paper-authors", "mnist") == {PUBLISHED_STEPS}
    first, last = said(rf"seeds {TO}", cell("MNIST", "runs"))
    assert {one.seeds for one in cells("paper", "mnist")} == {tuple(range(int(first), int(last) + 1))}


def test_the_optimiser_s_numbers() -> None:
    *betas, eps = said(rf"betas {NUMBER} and {NUMBER}, epsilon {NUMBER}", cell("MNIST", "optimiser", column=3))
    (group,) = adam(nn.Linear(1, 1), 1e-3, on_device=False).param_groups
    assert ([*group["betas"]], group["eps"]) == (betas, eps)


@pytest.mark.parametrize("step", [1, 1000])
def test_epsilon_is_1e_8_where_pytorch_adds_it(step: int) -> None:
    """docs/not-the-paper.md: with a gradient as small as epsilon a step is half the rate."""
    weight = nn.Linear(1, 1, bias=False).double()
    optimiser = adam(weight, 1e-3, on_device=False)
    for _ in range(step):
        before = weight.weight.item()
        weight.weight.grad = torch.full((1, 1), 1e-8, dtype=torch.float64)
        optimiser.step()
    assert before - weight.weight.item() == pytest.approx(1e-3 / 2, rel=1e-6)
    times = 1 / math.sqrt(1 - 0.999**step)
    words = words_of("docs/not-the-paper.md")
    told = said(rf"theirs is {NUMBER} times ours in the first step and {NUMBER} times in the thousandth", words)
    assert told[step == 1000] == pytest.approx(times, rel=0.04)


def test_the_losses_of_capsnet() -> None:
    positive, negative, weight = said(
        rf"margins {NUMBER} and {NUMBER}, lambda {NUMBER}", cell("MNIST", "classes' loss", column=2)
    )
    loss = inspect.signature(margin_loss).parameters
    assert [loss[name].default for name in ("positive", "negative", "down_weight")] == [positive, negative, weight]
    assert load_variants()["capsnet-r3-recon"].down_weight == weight
    (reconstruction,) = said(rf"^{NUMBER} x sum", cell("MNIST", "reconstruction", column=2))
    assert RECONSTRUCTION_WEIGHT["paper"] == reconstruction
    assert said(rf", {NUMBER} each", cell("MultiMNIST", "decoder")) == [reconstruction]


def test_how_affnist_trains() -> None:
    options: Any = cells("paper", "affnist")[0].options
    assert said(rf"one of {NUMBER} places", cell("affNIST", "training images")) == [(2 * MAX_SHIFT + 1) ** 2]
    assert f"{CANVAS}x{CANVAS}" in cell("affNIST", "training images", column=2)
    trained, held_out = said(rf"^{NUMBER}: the first {NUMBER} are held", cell("affNIST", "training digits"))
    assert (TRAINING_DIGITS - options.held_out, options.held_out) == (trained, held_out)
    epochs, steps = said(rf"{NUMBER} epochs \({NUMBER} steps\)", cell("affNIST", "length"))
    assert (epochs, {steps}) == (AFFNIST_EPOCHS, lengths("paper", "affnist"))
    assert {one.training.batch for one in cells("paper", "affnist")} == {Training(epochs=1.0).batch}
    assert options.download_official  # "tries to download them"
    assert not AffnistTask.model_fields["download_official"].default


def test_how_affnist_synth_is_made() -> None:
    told = said(rf"rotation {TO} degrees, shear {TO}, horizontal and vertical scale {TO}")
    names = ("rotation", "shear", "scale_x")
    assert told == [end for name in names for end in affine.RANGES[name]]
    assert affine.RANGES["scale_y"] == affine.RANGES["scale_x"]
    transforms, count, seed = said(
        rf"It has {NUMBER} transforms of each of {NUMBER} test digits.*drawn from seed {NUMBER}:"
    )
    assert (AffnistTask.model_fields["transforms"].default, TEST_DIGITS, TEST_SEED) == (transforms, count, seed)
    one = {"rotation": 90.0, "shear": 0.5, "scale_y": 3.0, "scale_x": 2.0}
    (matrix,) = affine.matrices(*(np.array([one[name]]) for name in affine.RANGES))
    scaled = np.array([2.0, 3.0])
    sheared = np.array([scaled[0] + 0.5 * scaled[1], scaled[1]])
    turned = np.array([sheared[1], -sheared[0]])  # anticlockwise as one sees it, y down
    np.testing.assert_allclose(matrix @ np.ones(2), turned, atol=1e-12)
    made = SyntheticAffnist(digits(3), per_digit=200, seed=TEST_SEED)
    down = made.parameters["translation_y"]
    assert (down != down.round()).mean() > 0.9  # fractions too
    assert torch.equal((made.images(0, 20) * 255).round() * (1 / 255), made.images(0, 20))  # whole grey levels


def test_how_affnist_is_measured() -> None:
    every, images, fewer, level = said(
        rf"every {NUMBER} steps .* \({NUMBER} images; in `paper.yaml` {NUMBER}, spread evenly.* fit is at {NUMBER} %"
    )
    fields, options = AffnistTask.model_fields, cells("paper", "affnist")[0].options
    assert [fields[name].default for name in ("probe_every", "probe_images")] == [every, images]
    assert (options.probe_every, options.probe_images) == (every, fewer)  # type: ignore[attr-defined]
    assert fields["matched_at"].default == level / 100
    count, rotation, shear, small, large, shift = said(
        rf"on {NUMBER} test digits else centred.* rotation to {NUMBER} degrees, shear to {NUMBER}, both scales {TO}, "
        rf"translation down and right to {NUMBER} pixels"
    )
    assert fields["factor_images"].default == count
    ends = {name: (min(values), max(values)) for name, values in FACTORS.items()}
    assert ends == {
        "rotation": (-rotation, rotation),
        "shear": (-shear, shear),
        "scale": (small, large),
        "translation": (-shift, shift),
    }
    assert {len(values) for values in FACTORS.values()} == {9}


def test_how_multimnist_s_pairs_are_made() -> None:
    pairs, tests = said(rf"each digit: {NUMBER} and, to test, {NUMBER}", cell("MultiMNIST", "pairs", column=2))
    assert (pairs, tests) == (PAPER_PAIRS, TEST_PAIRS)
    fields = MultimnistTask.model_fields
    assert [fields[name].default for name in ("train_pairs", "test_pairs")] == [pairs, tests]
    shift, boxes, paper_s = said(
        rf"up to {NUMBER}, for each digit of each pair; 28x28 boxes overlap by {NUMBER} on average, the 20x20 boxes "
        rf"that the paper speaks of by {NUMBER}",
        cell("MultiMNIST", "shifts on 36x36"),
    )
    assert (multimnist.MAX_SHIFT["paper"], fields["placement"].default) == (shift, "paper")
    assert said(rf"^up to {NUMBER};", cell("MultiMNIST", "shifts on 36x36", column=3)) == [
        multimnist.MAX_SHIFT["official"]
    ]
    made = PairSet(digits(), seed=0, size=30_000).make(torch.arange(30_000))
    assert [float(overlap(made, side).mean()) for side in (28, 20)] == pytest.approx([boxes, paper_s], abs=0.01)
    assert len({(a, b) for a, b in made.bases.tolist()}) == 30_000  # no partner twice
    assert said(rf"blocks of {NUMBER}", cell("MultiMNIST", "order")) == [order.BLOCK]


def test_how_multimnist_trains_and_is_measured() -> None:
    period, steps, scaled, fewer, end = said(
        rf"^{NUMBER} steps in {NUMBER}; `paper.yaml` {NUMBER} in {NUMBER}, both ending at {NUMBER}",
        cell("MultiMNIST", "rate"),
    )
    found = said(
        rf"{NUMBER} steps, {NUMBER} pairs, seeds {TO}, for time; `paper-authors.yaml`: {NUMBER}, all pairs once",
        cell("MultiMNIST", "length"),
    )
    assert found == [fewer, fewer * 128, 0, 2, steps]
    for plan, own, length in (("paper-authors", period, steps), ("paper", scaled, fewer)):
        assert lengths(plan, "multimnist") == {length}
        for one in cells(plan, "multimnist"):
            assert (one.training.decay_period, one.training.batch) == (own, 128)
            assert last_rate(one, int(length)) == pytest.approx(end, rel=0.02)
            assert one.seeds == (0, 1, 2)
    assert steps * 128 == PAPER_PAIRS
    (drawn,) = said(rf"measured on the first {NUMBER} test pairs")
    assert MultimnistTask.model_fields["segmentation_pairs"].default == DRAWN_PAIRS == drawn
    assert said(rf"same test pairs \(seed {NUMBER}\)") == [TEST_SEED]


def test_the_two_digits() -> None:
    epochs, rate, weight, pairs, last = said(
        rf"for {NUMBER} epochs, at a constant rate of {NUMBER}, with the margin loss \(lambda {NUMBER}\); tests on "
        rf"{NUMBER} pairs .* last {NUMBER} epochs"
    )
    found = {one.variant: one for one in cells("paper", "two_digit")}["two-digit-average-mlp"]
    assert (found.training.epochs, found.training.rate, found.training.decay) == (epochs, rate, 1.0)
    assert (found.spec.loss, found.spec.down_weight) == ("margin", weight)
    fields = TwoDigitTask.model_fields
    assert [fields[name].default for name in ("pairs", "last_epochs")] == [pairs, last]
