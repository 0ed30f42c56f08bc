"""Cells on a machine with several GPUs: spread over them, never two on one, and a dead process's GPU is free.

The GPUs are a mock: torch is told that it has two. What is held is a real lock.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from capsbench.errors import CapsbenchError
from capsbench.training.device import device


@pytest.fixture
def two_mock_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # each takes the first tensor that it is given
    for name in ("CUDA_VISIBLE_DEVICES", "CAPSBENCH_DEVICE", "SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("two_mock_gpus")
def test_cells_spread_over_gpus_and_never_meet_on_one() -> None:
    held: list[tuple[int, float, float]] = []
    met = threading.Barrier(2)  # two hold a GPU at once, or the test ends in words

    def cell() -> None:
        with device() as chosen:
            began = time.monotonic()
            met.wait(30)
            held.append((chosen.index, began, time.monotonic()))

    cells = [threading.Thread(target=cell) for _ in range(4)]
    for thread in cells:
        thread.start()
    for thread in cells:
        thread.join(timeout=60)
    assert len(held) == 4
    assert {number for number, _, _ in held} == {0, 1}
    for gpu in (0, 1):
        spans = sorted((began, ended) for number, began, ended in held if number == gpu)
        assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans)), spans


@pytest.mark.usefixtures("two_mock_gpus")
def test_the_gpu_of_a_killed_process_is_free() -> None:
    ready, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with device("cuda:1"):
                os.write(write, b"held")
                signal.pause()
        finally:
            os._exit(1)  # never back into pytest
    os.close(write)
    assert os.read(ready, 4) == b"held"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with device("cuda:1") as chosen:
        assert chosen == torch.device("cuda", 1)


@pytest.mark.usefixtures("two_mock_gpus")
@pytest.mark.parametrize("batch", ["SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID"])
def test_two_batch_jobs_that_both_count_from_0_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # what each of them sees where a cgroup hides the other's GPU
    monkeypatch.setenv(batch, "17")
    with device("cuda:0"):
        monkeypatch.setenv(batch, "18")
        entered = threading.Event()

        def other() -> None:
            with device("cuda:0"):
                entered.set()

        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(30)
        thread.join()


@pytest.mark.usefixtures("two_mock_gpus")
def test_a_gpu_is_locked_by_what_the_machine_calls_it_and_not_by_its_place_among_the_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    with device("cuda:0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # of another process, whose first GPU is the free one
        with device() as chosen:
            assert chosen.index == 0
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
        with device() as chosen:
            assert chosen.index == 1


@pytest.mark.usefixtures("two_mock_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "cuda:-1", "gpu", "gpu:0"])
def test_a_gpu_that_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(CapsbenchError, match=rf"There is no device '{name}' here \(2 CUDA GPUs\)"), device(name):
        pass
