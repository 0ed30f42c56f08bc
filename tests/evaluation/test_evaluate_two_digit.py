"""Two-digit evaluation: means of the last epochs, the final weights, single digits; and a whole small run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from stand_ins import Reader, coded_digits, trained
from torch import Tensor

from capsbench.data.digits import Digits
from capsbench.errors import DataError
from capsbench.evaluation.two_digit import evaluate, exactly_above_half
from capsbench.models.output import Output
from capsbench.training import scoring

DIGITS = Digits(coded_digits(100), coded_digits(60))
COLUMNS = [f"{c}.{m}" for c in ("56x28", "28x56") for m in ("top2_accuracy", "both_above_half_accuracy")]


def curve(folder: Path, *rows: tuple[float, ...]) -> None:
    frame = pd.DataFrame(rows, columns=["step", "epoch", *COLUMNS])
    frame.to_csv(folder / "curve.csv", index=False)


def metrics(condition) -> dict[str, float]:
    return {name: value for name, (value, _) in condition.metrics.items()}


@torch.inference_mode()
def test_means_of_the_last_epochs_beside_the_final_weights(tmp_path) -> None:
    curve(tmp_path, (4, 1, 0.5, 0.25, 0.4, 0.1), (7, 2, 0.7, 0.35, 0.6, 0.3))
    tall, wide = evaluate(trained("two_digit", Reader(pairs=True, high=0.45), DIGITS, tmp_path, pairs=80))
    final = {
        "final_top2_accuracy": 100.0, "final_both_above_half_accuracy": 0.0, "final_exact_above_half_accuracy": 0.0,
        "single_error": 0.0,
    }  # fmt: skip
    assert metrics(tall) == pytest.approx({"top2_accuracy": 60.0, "both_above_half_accuracy": 30.0} | final)
    assert metrics(wide) == pytest.approx({"top2_accuracy": 50.0, "both_above_half_accuracy": 20.0} | final)
    assert (tall.name, wide.name) == ("56x28", "28x56")
    assert {unit for _, unit in tall.metrics.values()} == {"%"}
    assert tall.images == wide.images == 80


@torch.inference_mode()
def test_every_epoch_of_the_curve_weighs_alike(tmp_path) -> None:
    curve(tmp_path, (4, 1, 0.2, 0.1, 0.0, 0.0), (7, 2, 0.7, 0.4, 0.3, 0.0), (10, 3, 0.9, 0.4, 0.3, 0.3))
    tall, wide = evaluate(trained("two_digit", Reader(pairs=True), DIGITS, tmp_path, pairs=80))
    means = [(metrics(of)["top2_accuracy"], metrics(of)["both_above_half_accuracy"]) for of in (tall, wide)]
    assert means == [pytest.approx((60.0, 30.0)), pytest.approx((20.0, 10.0))]


def test_what_is_above_half_must_be_the_two_digits_and_no_other() -> None:
    labels = torch.tensor([[0, 2]] * 5)
    scores = torch.tensor([
        [0.9, 0.1, 0.6, 0.5],  # half is not above half
        [0.9, 0.1, 0.6, 0.51],  # the two highest are right, but a third one is said too
        [0.9, 0.1, 0.5, 0.1],
        [0.1, 0.9, 0.6, 0.1],
        [0.9, 0.1, float("nan"), 0.1],
    ])  # fmt: skip
    assert exactly_above_half(scores, labels).tolist() == [True, False, False, False, False]


class Loud(Reader):
    """Says a third class too, above one half and below the two that it read."""

    def forward(self, images: Tensor) -> Output:
        scores = super().forward(images).scores
        return Output(scores.scatter_(1, scores.argmin(1, keepdim=True), 0.55))


@pytest.mark.parametrize(("model", "exact"), [(Reader, 100.0), (Loud, 0.0)])
@torch.inference_mode()
def test_a_third_class_above_one_half_spoils_the_exact_answer_and_no_other(
    tmp_path: Path, model: type[Reader], exact: float
) -> None:
    curve(tmp_path, (4, 1, 1.0, 1.0, 1.0, 1.0))
    for condition in evaluate(trained("two_digit", model(pairs=True), DIGITS, tmp_path, pairs=80)):
        found = metrics(condition)
        assert (found["final_top2_accuracy"], found["final_both_above_half_accuracy"]) == (100, 100)
        assert found["final_exact_above_half_accuracy"] == exact


@torch.inference_mode()
def test_a_model_that_is_always_wrong(tmp_path) -> None:
    curve(tmp_path, (4, 1, 0.0, 0.0, 0.0, 0.0))
    run = trained("two_digit", Reader(off=1, pairs=True), DIGITS, tmp_path, pairs=80)
    for condition in evaluate(run):
        assert set(metrics(condition).values()) == {0.0, 100.0}
        assert metrics(condition)["single_error"] == 100.0


@torch.inference_mode()
def test_the_predictions_say_what_was_scored(tmp_path) -> None:
    curve(tmp_path, (4, 1, 1.0, 1.0, 1.0, 1.0))
    run = trained("two_digit", Reader(pairs=True), DIGITS, tmp_path, pairs=80, test_images=40)
    for condition in evaluate(run):
        stored = condition.arrays["predictions"]
        assert {name: (array.shape, array.dtype) for name, array in stored.items()} == {
            "bases": ((80, 2), np.uint16),
            "top2_accuracy": ((80,), np.uint8), "both_above_half_accuracy": ((80,), np.uint8),
        }  # fmt: skip
        every = condition.arrays["scores"]
        assert {name: (array.shape, array.dtype) for name, array in every.items()} == {
            "labels": ((80, 2), np.uint8), "scores": ((80, 10), np.float16),
        }  # fmt: skip
        for name in ("top2_accuracy", "both_above_half_accuracy"):
            assert 100 * stored[name].mean() == condition.metrics[f"final_{name}"][0]
        assert np.array_equal(DIGITS.test.labels.numpy()[stored["bases"]], every["labels"])
        assert stored["bases"].max() < 40
        assert np.array_equal(np.sort(np.argsort(every["scores"], axis=1)[:, -2:]), np.sort(every["labels"]))


@torch.inference_mode()
def test_digits_beyond_the_plan_s_number_are_not_tested_alone(tmp_path) -> None:
    curve(tmp_path, (4, 1, 1.0, 1.0, 1.0, 1.0))
    labels = torch.arange(60) % 10
    labels[40:] = (labels[40:] + 1) % 10
    digits = Digits(coded_digits(100), coded_digits(60, labels))
    for count, error in ((40, 0.0), (60, 100 * 20 / 60)):
        run = trained("two_digit", Reader(pairs=True), digits, tmp_path, pairs=20, test_images=count)
        assert [metrics(condition)["single_error"] for condition in evaluate(run)] == pytest.approx([error, error])


@torch.inference_mode()
def test_each_batch_of_single_digits_is_held_against_its_own_labels(tmp_path, monkeypatch) -> None:
    curve(tmp_path, (4, 1, 1.0, 1.0, 1.0, 1.0))
    monkeypatch.setitem(scoring.BATCH, "cpu", 7)  # classes come in tens
    for condition in evaluate(trained("two_digit", Reader(pairs=True), DIGITS, tmp_path, pairs=20)):
        assert metrics(condition)["single_error"] == 0


def test_without_its_curve_a_run_is_not_evaluated(tmp_path) -> None:
    with pytest.raises(DataError, match=r"curve\.csv is not there"):
        evaluate(trained("two_digit", Reader(pairs=True), DIGITS, tmp_path, pairs=80))


@torch.inference_mode()
def test_the_scores_are_stored_as_the_model_gave_them(tmp_path) -> None:
    curve(tmp_path, (4, 1, 1.0, 1.0, 1.0, 1.0))
    for condition in evaluate(trained("two_digit", Reader(pairs=True, high=0.87), DIGITS, tmp_path, pairs=20)):
        expected = np.array([0.1] * 8 + [0.6, 0.87])
        assert np.allclose(np.sort(condition.arrays["scores"]["scores"].astype(float)), expected, atol=1e-3)
