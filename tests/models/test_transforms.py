"""The transforms of float32 convolutions on a GPU: kernels, interpreted and compiled; the matrices without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from with_triton import all_pass, compiled

from capsbench.models import spectral, transforms
from capsbench.models.spectral import Tiling

HERE = Path(__file__).parent


def test_kernels_give_what_the_matrices_give() -> None:
    all_pass(HERE / "transforms_interpreted.py", "not slow", numbers=False)


@pytest.mark.slow
def test_kernels_give_it_at_the_papers_size() -> None:
    all_pass(HERE / "transforms_interpreted.py", "slow", numbers=False)


@pytest.mark.slow
def test_the_kernels_compile_for_a_gpu_and_hold_a_patch_in_registers() -> None:
    said = [line.split() for line in compiled(HERE / "transforms_compiled.py").splitlines()]
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
