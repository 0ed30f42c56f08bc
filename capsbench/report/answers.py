"""What runs answered to single images, read from their stored predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsbench.report.readers import Arrays, read_arrays
from capsbench.report.results import Results, Run

CLASSES = 10


class Answers(NamedTuple):
    """A run's answers to N images, each of one digit."""

    labels: np.ndarray  # [N] int
    predicted: np.ndarray  # [N] int
    margin: np.ndarray  # [N] float: true score less the best other; NaN where scores are not stored


def read_answers(results: Results, run: Run, condition: str) -> Answers | None:
    """The predictions of a run under a condition, or None (and a problem, if the file is there but broken)."""
    name = f"{condition}/predictions.npz"
    shapes = {"labels": "n", "predicted": "n"} if run.key.task == "affnist" else {"labels": "n", "scores": "n 10"}
    arrays = read_arrays(results, run, name, shapes)
    if arrays is None:
        return None
    found = _answers(arrays)
    if found is None:
        reason = "predictions.npz holds something that is no digit or no score"
        results.problem("not drawn", run.folder / name, run.key, reason, condition)
    return found


def _answers(arrays: Arrays) -> Answers | None:
    """The answers, or None if labels are no digits or scores no numbers. Of equal scores the first class answers."""
    labels = arrays["labels"].astype(int)  # [N]
    if "predicted" in arrays:
        predicted, margin = arrays["predicted"].astype(int), np.full(len(labels), np.nan)
    else:
        scores = arrays["scores"].astype(np.float32)  # [N, K]
        if not np.isfinite(scores).all() or not _are_digits(labels):
            return None
        rows = np.arange(len(labels))
        others = scores.copy()
        others[rows, labels] = -np.inf
        predicted, margin = scores.argmax(axis=1), scores[rows, labels] - others.max(axis=1)
    return Answers(labels, predicted, margin) if _are_digits(labels) and _are_digits(predicted) else None


def _are_digits(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values < CLASSES)).all())
