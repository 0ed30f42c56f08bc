"""What a process is set up with before it trains or evaluates."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from capsbench.errors import CapsbenchError
from capsbench.training import scoring
from capsbench.training.device import device

SET_UP = """
import os
import sys
import torch
from capsbench.training.device import set_up

set_up(1)
print(os.environ["CUBLAS_WORKSPACE_CONFIG"], "NVIDIA_TF32_OVERRIDE" in os.environ)
print(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
print(torch.get_num_threads(), torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
print("torch._inductor" in sys.modules)
import torch._inductor.config
print(torch._inductor.config.deterministic)
"""


def test_algorithms_are_deterministic_and_the_compiler_is_not_imported_for_it() -> None:
    inherited = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "NVIDIA_TF32_OVERRIDE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", SET_UP], capture_output=True, text=True, check=True, env=os.environ | inherited
    )
    assert said.stdout.splitlines() == [":4096:8 False", "True False", "1 False False", "False", "True"]


@pytest.mark.parametrize("at", ["set_device", "empty"])
def test_a_gpu_that_lets_no_process_in_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A mock: torch sees a GPU here that is full, at once or at its first tensor. No GPU is asked."""

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch.cuda if at == "set_device" else torch, at, full)
    said = r"^cuda:0 takes no work \(out of memory\); free it, or name another"
    with pytest.raises(CapsbenchError, match=said), device("cuda"):
        pytest.fail("it was held")


def test_a_smaller_gpu_scores_fewer_images_at_once() -> None:
    found = {gigabytes: scoring._within(gigabytes * 2**30) for gigabytes in (1, 16, 40, 80, 141)}
    assert found == {1: 51, 16: 819, 40: 2000, 80: 2000, 141: 2000}
    assert scoring._within(1) == 1
