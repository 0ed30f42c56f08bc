"""The transforms of float32 convolutions on a GPU: kernels, interpreted and compiled; the matrices without them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tools import unavailable

from capsbench.models import spectral, transforms
from capsbench.models.spectral import Tiling

HERE = Path(__file__).parent


def passed(which: str) -> None:
    """Pass what is marked so of transforms_interpreted.py, in a process of its own."""
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    command = [
        sys.executable,
        "-m",
        "pytest",
        HERE / "transforms_interpreted.py",
        "-p",
        "no:cacheprovider",
        "-m",
        which,
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_kernels_give_what_the_matrices_give() -> None:
    passed("not slow")


@pytest.mark.slow
def test_kernels_give_it_at_the_papers_size() -> None:
    passed("slow")


@pytest.mark.slow
def test_the_kernels_compile_for_a_gpu_and_hold_a_patch_in_registers() -> None:
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, HERE / "transforms_compiled.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    assert len(said) == 6
    for _, _, *words, registers, spilled in said:
        assert words == ["fma", "no-atomics", "no-tf32", "no-barriers"]
        assert int(registers) <= 255
        assert int(spilled) == 0, "what a thread holds has outgrown its registers"


def test_without_triton_the_matrices_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "capsbench.models.transform_launch", None)  # its import fails
    monkeypatch.delattr("capsbench.models.transform_launch", raising=False)  # also where it was imported before
    tiles, x = Tiling(2, 5, 10, 6, (1, 1)), torch.randn(2, 3, 20, 20)
    with pytest.raises(ImportError):
        from capsbench.models import transform_launch  # noqa: F401
    matrix = transforms.matrices(10, 5, 6, torch.float32, x.device).of_x
    assert torch.equal(transforms.of_image(x, tiles), matrix.expand(2, -1, -1) @ spectral.cut_image(x, tiles))
