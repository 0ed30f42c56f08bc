"""Draw both digits of each pair with a model's decoder, measure the drawings, and keep some as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capsbench.data.multimnist import PairSet
from capsbench.data.pairing import Pairs
from capsbench.evaluation import segmentation
from capsbench.evaluation.pictures import SHOWN, pixels
from capsbench.training.exact_set import found, top_two
from capsbench.training.losses import probabilities
from capsbench.training.scoring import batches, device_of

# Decoder masked by the true class, by the predicted class; and the copied input.
UNITS = {
    name.format(measure): unit
    for name in ("{}_true", "{}_predicted", "baseline_{}")
    for measure, unit in segmentation.UNITS.items()
} | {"leakage": "%"}


def draw_apart(model: nn.Module, pairs: PairSet, count: int) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    """The measures of UNITS of the first `count` pairs, [count] float32 each on the CPU, and pictures of some.

    The pictures are those of docs/results-format.md: pairs named right, then pairs named wrong, drawn as named.
    """
    parts: list[dict[str, Tensor]] = []
    shown: dict[bool, list[dict[str, NDArray[Any]]]] = {True: [], False: []}
    wanted = {True: SHOWN, False: SHOWN}
    for start, stop in batches(model, count):
        made = pairs.make(torch.arange(start, stop, device=device_of(model)))
        output = model(made.images)
        scores = probabilities(model.spec, output.scores.float())  # type: ignore[arg-type]
        drawn = _every_class(model, output.poses)  # [n, K, H, W]
        predicted = segmentation.match(top_two(scores), made.labels, drawn, made.digits)  # [n, 2]
        parts.append({name: value.cpu() for name, value in _measures(made, drawn, predicted).items()})
        is_right = found(scores, made.labels).all(1)
        for right, left in wanted.items():
            chosen = (is_right == right).nonzero().flatten()[:left]
            if len(chosen):
                shown[right].append(_pictures(made, drawn, predicted, chosen))
                wanted[right] -= len(chosen)
    pictures = [*shown[True], *shown[False]]
    return (
        {name: torch.cat([part[name] for part in parts]) for name in parts[0]},
        {name: np.concatenate([picture[name] for picture in pictures]) for name in pictures[0]},
    )


def _every_class(model: nn.Module, poses: Tensor) -> Tensor:
    """What the decoder draws for each class, present or not: poses [n, K, D] to [n, K, H, W]."""
    classes = torch.arange(poses.shape[1], device=poses.device)
    drawn = [model.reconstruct(poses, k.expand(len(poses))) for k in classes]  # type: ignore[operator]
    return torch.stack(drawn, dim=1)


def _measures(made: Pairs, drawn: Tensor, predicted: Tensor) -> dict[str, Tensor]:
    candidates = {
        "{}_true": segmentation.of_classes(drawn, made.labels),
        "{}_predicted": segmentation.of_classes(drawn, predicted),
        "baseline_{}": made.images.expand_as(made.digits),  # the merged input for either digit
    }
    values = {
        name.format(measure): value
        for name, candidate in candidates.items()
        for measure, value in segmentation.measure(candidate, made.digits).items()
    }
    return values | {"leakage": segmentation.leakage(drawn, made.digits, made.labels)}


def _pictures(made: Pairs, drawn: Tensor, predicted: Tensor, chosen: Tensor) -> dict[str, NDArray[Any]]:
    """The arrays of segmentation.npz for the pairs `chosen` [m].

    `absent` is the decoder asked for the first class after the first digit's (0 follows 9) that is neither in the image
    nor in the answer: section 6 asks for such a digit and shows that nothing is drawn.
    """
    labels, answers, of = made.labels[chosen], predicted[chosen], drawn[chosen]  # [m, 2], [m, 2], [m, K, H, W]
    order = (labels[:, :1] + torch.arange(1, drawn.shape[1], device=drawn.device)) % drawn.shape[1]  # [m, K - 1]
    taken = (order[:, :, None] == torch.cat([labels, answers], dim=1)[:, None]).any(2)  # [m, K - 1]
    absent = order.gather(1, (~taken).int().argmax(1, keepdim=True))  # [m, 1]
    return {
        "merged": pixels(made.images[chosen, 0]),
        "digits": pixels(made.digits[chosen]),
        "reconstructions": pixels(segmentation.of_classes(of, answers)),
        "labels": labels.to(torch.uint8).cpu().numpy(),
        "predicted": answers.to(torch.uint8).cpu().numpy(),
        "absent": pixels(segmentation.of_classes(of, absent)[:, 0]),
        "absent_class": absent[:, 0].to(torch.uint8).cpu().numpy(),
    }
