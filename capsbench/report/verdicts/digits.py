"""What each test digit does to a run's metric, read from its stored predictions; no model and no image is needed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsbench.report.readers import AGAIN, Arrays, read_arrays
from capsbench.report.results import Results, Run
from capsbench.report.statistics import Scored, digit_effects, pair_effects
from capsbench.report.verdicts.sides import Side

SHAPES = {
    "mnist": {"labels": "n", "predicted": "n"},
    "affnist": {"labels": "n", "predicted": "n", "bases": "n"},
    "multimnist": {"missed": "n", "digits": "d 3"},
    "two_digit": {"top2_accuracy": "n", "both_above_half_accuracy": "n", "bases": "n 2"},
}


class NoAnswersError(Exception):
    """The predictions that a claim's test needs are not there or not those of the metric; the message says which."""


class ScoredAnswers(NamedTuple):
    """A run's answers to N test images of D digits.

    `images` says which these are, as far as predictions.npz does: of single digits in the test set's order their labels
    [N]; else each one's digits [N] or [N, 2], or how many images each digit is in [D].
    """

    mean: float  # the metric
    right: NDArray[np.bool_]  # [N], of MultiMNIST's pairs the first that are stored one by one
    effects: NDArray[np.float64]  # [D], of digit_effects
    images: NDArray[np.integer]


class AnswerReader:
    """Reads each run's predictions once, however many claims ask for them."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._effects: dict[tuple[object, ...], tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}
        self._images: dict[tuple[str, str], NDArray[np.integer]] = {}

    def scored(self, side: Side) -> Scored:
        """A cell's values and digit effects. Raises NoAnswersError."""
        effects = [self._read(side, run, value)[0] for run, value in zip(side.runs, side.values, strict=True)]
        return Scored(np.array(side.values), np.stack(effects))

    def right(self, side: Side) -> dict[int, NDArray[np.bool_]]:
        """Which images each seed has right. Raises NoAnswersError."""
        return {
            run.key.seed: self._read(side, run, value)[1] for run, value in zip(side.runs, side.values, strict=True)
        }

    def _read(self, side: Side, run: Run, value: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        key = (run.key, side.condition, side.metric)
        if key not in self._effects:
            answers = self._answers(side, run)
            if (said := _contradiction(answers, side, run, value)) is not None:
                raise self._refused(side, run, f"{said}: {AGAIN}")
            assert side.condition is not None  # a claim's test is crossed only where there is one
            same = self._images.setdefault((side.task, side.condition), answers.images)
            if not np.array_equal(same, answers.images):
                raise self._refused(side, run, "is about other images than the other runs'")
            self._effects[key] = answers.effects, answers.right
        return self._effects[key]

    def _answers(self, side: Side, run: Run) -> ScoredAnswers:
        stored = read_arrays(self._results, run, f"{side.condition}/predictions.npz", SHAPES[side.task])
        if stored is None or not len(next(iter(stored.values()))):
            raise NoAnswersError(f"predictions.npz of {run.key} is missing or lacks what the test needs: {AGAIN}")
        try:
            return _of_pairs(stored, side) if side.task == "multimnist" else _of_images(stored, side)
        except ValueError as error:
            raise self._refused(side, run, f"{error}: {AGAIN}") from None

    def _refused(self, side: Side, run: Run, why: str) -> NoAnswersError:
        """The error that predictions are not those of the metrics; a problem of the results too, and named there."""
        place = f"{side.condition}/predictions.npz"
        self._results.problem("not drawn", run.folder / place, run.key, f"{place} {why}", side.condition)
        return NoAnswersError(f"predictions.npz of {run.key} {why}")


def _of_images(stored: Arrays, side: Side) -> ScoredAnswers:
    """The answers that the metric counts (for means over epochs: of the final weights). Raises ValueError."""
    if side.task == "two_digit":
        right = stored[side.metric.removeprefix("final_")] > 0
    else:
        right = stored["labels"] == stored["predicted"]
    bases = stored.get("bases", np.arange(len(right)))
    if bases.dtype.kind not in "ui" or bases.min() < 0:
        raise ValueError("names test digits that do not exist")
    values = 100.0 * (~right if side.metric == "error" else right)
    images = stored["bases"] if "bases" in stored else stored["labels"]
    return ScoredAnswers(float(values.mean()), right, digit_effects(values, bases, int(bases.max()) + 1), images)


def _of_pairs(stored: Arrays, side: Side) -> ScoredAnswers:
    """As `_of_images`, of MultiMNIST, which counts all pairs by digit, and says of the first ones what was missed."""
    missed, counts = stored["missed"], stored["digits"].astype(np.int64)
    first = np.array([(missed == level).sum() for level in range(3)])
    if first.sum() < len(missed) or counts.sum() % 2 or np.any(counts.sum(0) < 2 * first):
        raise ValueError("has counts by digit that do not match its pairs")
    levels = np.array([0.0, 50.0, 100.0] if side.metric == "half_credit_error" else [0.0, 100.0, 100.0])
    mean = float(levels @ counts.sum(0) / counts.sum())
    return ScoredAnswers(mean, missed == 0, pair_effects(counts, levels), counts.sum(1))


def _contradiction(answers: ScoredAnswers, side: Side, run: Run, value: float) -> str | None:
    """How the predictions are not those that the metric was computed from; None where they are."""
    metrics = run.metrics[side.condition or ""].metrics
    final = metrics.get(f"final_{side.metric}")  # of a mean over epochs, the last weights' is what was predicted
    wanted = final.value if final is not None and final.value is not None else value
    if math.isclose(answers.mean, wanted, rel_tol=1e-6, abs_tol=1e-9):
        return None
    return f"gives {answers.mean:.6g} where metrics.json says {wanted:.6g}"
