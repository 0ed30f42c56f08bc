"""What goes wrong under a training process: memory, damaged checkpoints and rows, a clock that jumps."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from places import PATIENCE, wait_for
from test_run import bits
from test_seeds import PLAN, setting_of
from tools import unavailable

from capsbench.data.batch import Batch
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.plan import House
from capsbench.training import memory
from capsbench.training.loop import checkpoint_seconds
from capsbench.training.run import Setting
from capsbench.training.step import Step

GIB = 2**30


def stopped(tiny, plan, **environment: str) -> Path:
    """A run that was killed with two checkpoints, after steps 15 and 16; its folder."""
    code, said = tiny.signalled("stopped", 17, "SIGKILL", "train", plan, "--seed", 0, **environment)
    assert code == -signal.SIGKILL, said
    return tiny.run_folder("stopped")


# ---- memory --------------------------------------------------------------------------------------------------------


def address_space(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures a process's address space in /proc")
def test_a_batch_that_memory_does_not_hold_names_one_that_fits(tiny) -> None:
    small = tiny.plan(steps=100_000)
    process = tiny.start("small", "train", small, "--seed", 0, CAPSBENCH_CHECKPOINT_SECONDS="0.05")
    wait_for(tiny.run_folder("small") / "checkpoint" / "last.safetensors", process)
    enough = address_space(process)  # of a run at batch 16
    process.kill()
    process.wait()
    plan = tiny.plan(steps=4)
    plan.write_text(plan.read_text().replace("batch: 16", "batch: 65536"))
    limited = subprocess.run(
        [sys.executable, "-m", "capsbench", "train", str(plan), "--seed", "0"],
        env={**tiny.environment, "CAPSBENCH_RESULTS": str(tiny.folder / "limited")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (enough + 1 * GIB, enough + 1 * GIB)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert limited.returncode == 4, limited.stdout + limited.stderr
    assert "Traceback" not in limited.stderr
    assert "out of memory on cpu at batch 65536; a training step fits at batch " in limited.stderr
    fits = int(limited.stderr.split("fits at batch ")[1].split(",")[0])
    assert 16 <= fits <= 32768
    assert not list((tiny.folder / "limited").rglob("manifest.json"))


@pytest.mark.cuda
def test_a_batch_that_the_gpu_does_not_hold_names_one_that_fits(tiny) -> None:
    plan = tiny.plan(steps=4)
    text = plan.read_text().replace("width: 0.0625", "width: 1").replace("batch: 16", "batch: 262144")
    plan.write_text(text)
    code, said = tiny.run("large", "train", plan, "--seed", 0)
    assert code == 4, said
    assert "out of memory on cuda:0 at batch 262144; a training step fits at batch " in said
    assert "Traceback" not in said
    fits = int(said.split("fits at batch ")[1].split(",")[0])
    plan.write_text(text.replace("batch: 262144", f"batch: {fits}"))
    assert tiny.run("fits", "train", plan, "--seed", 0)[0] == 0


@pytest.fixture
def setting(tmp_path: Path, results: Path, no_data: dict[str, str]) -> Setting:
    (tmp_path / "small.yaml").write_text(PLAN)
    return setting_of(House.load(tmp_path / "small.yaml", "uci-digits"), "cnn")


class KillsWhoUnpacksIt:
    """In the place of digits: the system's answer to a process that asks for too much, as it comes to the trial's."""

    def __reduce__(self) -> tuple:
        return signal.raise_signal, (signal.SIGKILL,)


@pytest.mark.slow
def test_a_trial_fits_or_is_killed_or_its_error_is_raised(setting: Setting) -> None:
    assert memory._fits(setting, 0, 8)
    assert not memory._fits(replace(setting, digits=KillsWhoUnpacksIt()), 0, 8)
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'train'"):  # no want of memory
        memory._fits(replace(setting, digits=None), 0, 8)


def test_a_trial_is_a_step_at_the_batch_that_it_is_asked_for_and_only_want_of_memory_means_that_it_does_not_fit(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the process that tries it does; the run's own batch, 8, has not fitted."""
    seen: list[int] = []
    monkeypatch.setattr(Step, "train", lambda self, batch: seen.append(len(batch.images)))
    assert memory._step_fits(setting, 0, 2)
    assert seen == [2]

    def fails(self: Step, batch: Batch) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(Step, "train", fails)
    words = "DefaultCPUAllocator: can't allocate memory"
    assert not memory._step_fits(setting, 0, 2)
    words = "shapes do not match"
    with pytest.raises(RuntimeError, match=words):
        memory._step_fits(setting, 0, 2)


