"""Calibration: bins against torchmetrics, and what over- and underconfidence are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from capsbench.evaluation.calibration import BINS, calibration_error, overconfidence, reliability


def answers(seed: int, count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(count, 10, generator=generator) ** (1 + seed)
    return scores, torch.where(torch.rand(count, generator=generator) < 0.6, scores.argmax(1), 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_calibration_error_is_that_of_torchmetrics(seed: int) -> None:
    scores, labels = answers(seed)
    theirs = multiclass_calibration_error(scores, labels, num_classes=10, n_bins=BINS, norm="l1")
    assert calibration_error(reliability(scores, labels)) == pytest.approx(100 * float(theirs), abs=1e-4)


def test_each_bin_has_its_images_with_their_mean_score_and_share_of_right_answers() -> None:
    high = torch.tensor([0.9, 0.92, 0.5, 0.0, 1.0])
    scores = torch.stack([high, torch.zeros(5)], dim=1)
    frame = reliability(scores, torch.tensor([0, 1, 0, 1, 0]))
    rows = frame[["images", "confidence", "accuracy"]].to_numpy().tolist()
    expected = [[1, 0.0, 0.0], [1, 0.5, 1.0], [2, 0.91, 0.5], [1, 1.0, 1.0]]
    assert [pytest.approx(row, abs=1e-6) for row in expected] == rows
    assert frame["confidence_low"].tolist() == pytest.approx([0, 7 / 15, 13 / 15, 14 / 15])
    assert (frame["confidence_high"] - frame["confidence_low"]).tolist() == pytest.approx([1 / 15] * 4)


def test_a_score_on_an_edge_is_of_the_bin_below_it() -> None:
    edge = float(np.linspace(0, 1, BINS + 1)[6])
    frame = reliability(torch.full((3, 1), edge, dtype=torch.float64), torch.zeros(3, dtype=torch.int64))
    assert frame["confidence_high"].tolist() == [edge]


@pytest.mark.parametrize(("score", "right", "expected"), [(0.9, 10, (10, -10)), (0.9, 7, (20, 20)), (0.5, 5, (0, 0))])
def test_promising_less_than_is_kept_is_underconfidence(score: float, right: int, expected: tuple[int, int]) -> None:
    scores = torch.tensor([[score, 0.0]]).repeat(10, 1)
    bins = reliability(scores, torch.tensor([0] * right + [1] * (10 - right)))
    assert (calibration_error(bins), overconfidence(bins)) == pytest.approx(expected, abs=1e-5)


def test_each_bin_weighs_as_much_as_it_has_images() -> None:
    """Nine answers of 0.9, all right, promise 10 % less than they keep; one of 0.5, wrong, promises 50 % more."""
    scores = torch.tensor([[0.9, 0.0]] * 9 + [[0.5, 0.0]])
    bins = reliability(scores, torch.tensor([0] * 9 + [1]))
    assert calibration_error(bins) == pytest.approx((9 * 10 + 50) / 10, abs=1e-5)
    assert overconfidence(bins) == pytest.approx((9 * -10 + 50) / 10, abs=1e-5)


def test_scores_that_pass_1_by_rounding_fall_into_the_last_bin() -> None:
    scores = torch.tensor([[1.0000001, 0.0]])
    assert reliability(scores, torch.tensor([0]))["confidence_high"].tolist() == [1.0]
