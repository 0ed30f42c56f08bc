"""Claims about pairs: both digits of a pair are drawn again, from what evaluation stores of either task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from judging import claim, measure, one, results_of

from capsbench.report.statistics import Scored, crossed, digit_effects

DIGITS, PAIRS, SEEDS = 80, 2000, 5
CONDITION = {"multimnist": "test", "two_digit": "56x28"}
METRIC = {"multimnist": "error", "two_digit": "top2_accuracy"}
CELLS = {
    "multimnist": ["multimnist-cnn", "capsnet-r3-recon"],
    "two_digit": ["two-digit-average-mlp", "two-digit-kmeans"],
}
METRICS = [*METRIC.items(), ("multimnist", "half_credit_error")]


def predictions(folder: Path, task: str, variant: str, seed: int) -> Path:
    return toy.run_folder(folder, task, variant, seed) / CONDITION[task] / "predictions.npz"


def answered(folder: Path, task: str, metric: str | None = None) -> tuple[Path, Scored, Scored]:
    """Results of a task's two cells, the second one better; and what is known of each from all its pairs."""
    metric = metric or METRIC[task]
    results_of(folder, {task: CELLS[task]}, SEEDS)
    rng = np.random.default_rng(1)
    bases = np.array([rng.choice(DIGITS, 2, replace=False) for _ in range(PAIRS)])
    hard = rng.random(DIGITS) < 0.2
    sides = []
    for variant, rate in zip(CELLS[task], (0.2, 0.1), strict=True):
        means, effects = [], []
        for seed in range(SEEDS):
            missed = (rng.random((PAIRS, 2)) < rate + 0.2 * hard[bases]).sum(1)
            values = {
                "error": 100.0 * (missed > 0),
                "half_credit_error": 50.0 * missed,
                "top2_accuracy": 100.0 * (missed == 0),
            }[metric]
            stored: dict[str, Any] = {"top2_accuracy": missed == 0, "both_above_half_accuracy": missed == 0}
            stored = {name: value.astype(np.uint8) for name, value in stored.items()} | {
                "bases": bases.astype(np.uint16)
            }
            if task == "multimnist":
                counts = np.zeros((DIGITS, 3), np.uint32)
                np.add.at(counts, (bases, missed[:, None]), 1)
                stored = {"missed": missed.astype(np.uint8), "digits": counts}
            np.savez_compressed(predictions(folder, task, variant, seed), **stored)
            measure(folder, task, variant, seed, CONDITION[task], **{metric: float(values.mean())})
            means.append(values.mean())
            effects.append(digit_effects(values, bases, DIGITS))
        sides.append(Scored(np.array(means), np.stack(effects)))
    return folder, sides[0], sides[1]


def direction(task: str, metric: str | None = None) -> dict[str, Any]:
    baseline, cell = (f"{task}/{variant}" for variant in CELLS[task])
    return claim(
        "direction",
        cell=cell,
        baseline=baseline,
        condition=CONDITION[task],
        metric=metric or METRIC[task],
        direction="less" if task == "multimnist" else "greater",
    )


@pytest.mark.parametrize(("task", "metric"), METRICS)
def test_a_claim_about_pairs_draws_both_digits_again(tmp_path: Path, task: str, metric: str) -> None:
    folder, cnn, capsnet = answered(tmp_path / "full", task, metric)
    judgement = one(folder, direction(task, metric))
    expected = crossed(capsnet, cnn)
    assert judgement.verdict == "reproduced", judgement.why
    assert judgement.estimate is not None
    assert expected is not None
    assert judgement.estimate.value == pytest.approx(expected.value)
    assert judgement.estimate.error == pytest.approx(expected.error)


@pytest.mark.parametrize("predicted", ["final_top2_accuracy", "top2_accuracy"])
def test_predictions_are_those_of_the_last_weights_where_a_metric_is_a_mean_over_epochs(
    tmp_path: Path, predicted: str
) -> None:
    folder, *sides = answered(tmp_path / "full", "two_digit")
    other = {"final_top2_accuracy": "top2_accuracy", "top2_accuracy": "final_top2_accuracy"}[predicted]
    for variant, side in zip(CELLS["two_digit"], sides, strict=True):
        for seed, mean in enumerate(side.means):
            found = {predicted: float(mean), other: float(mean) - 1.5}
            measure(folder, "two_digit", variant, seed, "56x28", **found)
    judgement = one(folder, direction("two_digit"))
    if predicted == "top2_accuracy":  # then they are of other weights than the last
        assert judgement.verdict == "not run"
        assert "where metrics.json says" in judgement.why
    else:
        assert judgement.verdict == "reproduced", judgement.why
        assert [side.values[0] for side in judgement.sides] == [side.means[0] - 1.5 for side in reversed(sides)]


