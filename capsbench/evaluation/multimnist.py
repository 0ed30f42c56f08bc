"""MultiMNIST (section 6): two overlapping digits, named both or not at all, and drawn apart again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capsbench.data.multimnist import PairSet, overlap
from capsbench.data.testing import at_most
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.drawing import UNITS, draw_apart
from capsbench.evaluation.overlap import by_overlap, mean_of
from capsbench.evaluation.pictures import has_decoder
from capsbench.evaluation.run import Trained
from capsbench.plan.tasks import MultimnistTask
from capsbench.training.exact_set import found, top_two
from capsbench.training.probe_multimnist import make_pairs
from capsbench.training.scoring import batches, device_of, scores_of

SCORED = 100_000  # of so many pairs, the first, every score is stored
Arrays = dict[str, NDArray[Any]]


def evaluate(trained: Trained) -> list[Condition]:
    """The one condition `test`: exact-set and half-credit error of all pairs; segmentation, where there is a decoder.

    `error`: the two highest scores are not exactly the true set. `half_credit_error`: digits that are not among them.
    Raises DataError when the digits do not suffice for the pairs.
    """
    options = trained.cell.options
    assert isinstance(options, MultimnistTask)
    pairs = make_pairs(options, trained.digits.test)
    digits = len(at_most(trained.digits.test, options.test_images).labels)
    predictions, scores, values, overlaps = _classify(trained.model, pairs, digits)
    arrays = {"predictions": predictions, "scores": scores}
    if has_decoder(trained.cell.spec):
        count = min(options.segmentation_pairs, pairs.size)
        drawn, pictures = draw_apart(trained.model, pairs, count)
        values |= drawn
        arrays["segmentation"] = pictures
    units = {"error": "%", "half_credit_error": "%"} | UNITS
    metrics = {name: (mean_of(value), units[name]) for name, value in values.items() if not value.isnan().all()}
    return [Condition("test", pairs.size, metrics, arrays, {"overlap": by_overlap(overlaps, values)})]


def _classify(model: nn.Module, pairs: PairSet, digits: int) -> tuple[Arrays, Arrays, dict[str, Tensor], Tensor]:
    """Predictions and scores as they are stored; each pair's error and half-credit error in percent, its overlap: [N].

    digits: of how many test digits the pairs are made, D.
    """
    scored: dict[str, list[Tensor]] = {"labels": [], "predicted": [], "scores": [], "bases": []}
    counts = np.zeros((digits, 3), np.uint32)  # each digit's pairs by how many were missed: [D, 3]
    missed, overlaps = [], []
    for start, stop in batches(model, pairs.size):
        made = pairs.make(torch.arange(start, stop, device=device_of(model)))
        scores = scores_of(model, made.images)  # [n, 10]
        misses = (~found(scores, made.labels)).sum(1).cpu()  # [n], 0, 1 or 2 of both digits
        bases = made.bases.cpu()  # [n, 2]
        np.add.at(counts, (bases.numpy(), misses.numpy()[:, None]), 1)
        missed.append(misses.to(torch.uint8))
        overlaps.append(overlap(made).cpu())
        if start < SCORED:
            kept = slice(SCORED - start)
            scored["labels"].append(made.labels[kept].to(torch.uint8).cpu())
            scored["predicted"].append(top_two(scores[kept]).to(torch.uint8).cpu())
            scored["scores"].append(scores[kept].to(torch.float16).cpu())
            scored["bases"].append(bases[kept])
    arrays = {name: torch.cat(parts).numpy() for name, parts in scored.items()}
    arrays["bases"] = arrays["bases"].astype(np.uint16)
    all_missed = torch.cat(missed)  # [N]
    values = {"error": 100 * (all_missed > 0).float(), "half_credit_error": 50 * all_missed.float()}
    return {"missed": all_missed.numpy(), "digits": counts}, arrays, values, torch.cat(overlaps)
