"""One trial of a tuning: trained by the same code as every run, then judged on the held-out training digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from capsbench.data.affnist_sets import held_out_set
from capsbench.data.batch import DigitSet
from capsbench.data.digits import held_out
from capsbench.data.multimnist import PairSet
from capsbench.data.pairing import PairMaker
from capsbench.data.testing import TEST_SEED
from capsbench.data.two_digit import TwoDigitPairs
from capsbench.files import read_json, write_json
from capsbench.plan import Cell
from capsbench.training.checkpoint import read_tensors
from capsbench.training.exact_set import exactly
from capsbench.training.loop import Progress
from capsbench.training.run import Setting, new_model, train_run
from capsbench.training.scoring import accuracy, batches, device_of, scores_of, single_error

FIGURE = "held-out.json"


def judged(folder: Path, digest: str) -> dict[str, Any] | None:
    """The stored figure of this very trial, or None if it is still to be made."""
    try:
        figure = read_json(folder / FIGURE)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return figure if isinstance(figure, dict) and figure.get("digest") == digest else None


def judge(
    setting: Setting, seed: int, digest: str, progress: Progress, resolved: dict[str, Any] | None
) -> dict[str, Any]:
    """Train one trial and store its error on the held-out digits; its weights, which nobody needs again, are removed.

    Args:
        setting: of a cell that is a trial, at one point of the grid; resolved: precision, as for train_run.
        digest: what the figure is stored with (capsbench.plan.done.trial_digest).

    Returns:
        The figure: `status`, `error` in percent (None where the loss was not finite), `digest`.

    Raises:
        DataError: too few digits. ResourceError: memory, disk or a signal stopped it; what was done is saved.
    """
    cell, folder = setting.cell, setting.house.run_folder(setting.cell, seed)
    manifest = train_run(setting, seed, progress, resolved)
    weights = folder / "weights.safetensors"
    error = None
    if manifest["status"] == "done":
        try:
            tensors = read_tensors(weights).tensors
        except (FileNotFoundError, ValueError):  # removed after a figure that is gone, or damaged: train it again
            (folder / "manifest.json").unlink()
            manifest = train_run(setting, seed, progress, resolved)
            tensors = read_tensors(weights).tensors
        model = new_model(setting, seed)
        model.load_state_dict(tensors)
        with torch.inference_mode():
            error = held_out_error(model.eval(), cell, setting.digits.train)
    figure = {
        "digest": digest,
        "status": manifest["status"],
        "reason": manifest["reason"],
        "error": error,
        "steps": manifest["steps"],
        "precision": manifest["resolved"]["precision"],
    }
    write_json(folder / FIGURE, figure)
    weights.unlink(missing_ok=True)
    return figure


def held_out_error(model: nn.Module, cell: Cell, train: DigitSet) -> float:
    """Error in percent on the first training digits, shown as the task's training shows digits; no test data.

    MNIST and the two-digit task: single digits, unshifted. affNIST: each at a random one of the 169 places.
    MultiMNIST: as many pairs of them as digits, both to be right; so for a model that trains on pairs.
    """
    if cell.task == "affnist":
        return 100 * (1 - accuracy(model, held_out_set(train, cell.held_out)))
    _, digits = held_out(train, cell.held_out)
    count = len(digits.labels)
    if cell.task == "multimnist":
        placement = cell.options.placement  # type: ignore[attr-defined]
        return _pair_error(model, PairSet(digits, seed=TEST_SEED, size=count, placement=placement))
    if cell.spec.train_on == "pairs":
        return _pair_error(model, TwoDigitPairs(digits, seed=TEST_SEED, size=count))
    return single_error(model, digits)


def _pair_error(model: nn.Module, pairs: PairMaker) -> float:
    wrong = 0
    for start, stop in batches(model, pairs.size):
        made = pairs.make(torch.arange(start, stop, device=device_of(model)))
        wrong += int((~exactly(scores_of(model, made.images), made.labels)).sum())
    return 100 * wrong / pairs.size
