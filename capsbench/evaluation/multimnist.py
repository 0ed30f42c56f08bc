"""MultiMNIST (section 6): two overlapping digits, named both or not at all, and drawn apart again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsbench.data.multimnist import PairSet, overlap
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.drawing import UNITS, draw_apart
from capsbench.evaluation.overlap import by_overlap, mean_of
from capsbench.evaluation.pictures import has_decoder
from capsbench.evaluation.run import Trained
from capsbench.plan.tasks import MultimnistTask
from capsbench.training.exact_set import found, top_two
from capsbench.training.probe_multimnist import make_pairs
from capsbench.training.scoring import batches, device_of, scores_of

ALL_SCORES = 100_000  # up to so many pairs every score is stored, beyond only the two highest


def evaluate(trained: Trained) -> list[Condition]:
    """The one condition `test`: exact-set and half-credit error of all pairs; segmentation, where there is a decoder.

    `error`: the two highest scores are not exactly the true set. `half_credit_error`: digits that are not among them.
    Raises DataError when the digits do not suffice for the pairs.
    """
    options = trained.cell.options
    assert isinstance(options, MultimnistTask)
    pairs = make_pairs(options, trained.digits.test)
    predictions, values, overlaps = _classify(trained, pairs)
    arrays = {"predictions": predictions}
    if has_decoder(trained.cell.spec):
        count = min(options.segmentation_pairs, pairs.size)
        drawn, pictures = draw_apart(trained.model, pairs, count)
        values |= drawn
        arrays["segmentation"] = pictures
    units = {"error": "%", "half_credit_error": "%"} | UNITS
    metrics = {name: (mean_of(value), units[name]) for name, value in values.items() if not value.isnan().all()}
    return [Condition("test", pairs.size, metrics, arrays, {"overlap": by_overlap(overlaps, values)})]


def _classify(trained: Trained, pairs: PairSet) -> tuple[dict[str, NDArray[Any]], dict[str, Tensor], Tensor]:
    """Predictions as they are stored; each pair's error and half-credit error in percent [N]; its overlap [N]."""
    model = trained.model
    every_score = pairs.size <= ALL_SCORES
    stored: dict[str, list[Tensor]] = {"labels": [], "predicted": [], "scores": [], "bases": []}
    missed, overlaps = [], []
    for start, stop in batches(model, pairs.size):
        made = pairs.make(torch.arange(start, stop, device=device_of(model)))
        scores = scores_of(model, made.images)  # [n, 10]
        predicted = top_two(scores)  # [n, 2]
        stored["labels"].append(made.labels.to(torch.uint8).cpu())
        stored["predicted"].append(predicted.to(torch.uint8).cpu())
        stored["scores"].append((scores if every_score else scores.gather(1, predicted)).to(torch.float16).cpu())
        stored["bases"].append(made.bases.to(torch.int32).cpu())
        missed.append((~found(scores, made.labels)).sum(1).to(torch.uint8).cpu())
        overlaps.append(overlap(made).cpu())
    arrays = {name: torch.cat(parts).numpy() for name, parts in stored.items()}
    arrays["bases"] = arrays["bases"].astype(np.uint16)
    if not every_score:
        arrays["top_scores"] = arrays.pop("scores")
    misses = torch.cat(missed)  # [N], 0, 1 or 2 of both digits
    arrays["missed"] = misses.numpy()
    values = {"error": 100 * (misses > 0).float(), "half_credit_error": 50 * misses.float()}
    return arrays, values, torch.cat(overlaps)
