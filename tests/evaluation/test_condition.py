"""How a condition is stored: metrics.json is there where all else is, and at no other moment."""

from __future__ import annotations

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
