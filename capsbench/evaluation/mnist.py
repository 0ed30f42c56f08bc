"""MNIST: the error after the last epoch, calibration, reconstructions, the perturbations of figure 4, and routing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capsbench.data.mnist import test_images
from capsbench.data.testing import at_most
from capsbench.evaluation.attacks import attacked_condition
from capsbench.evaluation.calibration import calibration_error, overconfidence, reliability
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.microscope import routing_condition
from capsbench.evaluation.pictures import hardest, has_decoder, pixels, reconstructions
from capsbench.evaluation.predict import margins, predict
from capsbench.evaluation.run import Trained
from capsbench.training.digits import training_digits

OFFSETS = tuple(round(-0.25 + 0.05 * k, 2) for k in range(11))  # figure 4: [-0.25, 0.25] in steps of 0.05


def evaluate(trained: Trained) -> list[Condition]:
    """`test`: 10,000 test images (or as few as the plan says), never shifted, none to choose by; `routing`; `attacked`.

    The last two on the first of them, as many as the plan's `routing_images` (of variants that route) and
    `attack_images`.
    """
    options = trained.cell.options
    digits = at_most(trained.digits.test, options.test_images)
    count = len(digits.labels)
    predictions = predict(trained.model, trained.cell.spec, lambda a, b: test_images(digits, a, b), count)
    labels = digits.labels.cpu()
    predicted = predictions.scores.argmax(1)  # [N]
    correct, margin = int((predicted == labels).sum()), margins(predictions.scores, labels)
    arrays: dict[str, dict[str, NDArray[Any]]] = {
        "predictions": {
            "labels": labels.numpy().astype(np.uint8),
            "predicted": predicted.numpy().astype(np.uint8),
            "margin": margin.numpy().astype(np.float16),
        },
        "scores": {"scores": predictions.scores.numpy().astype(np.float16)},
        "hardest": hardest(digits.images, margin),
    }
    if predictions.poses is not None and has_decoder(trained.cell.spec):
        arrays["reconstructions"] = reconstructions(trained.model, digits.images, labels, predictions.poses, predicted)
        arrays["perturbations"] = perturbations(trained.model, predictions.poses, labels, predicted)
    error, bins = 100 * (count - correct) / count, reliability(predictions.scores, labels)
    train_error = error_on_training_digits(trained, min(count, options.train_error_images))  # type: ignore[attr-defined]
    metrics = {
        "error": (error, "%"),
        "correct": (float(correct), "images"),
        "train_error": (train_error, "%"),
        "train_test_gap": (error - train_error, "%"),
        "ece": (calibration_error(bins), "%"),
        "overconfidence": (overconfidence(bins), "%"),
    }
    conditions = [Condition("test", count, metrics, arrays, {"reliability": bins})]
    if "routing" in options.conditions(trained.cell.spec):
        some = at_most(digits, options.routing_images)  # type: ignore[attr-defined]
        conditions.append(routing_condition(trained.model, trained.cell.spec, some))
    if "attacked" in options.conditions(trained.cell.spec):
        conditions.append(attacked_condition(trained.model, at_most(digits, options.attack_images)))  # type: ignore[attr-defined]
    return conditions


def error_on_training_digits(trained: Trained, count: int) -> float:
    """The error in percent on the digits that the run trained on, unshifted; on the first `count` of them.

    Test error less this is the gap: what a run learnt by heart.
    """
    digits = at_most(training_digits(trained.cell, trained.digits.train, trained.seed), count)
    seen = predict(trained.model, trained.cell.spec, lambda a, b: test_images(digits, a, b), len(digits.labels))
    wrong = int((seen.scores.argmax(1) != digits.labels.cpu()).sum())
    return 100 * wrong / len(digits.labels)


def perturbations(model: nn.Module, poses: Tensor, labels: Tensor, predicted: Tensor) -> dict[str, NDArray[Any]]:
    """Figure 4: each dimension of the winning capsule moved by OFFSETS and decoded, for a class's first right digit.

    Returns `grid` [digits, D, 11, H, W] uint8, `labels` [digits], `offsets` [11].
    """
    device = next(model.parameters()).device
    dim = poses.shape[2]
    moves = torch.tensor(OFFSETS)[None, :, None] * torch.eye(dim)[:, None, :]  # [D, 11, D]
    grids, shown = [], []
    for digit in range(poses.shape[1]):
        right = ((labels == digit) & (predicted == digit)).nonzero().flatten()
        if len(right) == 0:
            continue
        pose = poses[right[0]].expand(dim * len(OFFSETS), -1, -1).clone()  # [D*11, K, D]
        pose[:, digit] += moves.flatten(0, 1)
        classes = torch.full((len(pose),), digit, device=device)
        drawn = model.reconstruct(pose.to(device), classes)  # type: ignore[operator]
        grids.append(pixels(drawn).reshape(dim, len(OFFSETS), *drawn.shape[1:]))
        shown.append(digit)
    return {
        "grid": np.stack(grids) if grids else np.zeros((0, dim, len(OFFSETS), 1, 1), np.uint8),
        "labels": np.array(shown, np.uint8),
        "offsets": np.array(OFFSETS, np.float32),
    }
