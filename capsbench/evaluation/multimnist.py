"""MultiMNIST (section 6): two overlapping digits, named both or not at all, and drawn apart again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from capsbench.data.multimnist import PairSet, overlap
from capsbench.data.testing import at_most
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.done import evaluation_digest
from capsbench.evaluation.drawing import UNITS, draw_apart
from capsbench.evaluation.overlap import by_overlap, mean_of
from capsbench.evaluation.parts import Arrays, in_parts
from capsbench.evaluation.pictures import has_decoder
from capsbench.evaluation.run import Trained
from capsbench.files import read_json
from capsbench.plan.tasks import MultimnistTask
from capsbench.training.exact_set import found, top_two
from capsbench.training.probe_multimnist import make_pairs
from capsbench.training.scoring import batches, device_of, scores_of

SCORED = 100_000  # of so many pairs, the first, every score is stored
NAMED = 1_000_000  # of so many, which were missed: all ten million would add most of a megabyte to each published run


def evaluate(trained: Trained) -> list[Condition]:
    """The one condition `test`: exact-set and half-credit error of all pairs; segmentation, where there is a decoder.

    `error`: the two highest scores are not exactly the true set. `half_credit_error`: digits that are not among them.
    Raises DataError when the digits do not suffice for the pairs, and ResourceError as `in_parts`.
    """
    options = trained.cell.options
    assert isinstance(options, MultimnistTask)
    pairs = make_pairs(options, trained.digits.test)
    digits = len(at_most(trained.digits.test, options.test_images).labels)
    predictions, scores, values, overlaps = _classify(trained, pairs, digits)
    arrays = {"predictions": predictions, "scores": scores}
    if has_decoder(trained.cell.spec):
        count = min(options.segmentation_pairs, pairs.size)
        drawn, pictures = draw_apart(trained.model, pairs, count)
        values |= drawn
        arrays["segmentation"] = pictures
    units = {"error": "%", "half_credit_error": "%"} | UNITS
    metrics = {name: (mean_of(value), units[name]) for name, value in values.items() if not value.isnan().all()}
    return [Condition("test", pairs.size, metrics, arrays, {"overlap": by_overlap(overlaps, values)})]


def _classify(trained: Trained, pairs: PairSet, digits: int) -> tuple[Arrays, Arrays, dict[str, Tensor], Tensor]:
    """Predictions and scores as they are stored; each pair's error and half-credit error in percent, its overlap: [N].

    digits: of how many test digits the pairs are made, D. Ten million pairs take minutes on a GPU: it goes on where it
    was stopped.
    """
    digest = evaluation_digest(trained.cell, read_json(trained.folder / "manifest.json"))
    made = in_parts(trained.folder, digest, pairs.size, lambda first: _answers(trained.model, pairs, first))
    missed, bases = made["missed"], made["bases"]  # [N], [N, 2]
    # each digit's pairs by how many were missed: [D, 3]
    counts = np.bincount((3 * bases.astype(np.int64) + missed[:, None]).ravel(), minlength=3 * digits)
    predictions = {"missed": missed[:NAMED], "digits": counts.reshape(digits, 3).astype(np.uint32)}
    scores = {name: made[name][:SCORED] for name in ("labels", "predicted", "scores", "bases")}
    all_missed = torch.from_numpy(missed)
    values = {"error": 100 * (all_missed > 0).float(), "half_credit_error": 50 * all_missed.float()}
    return predictions, scores, values, torch.from_numpy(made["overlaps"])


def _answers(model: nn.Module, pairs: PairSet, first: int) -> Iterator[tuple[int, Arrays]]:
    """The answers to the pairs from `first` on, batch by batch: where it ends, and arrays of n pairs each.

    `missed` [n] uint8, 0, 1 or 2 of both digits; `overlaps` [n] float64; `bases` [n, 2] uint16; of the pairs among the
    first SCORED `labels`, `predicted` [n, 2] uint8 and `scores` [n, 10] float16.
    """
    for begin, end in batches(model, pairs.size - first):
        start, stop = first + begin, first + end
        made = pairs.make(torch.arange(start, stop, device=device_of(model)))
        scores = scores_of(model, made.images)  # [n, 10]
        kept = slice(max(0, SCORED - start))
        answers = {
            "missed": (~found(scores, made.labels)).sum(1).to(torch.uint8),
            "overlaps": overlap(made),
            "bases": made.bases,
            "labels": made.labels[kept].to(torch.uint8),
            "predicted": top_two(scores[kept]).to(torch.uint8),
            "scores": scores[kept].to(torch.float16),
        }
        arrays = {name: values.cpu().numpy() for name, values in answers.items()}
        yield stop, arrays | {"bases": arrays["bases"].astype(np.uint16)}
