"""Memory that does not suffice outside training: one sentence with what to lower, exit code 4, never a traceback."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from places import PATIENCE, REPOSITORY, Place
from rich.console import Console

from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.errors import ResourceError
from capsbench.pipeline import open_house
from capsbench.training.what_to_lower import says_what_to_lower

GIB = 2**30
MEASURE = """
import os, capsbench.cli.travel, torch, torchvision
torch.set_num_threads(1)
torch.ones(2000, 2000) @ torch.ones(2000, 2000)
print(int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE"))
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, REPOSITORY)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures a process's address space in /proc")
def test_cost_at_a_batch_that_memory_does_not_hold_names_the_key_to_lower(place, no_data) -> None:
    path = place.plan(variants="[cnn]", cost="{batch: 400000, repetitions: 1}")
    environment = no_data | {"CAPSBENCH_DEVICE": "cpu", "CAPSBENCH_RESULTS": str(place.root)}
    environment |= {"PYTHONPATH": str(REPOSITORY)}
    loaded = subprocess.run([sys.executable, "-c", MEASURE], env=environment, capture_output=True, check=True)
    limit = int(loaded.stdout) + 4 * GIB  # images alone are 1.2 GiB, their features 19
    said = subprocess.run(
        [sys.executable, "-m", "capsbench", "cost", str(path)],
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert said.returncode == 4, said.stderr
    assert said.stderr.splitlines()[-1] == (
        f"capsbench: {path}: cost on cpu: out of memory; lower cost.batch, which is 400,000, in {path}, "
        "or use a device with more memory."
    )
    assert "Traceback" not in said.stderr
    assert not list(place.root.rglob("cost.json"))


def test_evaluation_on_a_mocked_device_without_memory_is_a_sentence(place, no_data, results, monkeypatch) -> None:
    """The mock stands for a device that is full; no memory is filled."""

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("capsbench.evaluation.run.evaluate_run", full)
    house, source = open_house(place.plan(variants="[cnn]"))
    console = Console(quiet=True)
    train_cells(console, house, source, house.cells, "cpu", 1)
    with pytest.raises(ResourceError) as caught:
        evaluate_cells(console, house, source, house.cells, "cpu", 1, None)
    assert str(caught.value) == (
        "mnist/cnn seed 0: evaluation on cpu: out of memory; free the device, or evaluate on another one with "
        "--device; what is trained is kept."
    )


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_memory_of_other_kinds_is_told_alike(error: Exception) -> None:
    with (
        pytest.raises(ResourceError, match=r"^This: out of memory; lower it\.$"),
        says_what_to_lower("This", "lower it"),
    ):
        raise error


def test_another_mistake_is_not_called_memory() -> None:
    with pytest.raises(RuntimeError, match="shapes do not match"), says_what_to_lower("This", "lower it"):
        raise RuntimeError("shapes do not match")
