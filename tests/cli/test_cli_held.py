"""What is said about the device: a GPU that PyTorch cannot use, and one that others hold."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from capsbench.cli import held
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.provenance import _gpu, machine
from capsbench.training import device as devices

NVIDIA_SMI = """#!/bin/sh
case "$1" in
  --list-gpus) echo "GPU 0: Mock 1 (UUID: GPU-0)" ;;
  *) echo "Mock 1, 535.1" ;;
esac
"""


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=300)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a process asks and says once."""
    yield
    _gpu.cache_clear()
    held._said.clear()


@pytest.fixture
def _mock_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mock of NVIDIA's program that knows one GPU, and a PyTorch that sees none."""
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    _gpu.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("CUDA_VISIBLE_DEVICES", "CAPSBENCH_DEVICE", *devices.BATCH_JOBS):
        monkeypatch.delenv(name, raising=False)


def test_gpus_locks_in_a_folder_that_others_may_write_to_are_refused(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    folder, taken = tmp_path / f"capsbench-gpus-{os.getuid()}", "is not a folder that only you can write to"
    monkeypatch.setattr(devices, "device", lambda name: contextlib.nullcontext(torch.device("cpu")))
    for umask in (0o000, 0o022):
        before = os.umask(umask)
        with held.held_device(console, None, 1):
            assert folder.stat().st_mode & 0o777 == 0o700
        os.umask(before)
    folder.chmod(0o777)
    with pytest.raises(ResourceError, match=taken), held.held_device(console, None, 1):
        pass
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ResourceError, match=taken), held.held_device(console, None, 1):
        pass


@pytest.mark.usefixtures("_mock_gpu")
def test_a_gpu_that_pytorch_cannot_use_is_named(console: Console) -> None:
    with held.held_device(console, None, 1) as chosen:
        assert chosen.type == "cpu"
    assert f"There is a Mock 1 (driver 535.1) here that PyTorch {torch.__version__}, which " in text(console)
    with held.held_device(console, None, 1):
        pass
    assert text(console).count("cannot use: working on the CPU; with CAPSBENCH_DEVICE=cpu, cells") == 1


@pytest.mark.usefixtures("_mock_gpu")
def test_a_batch_job_does_not_hold_a_gpu_to_work_on_the_cpu(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    words = "cannot use; install one that can, or set CAPSBENCH_DEVICE=cpu"
    with pytest.raises(CapsbenchError, match=words), held.held_device(console, None, 1):
        pass


@pytest.mark.usefixtures("_mock_gpu")
def test_a_batch_job_whose_gpu_has_lost_its_driver_does_not_work_on_the_cpu(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mock of NVIDIA's program on a node whose driver has failed: it names no GPU, and PyTorch finds none."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with held.held_device(console, None, 1):
        pass
    assert "finds none (CUDA_VISIBLE_DEVICES is 3): working on the CPU" in text(console)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with pytest.raises(CapsbenchError, match="use another node, "), held.held_device(console, None, 1):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")  # what older SLURMs say in a job that asked for none
    with held.held_device(console, None, 1) as chosen:
        assert chosen.type == "cpu"


@pytest.mark.usefixtures("_mock_gpu")
@pytest.mark.parametrize(
    ("device", "variables"), [("cpu", {}), (None, {"CAPSBENCH_DEVICE": "cpu"}), (None, {"CUDA_VISIBLE_DEVICES": ""})]
)
def test_who_asks_for_the_cpu_hears_nothing(
    console: Console, monkeypatch: pytest.MonkeyPatch, device: str | None, variables: dict[str, str]
) -> None:
    for name, value in {"SLURM_JOB_ID": "1", **variables}.items():
        monkeypatch.setenv(name, value)
    with held.held_device(console, device, 1) as chosen:
        assert chosen.type == "cpu"
    assert text(console) == ""


def timers() -> set[threading.Timer]:
    """Those that still wait."""
    found = {thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)}
    return {timer for timer in found if not timer.finished.is_set()}


def test_a_wait_for_a_gpu_is_said(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "waiting for cuda: it is held by other capsbench processes"

    @contextlib.contextmanager
    def late(name: str | None) -> Iterator[torch.device]:  # a mock of a GPU that another process holds until it is said
        end = time.monotonic() + 30
        while words not in text(console) and time.monotonic() < end:
            time.sleep(0.01)
        yield torch.device("cpu")

    monkeypatch.setattr(devices, "device", late)
    monkeypatch.setattr(held, "PATIENCE", 0.1)
    with held.held_device(console, "cuda", 1):
        assert words in text(console)


def test_of_a_gpu_that_comes_at_once_nothing_is_said(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "PATIENCE", 30.0)
    before = timers()
    meanwhile: set[threading.Timer] = set()

    @contextlib.contextmanager
    def free(name: str | None) -> Iterator[torch.device]:  # a mock of a GPU that nobody holds
        meanwhile.update(timers() - before)
        yield torch.device("cpu")

    monkeypatch.setattr(devices, "device", free)
    with held.held_device(console, "cuda", 1):
        assert len(meanwhile) == 1
        assert timers() == before  # nothing is going to be said while the GPU is worked on
    assert text(console) == ""


def test_of_two_types_of_gpu_a_manifest_names_the_one_at_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A mock of NVIDIA's program with two GPUs, and of a PyTorch that works on the second."""
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\ncase "$*" in *--id=GPU-b) ;; *) echo "First, 1";; esac\necho "Second, 1"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    _gpu.cache_clear()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine()["gpu"] == "First"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", " GPU-b,GPU-a")  # nothing is at work yet: the first that it may use
    assert machine()["gpu"] == "Second"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="b"))
    assert machine()["gpu"] == "Second"


BUILT = ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_120", "compute_120"]


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (9, 0), (12, 0), (12, 1), (13, 0)])
def test_a_gpu_has_code_of_its_generation_or_portable_code(capability: tuple[int, int]) -> None:
    assert held.has_code_for(capability, BUILT)


@pytest.mark.parametrize(
    ("capability", "built"),
    [((7, 0), BUILT), ((6, 1), BUILT), ((10, 0), BUILT), ((9, 1), ["sm_90a"]), ((8, 0), ["gfx90a"]), ((8, 0), [])],
)
def test_an_older_gpu_or_one_of_another_generation_has_none(capability: tuple[int, int], built: list[str]) -> None:
    assert not held.has_code_for(capability, built)
