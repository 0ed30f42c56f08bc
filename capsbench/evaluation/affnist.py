"""affNIST (section 5.2): accuracy under transforms never trained on, at equal held-out accuracy and at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from capsbench.data.affnist import FACTORS, ImageSet, SyntheticAffnist, one_factor
from capsbench.data.affnist_place import SYNTHETIC, files_digest, official_path
from capsbench.data.affnist_sets import affnist_set, evenly, held_out_set
from capsbench.data.batch import DigitSet
from capsbench.data.raw import BADGES
from capsbench.data.source import DIGITS, DIGITS_BADGE
from capsbench.data.testing import at_most
from capsbench.errors import DataError
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.curve import Array, NotMatchedError, read_curve, read_off
from capsbench.evaluation.pictures import has_decoder, reconstructions
from capsbench.evaluation.predict import predict
from capsbench.evaluation.run import Trained
from capsbench.files import read_json
from capsbench.plan.tasks import AffnistTask
from capsbench.training.scoring import accuracy, scored

LOOKED_AT = 500  # images among which right and wrong ones are looked for to show their reconstructions


def evaluate(trained: Trained) -> list[Condition]:
    """`matched`, from the curve along training, and `converged`, the final weights on every image.

    Raises DataError when curve.csv, the held-out digits or official affNIST files are not as they should be, or where
    the curve was measured on another affNIST than there is now.
    """
    options = trained.cell.options
    assert isinstance(options, AffnistTask)
    test = affnist_set(
        trained.digits.test,
        dataset=trained.cell.dataset,
        transforms=options.transforms,
        count=options.test_images,
        folder=trained.data_folder,
    )
    path = None if isinstance(test, SyntheticAffnist) else official_path(trained.data_folder)
    along = read_json(trained.folder / "manifest.json")["digests"].get("test_set")
    if along != (SYNTHETIC if path is None else files_digest(path)):
        raise DataError(
            f"{trained.folder}: the run was measured along training on another affNIST than there is now: the official "
            "files came or went, or changed, while it trained. Train it again, or put them back as they were."
        )
    dataset = {"name": test.name, "badge": _badge(test, trained.cell.dataset)}
    if isinstance(test, SyntheticAffnist):
        dataset["digest"] = test.digest  # of its transforms; official files have theirs in the manifest
    return [
        _matched(trained, options, min(options.probe_images, len(test)), dataset),
        _converged(trained, options, test, dataset),
    ]


def _matched(trained: Trained, options: AffnistTask, images: int, dataset: dict[str, str]) -> Condition:
    """Accuracy where held-out accuracy gets to `matched_at`."""
    curve = read_curve(trained.folder, ["held_out_accuracy", "affnist_accuracy"])
    held_out, measured = (curve[name].to_numpy() for name in ("held_out_accuracy", "affnist_accuracy"))
    try:
        value = _read_off_surely(held_out, measured, options.matched_at)
    except NotMatchedError as reason:
        return Condition("matched", images, {}, status="not matched", reason=str(reason), dataset=dataset)
    metrics = {"accuracy": (100 * value, "%"), "held_out_accuracy": (100 * options.matched_at, "%")}
    return Condition("matched", images, metrics, dataset=dataset)


def _read_off_surely(held_out: Array, measured: Array, level: float) -> float:
    """`read_off` (both [n]), but of no level that held-out accuracy gets to at its last evaluation alone.

    One that jitters upwards is pooled with those that fall back after it, and after the last there is none.

    Raises NotMatchedError as `read_off` does, and where the last evaluation alone gets to the level.
    """
    value = read_off(held_out, measured, level)
    if len(held_out) > 1:
        try:
            read_off(held_out[:-1], measured[:-1], level)
        except NotMatchedError:
            raise NotMatchedError(
                f"held-out accuracy got to {level:.2%} at its last evaluation alone, which may be chance; train longer"
            ) from None
    return value


def _converged(trained: Trained, options: AffnistTask, test: ImageSet, dataset: dict[str, str]) -> Condition:
    """Accuracy on all images after the last step, on held-out digits, and against each factor alone."""
    model = trained.model
    predicted, score = [], []
    for _, _, scores in scored(model, test.images, len(test)):
        highest = scores.max(1)
        predicted.append(highest.indices.to(torch.uint8).cpu())
        score.append(highest.values.to(torch.float16).cpu())
    labels, answers = test.labels.to(torch.uint8).cpu(), torch.cat(predicted)  # [N]
    arrays: dict[str, dict[str, NDArray[Any]]] = {
        "predictions": {
            "labels": labels.numpy(),
            "predicted": answers.numpy(),
            "bases": test.source.cpu().numpy().astype(np.uint16),
        },
        "scores": {"score": torch.cat(score).numpy()},
    }
    if has_decoder(trained.cell.spec):
        arrays["reconstructions"] = _pictures(trained, evenly(test, LOOKED_AT))
    metrics = {
        "accuracy": (100 * int((answers == labels).sum()) / len(test), "%"),
        "held_out_accuracy": (100 * accuracy(model, held_out_set(trained.digits.train, options.held_out)), "%"),
    }
    digits = at_most(at_most(trained.digits.test, options.test_images), options.factor_images)
    return Condition("converged", len(test), metrics, arrays, {"factors": _factors(trained, digits)}, dataset=dataset)


def _factors(trained: Trained, digits: DigitSet) -> pd.DataFrame:
    """Accuracy (a fraction) on `digits` under each value of each factor, everything else untouched."""
    rows = [
        (factor, value, accuracy(trained.model, _OneFactor(digits, factor, value)), len(digits.labels))
        for factor, values in FACTORS.items()
        for value in values
    ]
    return pd.DataFrame(rows, columns=["factor", "value", "accuracy", "images"])


class _OneFactor:
    """Digits under one factor, made a batch at a time."""

    def __init__(self, digits: DigitSet, factor: str, value: float) -> None:
        self.labels = digits.labels
        self._digits, self._factor, self._value = digits, factor, value

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, start: int, stop: int) -> Tensor:
        part = DigitSet(self._digits.images[start:stop], self._digits.labels[start:stop])
        return one_factor(part, self._factor, self._value)


def _pictures(trained: Trained, shown: ImageSet) -> dict[str, NDArray[Any]]:
    """Right and wrong images of a small set, each with what the decoder draws."""
    predictions = predict(trained.model, trained.cell.spec, shown.images, len(shown))
    assert predictions.poses is not None  # a model with a decoder has capsules
    images = (shown.images(0, len(shown))[:, 0] * 255).round().to(torch.uint8)  # [n, 40, 40]
    return reconstructions(trained.model, images, shown.labels.cpu(), predictions.poses, predictions.scores.argmax(1))


def _badge(test: ImageSet, dataset: str) -> str:
    """What tables call the set: affnist-synth never passes for the paper's test set, nor other digits for MNIST."""
    if test.name == "affnist":
        return "affNIST"
    return test.name if dataset == "mnist" else f"{test.name} of {(BADGES | {DIGITS: DIGITS_BADGE})[dataset]}"
