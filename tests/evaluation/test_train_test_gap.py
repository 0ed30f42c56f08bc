"""The train-test gap: test error less the error on the very digits that a run trained on, unshifted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from stand_ins import Reader, coded_digits, trained

from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.evaluation.mnist import error_on_training_digits, evaluate
from capsbench.evaluation.run import Trained


def given(folder: Path, train: DigitSet, **options: object) -> Trained:
    wrong = coded_digits(20, labels=(torch.arange(20) + 1) % 10)
    test = DigitSet(*(torch.cat(parts) for parts in zip(coded_digits(60), wrong, strict=True)))
    return trained("mnist", Reader(), Digits(train, test), folder, **options)


def test_the_gap_is_test_error_less_training_error(tmp_path: Path) -> None:
    train = coded_digits(200)
    train.labels[:10] = (train.labels[:10] + 1) % 10  # 10 of the first 80 are wrong
    run = given(tmp_path, train)
    with torch.inference_mode():
        metrics = evaluate(run)[0].metrics
    assert metrics["error"] == (25.0, "%")
    assert metrics["train_error"] == (12.5, "%")  # on as many digits as are tested
    assert metrics["train_test_gap"] == (12.5, "%")


def test_a_plan_may_count_the_training_error_on_fewer(tmp_path: Path) -> None:
    train = coded_digits(200)
    train.labels[:10] = (train.labels[:10] + 1) % 10
    run = given(tmp_path, train, train_error_images=40)
    with torch.inference_mode():
        metrics = evaluate(run)[0].metrics
    assert metrics["train_error"] == (25.0, "%")  # 10 of 40
    assert metrics["error"] == (25.0, "%")


@pytest.mark.parametrize(
    ("options", "error"), [({}, 75.0), ({"train_images": 30}, 0.0), ({"train_per_class": 2}, None)]
)
def test_only_digits_that_the_run_trained_on_count(
    tmp_path: Path, options: dict[str, int], error: float | None
) -> None:
    train = coded_digits(120)
    train.labels[30:] = (train.labels[30:] + 1) % 10
    run = given(tmp_path, train, **options)
    with torch.inference_mode():
        found = [error_on_training_digits(replace(run, seed=seed), 1000) for seed in range(4)]
    if error is not None:
        assert found == [error] * 4
    else:  # 20 digits drawn by the run's seed
        assert all(value % 5 == 0 for value in found)
        assert len(set(found)) > 1
