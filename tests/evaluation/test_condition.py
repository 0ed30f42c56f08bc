"""How a condition is stored: metrics.json is there where all else is, and at no other moment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capsbench.evaluation.condition import Condition

RUN = {"task": "mnist", "variant": "cnn", "seed": 0}
MANIFEST = {"run": RUN, "dataset": {"name": "mnist", "badge": "MNIST"}, "weights": "w"}


def test_a_kill_while_old_files_are_removed_leaves_no_metrics_without_their_arrays(tmp_path: Path, monkeypatch) -> None:
    arrays = {name: {"x": np.zeros(2)} for name in ("predictions", "scores", "adversarial", "zebra")}
    condition = Condition("test", 2, {"error": (1.0, "%")}, arrays)
    condition.write(tmp_path, manifest=MANIFEST, digest="d", seconds=1.0)
    assert (tmp_path / "test" / "metrics.json").exists()
    removed, unlink = [], Path.unlink

    def killed(path: Path, *_: object, **__: object) -> None:
        unlink(path)
        removed.append(path.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        condition.write(tmp_path, manifest=MANIFEST, digest="d", seconds=1.0)
    assert removed == ["metrics.json"]


def stored(condition: Condition, folder: Path) -> dict[str, object]:
    condition.write(folder, manifest=MANIFEST, digest="d" * 64, seconds=1.23456)
    return dict(json.loads((folder / condition.name / "metrics.json").read_text()))


def test_metrics_are_stored_beside_what_they_are_of_and_were_measured_with(tmp_path: Path) -> None:
    condition = Condition("test", 2, {"error": (1.5, "%"), "ssim_true": (None, "")})
    assert stored(condition, tmp_path) == {
        "schema": 1, "run": RUN, "condition": "test", "status": "done", "reason": None,
        "dataset": MANIFEST["dataset"], "images": 2, "digest": "d" * 64, "weights": "w", "seconds": 1.235,
        "metrics": {"error": {"value": 1.5, "unit": "%"}, "ssim_true": {"value": None, "unit": ""}},
    }  # fmt: skip


def test_a_condition_names_its_own_data_and_why_it_has_no_metrics(tmp_path: Path) -> None:
    """Trained on MNIST, tested on affnist-synth: under the run's own name its accuracy would pass for one of MNIST."""
    made = {"name": "affnist-synth", "badge": "affnist-synth", "digest": "a" * 64}
    condition = Condition("matched", 70, {}, status="not matched", reason="it never got there", dataset=made)
    found = stored(condition, tmp_path)
    assert found["dataset"] == made
    assert (found["status"], found["reason"], found["metrics"]) == ("not matched", "it never got there", {})


def test_the_terminal_shows_the_first_three_metrics_that_there_are() -> None:
    metrics = {"error": (1.23456, "%"), "ssim": (None, ""), "iou": (0.5, ""), "mse": (2.0, ""), "psnr": (3.0, "dB")}
    assert Condition("test", 2, metrics).summary() == "test: error 1.235 %, iou 0.5, mse 2"
    assert Condition("matched", 2, {}, status="not matched").summary() == "matched: not matched"
