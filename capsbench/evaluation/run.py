"""Evaluate one trained run: read its weights, ask its task for every condition, store what comes back."""

from __future__ import annotations

import importlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from capsbench.data.digits import Digits
from capsbench.errors import DataError
from capsbench.evaluation.condition import Condition
from capsbench.models import build_model
from capsbench.models.layout import channels_last
from capsbench.plan import Cell, House
from capsbench.training.checkpoint import read_tensors


@dataclass(frozen=True)
class Trained:
    """A trained run as its task's evaluation gets it."""

    cell: Cell
    seed: int
    model: nn.Module  # in evaluation mode, float32, on the device
    digits: Digits  # on the device
    folder: Path  # of the run
    data_folder: str | None  # of the plan, where official affNIST files may lie


def evaluate_run(
    house: House,
    cell: Cell,
    seed: int,
    manifest: dict[str, Any],
    digest: str,
    digits: Digits,
    device: torch.device,
) -> list[Condition]:
    """Every condition of a trained run, stored in its folder. Evaluation is in float32 whatever training was.

    Raises:
        DataError: the weights are truncated or altered, or there is too little data.
    """
    folder = house.run_folder(cell, seed)
    model = channels_last(load_model(house, cell, folder / "weights.safetensors").to(device))
    started = time.perf_counter()
    task = importlib.import_module(f"capsbench.evaluation.{cell.task}")
    with torch.inference_mode():
        conditions: list[Condition] = task.evaluate(Trained(cell, seed, model, digits, folder, house.plan.data_folder))
    seconds = time.perf_counter() - started
    for condition in conditions:
        condition.write(folder, manifest=manifest, digest=digest, seconds=seconds)
    made = {condition.name for condition in conditions}
    for metrics in folder.glob("*/metrics.json"):  # of a condition that the plan has no more
        if metrics.parent.name not in made:
            shutil.rmtree(metrics.parent)
    return conditions


def load_model(house: House, cell: Cell, path: Path) -> nn.Module:
    """A run's model with its stored weights, in evaluation mode.

    Raises:
        DataError: the file is missing, truncated, altered or another model's.
    """
    model = build_model(cell.spec, cell.options.IMAGE[0], house.path.parent)
    try:
        model.load_state_dict(read_tensors(path).tensors)
    except (ValueError, FileNotFoundError, RuntimeError) as error:
        raise DataError(f"{path}: {error}; remove its manifest.json to train the run again.") from None
    return model.eval()
