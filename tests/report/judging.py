"""Results that nobody trained with chosen right and wrong answers, and claims about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import toy
import yaml

from capsbench.plan.claims import load_claims
from capsbench.report.collect import collect
from capsbench.report.results import Results
from capsbench.report.verdicts import Judged, Judgement, judge

IMAGES = 2000
CELLS = {"mnist": ["cnn", "capsnet-r3-recon"]}
FULL: dict[str, Any] = {"budget": "short", "reductions": {}, "reduced": {}}


def results_of(folder: Path, tasks: dict[str, list[str]], seeds: int = 5, **plan: Any) -> Path:
    """Results of an unreduced plan; `plan` replaces keys of plan.json."""
    return toy.write_toy(folder, tuple(range(seeds)), **{"tasks": tasks} | FULL | plan)


def answer(folder: Path, variant: str, wrong: np.ndarray, condition: str = "test") -> None:
    """Give the MNIST runs of a variant these answers, `wrong` [seeds, N] bool, in predictions and metrics alike."""
    for seed, row in enumerate(wrong):
        place = toy.run_folder(folder, "mnist", variant, seed) / condition
        labels = np.arange(len(row), dtype=np.uint8) % 10
        predicted = np.where(row, (labels + 1) % 10, labels).astype(np.uint8)
        np.savez_compressed(place / "predictions.npz", labels=labels, predicted=predicted)
        measure(folder, "mnist", variant, seed, condition, error=100 * float(row.mean()))


def measure(folder: Path, task: str, variant: str, seed: int, condition: str, **values: float) -> None:
    """Replace metrics of a run."""
    path = toy.run_folder(folder, task, variant, seed) / condition / "metrics.json"
    metrics = {name: {"value": value, "unit": "%"} for name, value in values.items()}
    toy.change_json(path, metrics=metrics, images=IMAGES)


def values(folder: Path, variant: str, *found: float) -> None:
    """Replace the errors of a variant's MNIST runs, by seed."""
    for seed, value in enumerate(found):
        measure(folder, "mnist", variant, seed, "test", error=value)


def errors(rate: float, seeds: int = 5, stream: int = 0, images: int = IMAGES) -> np.ndarray:
    """Wrong answers [seeds, N] at a rate: half of them are the same hard images for every seed."""
    rng = np.random.default_rng(stream)
    hard = np.zeros(images, dtype=bool)
    hard[: int(rate * images / 2)] = True
    return hard | (rng.random((seeds, images)) < rate / 2)


def claim(kind: str, **values: Any) -> dict[str, Any]:
    """A claim about MNIST's error of capsnet-r3-recon, against cnn where its kind needs a baseline."""
    base: dict[str, Any] = {
        "id": f"{kind.replace('_', '-')}", "sentence": "It is so.", "source": "A test.", "kind": kind, "family": "one",
        "cell": "mnist/capsnet-r3-recon", "condition": "test", "metric": "error", "data": "mnist",
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "value": {"expected": 2.0, "delta": 0.5, "test": "student"},
        "direction": {"baseline": "mnist/cnn", "direction": "less", "test": "crossed"},
        "no_difference": {"baseline": "mnist/cnn", "delta": 0.5, "test": "crossed"},
    }
    return {key: value for key, value in (base | own[kind] | values).items() if value is not None}


def judged(folder: Path, *claims: dict[str, Any]) -> tuple[Judged, Results]:
    """The claims judged by the results in `folder`."""
    families = dict.fromkeys((claim["family"] for claim in claims), "A family")
    path = folder / f"claims-{len(list(folder.glob('claims-*')))}.yaml"
    path.write_text(yaml.safe_dump({"families": families, "claims": list(claims)}))
    results = collect(folder)
    return judge(results, load_claims(path)), results


def one(folder: Path, said: dict[str, Any]) -> Judgement:
    """A single claim, judged."""
    return judged(folder, said)[0].judgements[0]
