"""Weights that travel: a small safetensors file in bf16 that knows its model, its data and the figure that it gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, NonNegativeInt, PositiveInt, ValidationError
from torch import nn

from capsbench.data.digits import Digits
from capsbench.data.mnist import test_images
from capsbench.errors import CapsbenchError, DataError
from capsbench.evaluation.predict import predict
from capsbench.files import read_json
from capsbench.models import build_model
from capsbench.models.build import as_spec
from capsbench.models.layout import channels_last
from capsbench.plan.outside import code_of
from capsbench.training.checkpoint import Checkpoint, read_tensors, write_tensors

KIND = "capsbench weights 1"


class Run(BaseModel):
    """The run that a file's weights are of."""

    task: Literal["mnist"]
    variant: str
    seed: NonNegativeInt


class Dataset(BaseModel):
    """What it was trained and scored on."""

    name: str


class Description(BaseModel):
    """What of a weights file's own words is read."""

    run: Run
    variant: dict[str, Any]
    image_size: PositiveInt
    dataset: Dataset
    data_digest: str
    images: PositiveInt
    correct: NonNegativeInt


def published_run(run: Path) -> dict[str, Any]:
    """The manifest of a run whose weights can be published. Raises CapsbenchError: none, or not done, or not MNIST."""
    try:
        manifest = read_json(run / "manifest.json")
        task, status = manifest["run"]["task"], manifest["status"]
        _ = (manifest["config"]["variant"].items(), manifest["config"]["task"]["image"][0])
        _ = (manifest["digests"]["data"], manifest["dataset"]["name"], manifest["weights"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise CapsbenchError(f"{run} holds no run; name one such as results/paper/runs/mnist/cnn/seed-0.") from None
    if task != "mnist" or status != "done":
        raise CapsbenchError(f"{run} is a run of {task} that is {status}; weights are published of mnist runs, done.")
    if code := code_of(manifest["config"]["variant"]):
        raise CapsbenchError(f"{run} has the {code}, code that no file of weights brings along.")
    return dict(manifest)


def publish(run: Path, path: Path, digits: Digits, data_digest: str, device: torch.device) -> dict[str, Any]:
    """Write the weights of a trained MNIST run as bf16, scored once as they are stored; returns what the file says.

    Args:
        run: the run's folder; path: the file; digits: the run's data, on `device`; data_digest: theirs.

    Raises:
        CapsbenchError: as `published_run`, or the run has other data. DataError: its weights are not whole.
    """
    manifest = published_run(run)
    config = manifest["config"]
    if manifest["digests"]["data"] != data_digest:
        raise CapsbenchError(f"{run} was trained on other data than these; name its own with CAPSBENCH_DATA.")
    stored = {name: value.to(torch.bfloat16) for name, value in _whole(run / "weights.safetensors").tensors.items()}
    size = config["task"]["image"][0]
    try:
        model = _model(config["variant"], size, stored, device)
    except (CapsbenchError, RuntimeError, KeyError, TypeError) as error:
        raise DataError(f"{run} is not of a model that this version builds ({error}).") from None
    correct, count = _correct(model, config["variant"], digits)
    meta = {
        "kind": KIND,
        "run": manifest["run"],
        "variant": config["variant"],
        "image_size": size,
        "dataset": manifest["dataset"],
        "data_digest": data_digest,
        "run_digest": manifest["digest"],
        "git": manifest.get("git"),
        "images": count,
        "correct": correct,
    }
    write_tensors(path, stored, meta)
    return meta


def described(path: Path) -> dict[str, Any]:
    """What a weights file says of itself. Raises DataError: it is not there, altered, or not of this kind."""
    return _read(path)[1]


def score(path: Path, digits: Digits, device: torch.device) -> tuple[int, int]:
    """How many of the test images the file's model gets right, and how many there are.

    Raises DataError: the file is not there, altered, or not of this kind.
    """
    tensors, meta = _read(path)
    try:
        model = _model(meta["variant"], meta["image_size"], tensors, device)
    except (CapsbenchError, RuntimeError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not of a model that this version builds ({error}).") from None
    return _correct(model, meta["variant"], digits)


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors, meta = _whole(path)
    if meta.get("kind") != KIND:
        raise DataError(f"{path} is no file of `capsbench weights`; a run's own weights are evaluated with its plan.")
    try:
        said = Description.model_validate(meta)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        what = ".".join(map(str, first["loc"]))
        raise DataError(f"{path} is not as `capsbench weights` writes it ({what}: {first['msg']}).") from None
    if code := code_of(said.variant):  # to load a file is to run no code that it names
        raise DataError(f"{path} names the {code}, from outside the suite, which no file of weights may.")
    return tensors, meta


def _whole(path: Path) -> Checkpoint:
    try:
        return read_tensors(path)
    except FileNotFoundError:
        raise DataError(f"{path} is not there.") from None
    except ValueError as error:
        raise DataError(f"{error}; fetch or make it again.") from None


def _model(variant: dict[str, Any], size: int, tensors: dict[str, torch.Tensor], device: torch.device) -> nn.Module:
    model = build_model(variant, size)
    model.load_state_dict({name: value.float() for name, value in tensors.items()})
    return channels_last(model.eval().to(device))


def _correct(model: nn.Module, variant: dict[str, Any], digits: Digits) -> tuple[int, int]:
    test = digits.test
    predictions = predict(model, as_spec(variant), lambda a, b: test_images(test, a, b), len(test.labels))
    return int((predictions.scores.argmax(1) == test.labels.cpu()).sum()), len(test.labels)
