"""Losses on values computed by hand, and the schedule."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_steps import small_step

from capsbench.data.batch import Batch
from capsbench.plan import load_variants
from capsbench.plan.schema import Training
from capsbench.training import step as step_module
from capsbench.training.exact_set import found
from capsbench.training.losses import (
    RECONSTRUCTION_WEIGHT,
    classification_loss,
    margin_loss,
    multi_hot,
    probabilities,
    reconstruction_loss,
    reconstruction_weight,
    spread_loss,
    spread_margin,
)
from capsbench.training.schedule import rate_at
from capsbench.training.step import adam


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margin_loss_by_hand(dtype: torch.dtype) -> None:
    lengths = torch.tensor([[0.95, 0.05, 0.30], [0.50, 0.90, 0.10]], dtype=dtype)
    targets = torch.tensor([[1, 0, 0], [1, 0, 1]])
    # row 1: present 0 (0.95 > 0.9); absent 0 and 0.5 * 0.2^2; row 2: 0.4^2 + 0.8^2 present, 0.5 * 0.8^2 absent
    expected = torch.tensor([0.5 * 0.04, 0.16 + 0.64 + 0.5 * 0.64], dtype=dtype)
    torch.testing.assert_close(margin_loss(lengths, targets), expected)
    assert margin_loss(lengths, targets).dtype == dtype


def test_margin_loss_s_margins_and_weight_are_arguments() -> None:
    lengths, targets = torch.tensor([[0.5, 0.5]]), torch.tensor([[1, 0]])
    value = margin_loss(lengths, targets, positive=0.8, negative=0.2, down_weight=0.25)
    torch.testing.assert_close(value, torch.tensor([0.3**2 + 0.25 * 0.3**2]))


def test_margin_loss_is_squared_and_summed_over_classes() -> None:
    lengths = torch.rand(7, 10, dtype=torch.float64)
    targets = multi_hot(torch.arange(7)[:, None])
    by_hand = np.zeros(7)
    for b in range(7):
        for k in range(10):
            length = lengths[b, k].item()
            by_hand[b] += max(0, 0.9 - length) ** 2 if k == b else 0.5 * max(0, length - 0.1) ** 2
    np.testing.assert_allclose(margin_loss(lengths, targets).numpy(), by_hand, rtol=1e-12)


def test_spread_loss_by_hand() -> None:
    activations = torch.tensor([[0.7, 0.3, 0.6], [0.2, 0.9, 0.1]])
    targets = torch.tensor([[1, 0, 0], [0, 1, 0]])
    # at margin 0.5: gaps 0.4 and 0.1, then 0.7 and 0.8
    expected = torch.tensor([0.1**2 + 0.4**2, 0.0])
    torch.testing.assert_close(spread_loss(activations, targets, 0.5), expected)
    # at margin 0.9: gaps as before, each 0.9 - gap squared
    expected = torch.tensor([0.5**2 + 0.8**2, 0.2**2 + 0.1**2])
    torch.testing.assert_close(spread_loss(activations, targets, 0.9), expected)
    both = spread_loss(activations[:1], torch.tensor([[1, 0, 1]]), 0.5)  # two digits: 0.7 - 0.3 and 0.6 - 0.3
    torch.testing.assert_close(both, torch.tensor([0.1**2 + 0.2**2]))


def test_the_spread_loss_s_margin_grows_along_training_and_no_other_loss_does() -> None:
    assert [spread_margin(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.55, 0.9])
    scores, labels = torch.rand(4, 10), torch.arange(4)[:, None]
    em, capsnet = load_variants()["em-matrix"], load_variants()["capsnet-r3"]
    expected = spread_loss(scores, multi_hot(labels), 0.2)
    torch.testing.assert_close(classification_loss(em, scores, labels, progress=0.0), expected)
    assert (classification_loss(em, scores, labels) > expected).all()
    assert torch.equal(
        classification_loss(capsnet, scores, labels, progress=0.0), classification_loss(capsnet, scores, labels)
    )


def test_progress_in_a_tensor_gives_the_bits_of_the_number() -> None:
    em, scores, labels = load_variants()["em-matrix"], torch.rand(64, 10), torch.randint(0, 10, (64, 1))
    for step in range(300):
        number = step / 300
        tensor = torch.ones((), dtype=torch.float64).fill_(number)
        given, expected = (classification_loss(em, scores, labels, progress) for progress in (tensor, number))
        assert given.dtype == expected.dtype
        assert torch.equal(given, expected)


def test_a_target_is_torch_s_one_hot() -> None:
    labels = torch.arange(10)[:, None]
    assert torch.equal(multi_hot(labels), torch.nn.functional.one_hot(labels[:, 0], 10).float())


def test_negative_log_likelihood_by_hand() -> None:
    spec = load_variants()["capsnet-self-routing"]
    scores = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.1, 0.9]])
    loss = classification_loss(spec, scores, torch.tensor([[1], [0]]))
    assert loss[0].item() == pytest.approx(math.log(4))
    assert loss[1].isfinite()  # a probability of zero costs much, not infinity
    assert loss[1] > 80


def test_reconstruction_is_weighed_by_the_spec_of_whatever_model_has_a_decoder() -> None:
    weights = {name: reconstruction_weight(spec) for name, spec in load_variants().items()}
    assert weights["capsnet-r3-recon"] == weights["cnn-recon"] == 0.0005
    assert weights["capsnet-official"] == 0.01
    assert weights["cnn"] == weights["capsnet-r3"] == weights["em-matrix"] == weights["two-digit-kmeans"] == 0


def test_reconstruction_is_a_sum_not_a_mean() -> None:
    drawn, digits = torch.full((2, 28, 28), 0.5), torch.zeros(2, 28, 28)
    torch.testing.assert_close(reconstruction_loss(drawn, digits), torch.full((2,), 784 * 0.25))
    # twenty times: the authors' margin loss has a factor 0.5 and a mean over ten classes, their reconstruction neither
    assert RECONSTRUCTION_WEIGHT == {"none": 0.0, "paper": 0.0005, "official": 20 * 0.0005}


def test_two_digits_are_two_ones() -> None:
    assert multi_hot(torch.tensor([[3, 8], [0, 9]])).nonzero().tolist() == [[0, 3], [0, 8], [1, 0], [1, 9]]


def test_cross_entropies_are_torch_s() -> None:
    logits, labels = torch.randn(5, 10), torch.randint(0, 10, (5, 1))
    spec = load_variants()["cnn"]
    expected = torch.nn.functional.cross_entropy(logits, labels[:, 0], reduction="none")
    torch.testing.assert_close(classification_loss(spec, logits, labels), expected)
    pairs = torch.tensor([[1, 2]] * 5)
    sigmoid = classification_loss(load_variants()["multimnist-cnn"], logits, pairs)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, multi_hot(pairs), reduction="none").sum(1)
    torch.testing.assert_close(sigmoid, expected)


def test_two_digits_share_the_probability_of_a_cross_entropy() -> None:
    logits, spec = torch.randn(5, 10), load_variants()["cnn"]
    first, second = (classification_loss(spec, logits, torch.full((5, 1), digit)) for digit in (1, 2))
    both = classification_loss(spec, logits, torch.tensor([[1, 2]] * 5))
    torch.testing.assert_close(both, (first + second) / 2)


def test_logits_of_a_cross_entropy_become_shares_of_one() -> None:
    made = probabilities(load_variants()["cnn"], torch.tensor([[0.0, math.log(2), math.log(5)]]))
    torch.testing.assert_close(made, torch.tensor([[1 / 8, 2 / 8, 5 / 8]]))


def test_probabilities_of_high_logits_keep_their_order() -> None:
    logits = torch.tensor([[20.0, 19.0, 18.0, -3.0], [17.0, 16.5, 16.3, 0.0]])
    made = probabilities(load_variants()["multimnist-cnn"], logits)
    assert made.dtype == torch.float64
    assert found(made, torch.tensor([[0, 1], [1, 0]])).all()
    assert not found(logits.sigmoid(), torch.tensor([[0, 1], [1, 0]])).all()  # in float32 three of them are one
    torch.testing.assert_close(made.float(), logits.sigmoid())


def test_the_published_decay() -> None:
    training = Training(steps=300_000, decay_period=2000)
    assert rate_at(0, 300_000, training) == 1e-3
    assert rate_at(2000, 300_000, training) == pytest.approx(0.96e-3)
    assert rate_at(299_999, 300_000, training) == pytest.approx(2.2e-6, rel=0.01)
    assert rate_at(10**7, 10**7, training) == 1e-6


@pytest.mark.parametrize("period", [900, 20_000])
def test_a_period_that_is_a_number_of_steps_is_that_many(period: int) -> None:
    """MultiMNIST's is ten times MNIST's (section 6)."""
    training = Training(steps=300_000, decay_period=period)
    assert rate_at(period, 300_000, training) == pytest.approx(0.96e-3)
    assert rate_at(3 * period // 2, 300_000, training) == pytest.approx(0.96**1.5 * 1e-3)  # it falls all the time


def test_a_short_run_s_scaled_decay_ends_where_the_published_one_ends() -> None:
    scaled = Training(epochs=100.0, decay_period="scaled")
    published = Training(steps=300_000, decay_period=2000)
    for share in (0.0, 0.25, 0.5, 1.0):
        ours = rate_at(round(share * 46_875), 46_875, scaled)
        assert ours == pytest.approx(rate_at(round(share * 300_000), 300_000, published), rel=1e-3)


@pytest.mark.parametrize(
    ("variant", "weight"), [("two-digit-kmeans", 0.25), ("two-digit-kmeans-half", 0.5), ("cnn-margin", 0.5)]
)
def test_a_variant_s_own_weight_of_absent_classes_is_its_loss_s(variant: str, weight: float) -> None:
    spec = load_variants()[variant]
    scores, labels = torch.rand(4, 10), torch.arange(4)[:, None]
    expected = margin_loss(scores, multi_hot(labels), down_weight=weight)
    torch.testing.assert_close(classification_loss(spec, scores, labels), expected)


def test_the_optimiser_is_adam_with_tensorflow_s_defaults() -> None:
    (group,) = adam(torch.nn.Linear(1, 1), 1e-3, on_device=False).param_groups
    found = {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")}
    assert found == {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "maximize": False,
    }  # fmt: skip


def test_each_of_two_digits_is_drawn_towards_its_own_picture() -> None:
    step = small_step("capsnet-r3-recon", "multimnist")
    model, images = step.model, torch.rand(2, 1, 36, 36)
    labels, digits = torch.tensor([[1, 2], [3, 4]]), torch.rand(2, 2, 36, 36)
    total, classification, drawing = step.losses(Batch(images, labels, digits))
    output = model(images)
    expected = sum(
        (model.reconstruct(output.poses, labels[:, n]) - digits[:, n]).square().sum((1, 2)).mean() for n in (0, 1)
    )
    torch.testing.assert_close(drawing, expected)
    torch.testing.assert_close(classification, margin_loss(output.scores, multi_hot(labels)).mean())
    torch.testing.assert_close(total, classification + 0.0005 * drawing)


def test_a_step_takes_its_own_batch_s_gradient_at_the_rate_that_it_is_given() -> None:
    step = small_step("capsnet-r3")
    weights = list(step.model.parameters())
    step(0, 1e-3)
    moved = [weight.detach().clone() for weight in weights]
    step(1, 0.0)
    assert all(torch.equal(weight, before) for weight, before in zip(weights, moved, strict=True))
    expected = torch.autograd.grad(step.losses(step.stream.batch(1))[0], weights)
    for weight, gradient in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient)


def test_a_precision_s_seconds_are_those_of_its_fastest_step_after_one_that_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that is given. The first step, whatever it takes, may be the library's first of its kind."""
    now, made = [0.0], []

    def way(number: int, rate: float) -> None:
        now[0] += (1, 5, 3, 4)[number]
        made.append(number)

    monkeypatch.setattr(step_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert small_step("capsnet-r3").seconds(way) == 3
    assert made == [0, 1, 2, 3]
