"""examples/trained_weights: the published network written out without the package computes what the package does."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from capsbench.models import build_model

REPOSITORY = Path(__file__).resolve().parents[2]
SCORE = REPOSITORY / "examples" / "trained_weights" / "score.py"
WEIGHTS = REPOSITORY / "results" / "paper" / "weights" / "mnist-capsnet-r3-recon-seed-0.safetensors"


@pytest.fixture
def digits(tmp_path: Path) -> torch.Tensor:
    """Two hundred pictures [N, 1, 28, 28] uint8, no digits, in a file as MNIST has them."""
    images = torch.randint(0, 256, (200, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(bytes(16) + images.numpy().tobytes())
    return images


def test_it_computes_the_capsules_that_the_package_computes(digits) -> None:
    weights = {name: tensor.float() for name, tensor in load_file(WEIGHTS).items()}
    model = build_model("capsnet-r3-recon", image_size=28)
    model.load_state_dict(weights)
    images = digits[:20] / 255
    with torch.inference_mode():
        here = runpy.run_path(str(SCORE))["capsnet"](weights, images)
        torch.testing.assert_close(here, model(images).poses, atol=1e-5, rtol=1e-4)


def test_it_counts_wrong_answers(digits, tmp_path: Path, monkeypatch, capsys) -> None:
    weights = {name: tensor.float() for name, tensor in load_file(WEIGHTS).items()}
    with torch.inference_mode():
        lengths = runpy.run_path(str(SCORE))["capsnet"](weights, digits / 255).norm(dim=2)
    labels = lengths.argmax(1).to(torch.uint8)
    labels[[3, 150, 199]] += 1
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(bytes(8) + np.asarray(labels % 10).tobytes())
    monkeypatch.setattr(sys, "argv", [str(SCORE), str(WEIGHTS), str(tmp_path)])
    runpy.run_path(str(SCORE), run_name="__main__")
    assert capsys.readouterr().out == "3 of 200 wrong: 1.50 %\n"


def test_what_is_missing_is_a_sentence(digits, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCORE)])
    with pytest.raises(SystemExit, match="Name a file of weights"):
        runpy.run_path(str(SCORE), run_name="__main__")
    monkeypatch.setattr(sys, "argv", [str(SCORE), str(WEIGHTS), str(tmp_path)])
    with pytest.raises(SystemExit, match="There is no t10k-labels in "):
        runpy.run_path(str(SCORE), run_name="__main__")


def test_nothing_of_the_package_is_used() -> None:
    assert "capsbench" not in {
        name.split(".")[0]
        for node in ast.walk(ast.parse(SCORE.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    }
