"""What runs answered to single images, read from their stored predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsbench.plan.task import CLASSES
from capsbench.report.readers import AGAIN, Arrays, read_arrays
from capsbench.report.results import Results, Run


class Answers(NamedTuple):
    """A run's answers to N images, each of one digit."""

    labels: np.ndarray  # [N] int
    predicted: np.ndarray  # [N] int
    margin: np.ndarray  # [N] float: true score less the best other; NaN where it is not stored


def read_answers(results: Results, run: Run, condition: str) -> Answers | None:
    """The predictions of a run under a condition, or None (and a problem, if the file is there but broken)."""
    name = f"{condition}/predictions.npz"
    shapes = {"labels": "n", "predicted": "n", **({"margin": "n"} if run.key.task == "mnist" else {})}
    arrays = read_arrays(results, run, name, shapes)
    if arrays is None:
        return None
    found = _answers(arrays)
    if found is None:
        reason = f"predictions.npz holds values that are not digits or not margins: {AGAIN}"
        results.problem("not drawn", run.folder / name, run.key, reason, condition)
    return found


def _answers(arrays: Arrays) -> Answers | None:
    """The answers, or None if labels or predictions are no digits or a margin is no number."""
    labels, predicted = arrays["labels"].astype(int), arrays["predicted"].astype(int)  # [N]
    margin = arrays["margin"].astype(float) if "margin" in arrays else np.full(len(labels), np.nan)  # [N]
    fits = _are_digits(labels) and _are_digits(predicted) and ("margin" not in arrays or np.isfinite(margin).all())
    return Answers(labels, predicted, margin) if fits else None


def _are_digits(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values < CLASSES)).all())
