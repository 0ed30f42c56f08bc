"""Two-digit transfer: trained on single digits, tested on two, one above the other and side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capsbench.data.testing import at_most
from capsbench.data.two_digit import TwoDigitPairs
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.curve import read_curve
from capsbench.evaluation.run import Trained
from capsbench.plan.tasks import TwoDigitTask
from capsbench.training.exact_set import both_above_half, exactly
from capsbench.training.probe_two_digit import make_pairs, scored_pairs
from capsbench.training.scoring import single_error

RULES = {"top2_accuracy": exactly, "both_above_half_accuracy": both_above_half}


def evaluate(trained: Trained) -> list[Condition]:
    """One condition a layout. `top2_accuracy` and `both_above_half_accuracy` are means over the last epochs.

    `final_...` are those of the final weights alone, `final_exact_above_half_accuracy` is the share of pairs in which
    their scores above 0.5 are the two digits' and no others (ours: as ten yes/no answers would be read, which the
    other two never ask), `single_error` is their error on single test digits.

    Raises DataError when curve.csv is not as it should be.
    """
    options = trained.cell.options
    assert isinstance(options, TwoDigitTask)
    pairs = make_pairs(options, trained.digits.test)
    curve = read_curve(trained.folder, [f"{condition}.{name}" for condition in pairs for name in RULES])
    single = single_error(trained.model, at_most(trained.digits.test, options.test_images))
    conditions = []
    for condition, of in pairs.items():
        predictions, scores, final = _final(trained.model, of)
        metrics = {name: (100 * float(curve[f"{condition}.{name}"].mean()), "%") for name in RULES}
        metrics |= {f"final_{name}": (value, "%") for name, value in final.items()}
        metrics["single_error"] = (single, "%")
        arrays = {"predictions": predictions, "scores": scores}
        conditions.append(Condition(condition, of.size, metrics, arrays))
    return conditions


def _final(
    model: nn.Module, pairs: TwoDigitPairs
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, float]]:
    """The final weights' predictions and scores on every pair, and the accuracies in percent, without `final_`."""
    labels, scores, bases = [], [], []
    right: dict[str, list[Tensor]] = {name: [] for name in RULES}
    exact = 0
    for shown, answer in scored_pairs(model, pairs):
        exact += int(exactly_above_half(answer, shown.labels).sum())
        for name, rule in RULES.items():
            right[name].append(rule(answer, shown.labels).to(torch.uint8).cpu())
        labels.append(shown.labels.to(torch.uint8).cpu())
        scores.append(answer.to(torch.float16).cpu())
        bases.append(shown.bases.cpu())
    predictions: dict[str, NDArray[Any]] = {
        "bases": torch.cat(bases).numpy().astype(np.uint16),
        **{name: torch.cat(parts).numpy() for name, parts in right.items()},
    }
    every = {"labels": torch.cat(labels).numpy(), "scores": torch.cat(scores).numpy()}
    counts = {**{name: int(predictions[name].sum()) for name in RULES}, "exact_above_half_accuracy": exact}
    return predictions, every, {name: 100 * count / pairs.size for name, count in counts.items()}


def exactly_above_half(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether the classes with scores [N, K] above 0.5 are the labels [N, 2] int64 and no others: [N] bool."""
    true = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, labels, True)  # [N, K]
    return ((scores > 0.5) == true).all(1)