def test_the_first_pairs_alone_may_be_named(tmp_path: Path) -> None:
    """As MultiMNIST's ten million are: the claim's test rests on the counts, which are of all."""
    folder, *_ = answered(tmp_path / "full", "multimnist")
    whole = one(folder, direction("multimnist"))
    for variant in CELLS["multimnist"]:
        for seed in range(SEEDS):
            path = predictions(folder, "multimnist", variant, seed)
            with np.load(path) as file:
                stored = dict(file)
            np.savez(path, missed=stored["missed"][:100], digits=stored["digits"])
    judgement = one(folder, direction("multimnist"))
    assert (judgement.verdict, judgement.estimate) == (whole.verdict, whole.estimate)
    only = [(each["only_claimed"], each["only_baseline"]) for each in judgement.mcnemar]
    assert all(0 < sum(pair) < 100 for pair in only)
    assert all(
        sum(pair) < sum((every["only_claimed"], every["only_baseline"]))
        for pair, every in zip(only, whole.mcnemar, strict=True)
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("counts", "has counts by digit that do not match its pairs"),
        ("moved", "has counts by digit that do not match its pairs"),
        ("missed", "has counts by digit that do not match its pairs"),
        ("others", "is about other images than the other runs'"),
        ("shape", "is missing or lacks what the test needs"),
    ],
)
def test_counts_that_are_not_the_pairs_judge_nothing(tmp_path: Path, change: str, words: str) -> None:
    folder, *_ = answered(tmp_path / "full", "multimnist")
    path = predictions(folder, "multimnist", "multimnist-cnn", 2)
    with np.load(path) as file:
        stored = dict(file)
    if change == "counts":
        stored["digits"][0, 0] += 1
    elif change == "moved":
        stored["digits"][0, 0] -= 1
        stored["digits"][0, 1] += 1
    elif change == "missed":
        stored["missed"][0] = 9
    elif change == "others":
        stored["digits"] = np.roll(stored["digits"], 1, axis=0)
    else:
        stored["digits"] = stored["digits"][:, :2]
    np.savez(path, **stored)
    judgement = one(folder, direction("multimnist"))
    assert judgement.verdict == "not run"
    assert judgement.why.startswith("predictions.npz of multimnist/multimnist-cnn/seed-2 ")
    assert words in judgement.why


@pytest.mark.parametrize("none", [lambda bases: bases.astype(float), lambda bases: bases.astype(np.int64) - 1])
def test_digits_that_are_none_judge_nothing(tmp_path: Path, none) -> None:
    folder, *_ = answered(tmp_path / "full", "two_digit")
    path = predictions(folder, "two_digit", "two-digit-kmeans", 0)
    with np.load(path) as file:
        stored = dict(file)
    stored["bases"] = none(stored["bases"])
    np.savez(path, **stored)
    judgement = one(folder, direction("two_digit"))
    assert judgement.verdict == "not run"
    assert "names test digits that do not exist" in judgement.why


def test_two_metrics_of_the_same_runs_are_compared_run_by_run(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "pairs", {"multimnist": ["capsnet-r3-recon"]})
    for seed in range(5):
        true = 10 * seed + 1 + 0.1 * (seed % 2)  # far apart by seed, each a little over its baseline
        measure(folder, "multimnist", "capsnet-r3-recon", seed, "test", ssim_true=true, baseline_ssim=10.0 * seed)
    measure(folder, "multimnist", "capsnet-r3-recon", 4, "test", ssim_true=99.0)  # without its baseline
    said = claim(
        "direction", cell="multimnist/capsnet-r3-recon", baseline=None, metric="ssim_true",
        baseline_metric="baseline_ssim", direction="greater", test="paired",
    )  # fmt: skip
    judgement = one(folder, said)
    assert judgement.estimate is not None and judgement.estimate.value == pytest.approx(1.05)  # noqa: PT018
    assert judgement.p_holm is not None and judgement.p_holm < 0.001  # noqa: PT018
    assert judgement.trials == (1.0, 4, True)  # any three of the four runs would have told
    assert "(on 4 of 5 planned seeds)" in judgement.why
    toy.fail(folder, "multimnist", "capsnet-r3-recon", 0)
    assert ", 1 run failed or not matched." in one(folder, said).why  # of both metrics, and once