class MockOfAFullDevice:
    """A mock: stands for a GPU whose memory holds steps up to a batch; no GPU is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holds: int) -> None:
        self.tried: list[int] = []

        def fits(setting: object, seed: int, batch: int) -> bool:
            self.tried.append(batch)
            return batch <= holds

        monkeypatch.setattr(memory, "_fits", fits)


def test_a_primitive_that_the_library_does_not_have_is_no_want_of_memory() -> None:
    words = "could not create a primitive descriptor for a convolution forward propagation primitive"
    assert not memory.is_out_of_memory(RuntimeError(words))


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "CUDA driver error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory",
    ],
)
def test_memory_that_torch_s_own_allocator_did_not_ask_for_is_want_of_memory_too(words: str) -> None:
    """The words are CUDA's and its libraries'; no GPU is asked."""
    assert memory.is_out_of_memory(RuntimeError(words))
    assert not memory.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


@pytest.mark.parametrize("seconds", ["nan", "-1", "often"])
def test_seconds_between_checkpoints_are_a_number_from_nought_on(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setenv("CAPSBENCH_CHECKPOINT_SECONDS", seconds)
    with pytest.raises(CapsbenchError, match=f"CAPSBENCH_CHECKPOINT_SECONDS is '{seconds}', not a number of seconds"):
        checkpoint_seconds()


@pytest.mark.parametrize(
    ("holds", "sentence", "tried"),
    [
        (40, "a training step fits at batch 32, so free the device, or say batch: 32 in a.yaml", [128, 64, 32]),
        (0, "and no smaller batch fits either; free the device", [128, 64, 32, 16, 8, 4, 2, 1]),
        (200, ", though a training step at that batch fits: what is measured along training shows the model", [128]),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("could not create a primitive"),
        MemoryError("Unable to allocate 45.0 MiB for an array"),
    ],
)
def test_the_sentence_on_memory_with_a_mocked_device(monkeypatch, error, holds: int, sentence: str, tried) -> None:
    mock = MockOfAFullDevice(monkeypatch, holds)
    training = SimpleNamespace(batch=128)
    cell, house = SimpleNamespace(label="mnist/cnn", training=training), SimpleNamespace(path="a.yaml")

    def work(setting: object, seed: int) -> None:
        raise error

    with pytest.raises(ResourceError) as caught:
        memory.says_what_fits(work)(SimpleNamespace(cell=cell, house=house, device=torch.device("cuda:0")), 0)
    assert str(caught.value).startswith("mnist/cnn seed 0: out of memory on cuda:0 at batch 128")
    assert sentence in str(caught.value)
    assert mock.tried == tried


def test_another_mistake_of_torch_is_not_called_memory() -> None:
    def work(setting: object, seed: int) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        memory.says_what_fits(work)(None, 0)


# ---- checkpoints and rows ------------------------------------------------------------------------------------------


def truncated(folder: Path) -> str:
    path = folder / "checkpoint" / "last.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return "last.safetensors is not a whole safetensors file"


def emptied(folder: Path) -> str:
    (folder / "checkpoint" / "last.safetensors").write_bytes(b"")
    return "last.safetensors is not a whole safetensors file"


def history_lost(folder: Path) -> str:
    (folder / "history.csv").unlink()
    return "history.csv cannot be read"


def history_cut(folder: Path) -> str:
    lines = (folder / "history.csv").read_text().splitlines(keepends=True)
    (folder / "history.csv").write_text("".join(lines[:2]))
    return "history.csv has 1 rows up to step"


def history_garbled(folder: Path) -> str:
    (folder / "history.csv").write_bytes(bytes(range(256)))
    return "history.csv cannot be read"


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_and_lost_rows_begin_again_aloud(tiny) -> None:
    plan = tiny.plan(steps=30)
    tiny.run("straight", "train", plan, "--seed", 0)
    folder = stopped(tiny, plan)
    shutil.copytree(folder, tiny.folder / "as-it-was")
    for damage, then in (
        (truncated, "going on after step 15 of 30"),
        (emptied, "going on after step 15 of 30"),
        (history_lost, "beginning again at step 0"),
        (history_cut, "beginning again at step 0"),
        (history_garbled, "beginning again at step 0"),
    ):
        shutil.rmtree(folder)
        shutil.copytree(tiny.folder / "as-it-was", folder)
        words = damage(folder)
        code, said = tiny.run("stopped", "train", plan, "--seed", 0)
        assert code == 0, said
        assert words in said
        assert then in said
        assert bits(folder) == bits(tiny.run_folder("straight"))
        columns = [file.read_text().count("\n") for file in (folder / "history.csv", straight_history(tiny))]
        assert columns[0] == columns[1]


def straight_history(tiny) -> Path:
    return tiny.run_folder("straight") / "history.csv"


# ---- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clock_that_jumps_while_it_trains_and_between_two_tries_changes_no_bit(tiny) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        unavailable("no libfaketime on this machine")
    clock = tiny.folder / "clock"
    jumps = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    jumps["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"  # that clock jumps on no machine
    plan = tiny.plan(steps=30)
    tiny.run("straight", "train", plan, "--seed", 0)
    clock.write_text("+3y\n")
    folder = stopped(tiny, plan, CLOCK_AT_STEP=f"10 -5y {clock}", **jumps)
    assert clock.read_text() == "-5y\n"  # it jumped while the run went on
    code, said = tiny.run("stopped", "train", plan, "--seed", 0)  # and forward again, to the machine's own time
    assert code == 0, said
    assert "going on after step" in said
    assert bits(folder) == bits(tiny.run_folder("straight"))
