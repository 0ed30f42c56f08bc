"""What each test digit does to a run's metric, read from its stored predictions; no model and no image is needed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capsbench.report.readers import Arrays, read_arrays
from capsbench.report.results import Results, Run
from capsbench.report.statistics import Scored, digit_effects
from capsbench.report.verdicts.sides import Side

SHAPES = {
    "mnist": {"labels": "n", "predicted": "n"},
    "affnist": {"labels": "n", "predicted": "n", "bases": "n"},
    "multimnist": {"missed": "n", "bases": "n 2"},
    "two_digit": {"top2_accuracy": "n", "both_above_half_accuracy": "n", "bases": "n 2"},
}


class NoAnswersError(Exception):
    """The predictions that a claim's test needs are not there or not those of the metric; the message says which."""


class Answers(NamedTuple):
    """A run's answers to N test images."""

    values: NDArray[np.floating]  # [N], whose mean is the metric
    right: NDArray[np.bool_]  # [N]
    bases: NDArray[np.integer]  # [N] or [N, 2], the test digits


class AnswerReader:
    """Reads each run's predictions once, however many claims ask for them."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._effects: dict[tuple[object, ...], tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}
        self._bases: dict[tuple[str, str], NDArray[np.integer]] = {}

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
            _agree(answers, side, run, value)
            assert side.condition is not None  # a claim's test is crossed only where there is one
            same = self._bases.setdefault((side.task, side.condition), answers.bases)
            if not np.array_equal(same, answers.bases):
                raise NoAnswersError(f"predictions.npz of {run.key} are of other images than its neighbours'")
            digits = int(answers.bases.max()) + 1
            self._effects[key] = digit_effects(answers.values, answers.bases, digits), answers.right
        return self._effects[key]

    def _answers(self, side: Side, run: Run) -> Answers:
        stored = read_arrays(self._results, run, f"{side.condition}/predictions.npz", SHAPES[side.task])
        if stored is None or not len(next(iter(stored.values()))):
            raise NoAnswersError(
                f"predictions.npz of {run.key} is missing or lacks what the test needs: evaluate the run again"
            )
        return _answers(stored, side)


def _answers(stored: Arrays, side: Side) -> Answers:
    """Values whose mean is the metric (for means over epochs: that of the final weights)."""
    if side.task == "multimnist":
        missed = stored["missed"]
        half = side.metric == "half_credit_error"
        return Answers(50.0 * missed if half else 100.0 * (missed > 0), missed == 0, stored["bases"])
    if side.task == "two_digit":
        right = stored[side.metric.removeprefix("final_")] > 0
        return Answers(100.0 * right, right, stored["bases"])
    right = stored["labels"] == stored["predicted"]
    bases = stored["bases"] if side.task == "affnist" else np.arange(len(right))
    return Answers(100.0 * (~right if side.metric == "error" else right), right, bases)


def _agree(answers: Answers, side: Side, run: Run, value: float) -> None:
    """The predictions are those that the metric was computed from. Raises NoAnswersError."""
    metrics = run.metrics[side.condition or ""].metrics
    final = metrics.get(f"final_{side.metric}")  # of a mean over epochs, the last weights' is what was predicted
    wanted = final.value if final is not None and final.value is not None else value
    found = float(answers.values.mean())
    if not math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-9):
        raise NoAnswersError(
            f"predictions.npz of {run.key} gives {found:.6g} where metrics.json says {wanted:.6g}: evaluate it again"
        )
