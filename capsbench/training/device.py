"""The device a process trains on, set up so that the same config gives the same bits."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from capsbench.errors import CapsbenchError

BATCH_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID")  # set by SLURM, LSF and PBS in each of their jobs

CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")  # sizes of its work space, as torch wants them; read once a process


def set_up(threads: int = 1) -> None:
    """Deterministic algorithms, full float32 (no TF32), and a fixed number of threads: weights differ with it."""
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in CUBLAS_DETERMINISTIC:  # with another every product would raise
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = CUBLAS_DETERMINISTIC[0]
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # it would decide for TF32 or against it beneath torch's switches
    # use_deterministic_algorithms(True) in two parts: it imports Inductor to switch it, a second and a half a process
    torch.set_deterministic_debug_mode("error")
    os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # read where something imports Inductor after all
    # no operation here reads memory that it has not written, and filling it costs a CPU step about a tenth
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(threads)
    _keep_memory()


def _keep_memory() -> None:
    """Have the C library keep what is freed for the next step: given back, every page is mapped and cleared anew.

    That took 8 to 26 % of a CPU step. Elsewhere than under glibc nothing changes. What is kept comes to lie in pieces
    when sizes change: between two models it is given back (`give_memory_back`).
    """
    if hasattr(library := _c_library(), "mallopt"):
        library.mallopt(-4, 0)  # type: ignore[union-attr]  # M_MMAP_MAX: no mapping of its own for a large tensor
        library.mallopt(-1, 2**31 - 1)  # type: ignore[union-attr]  # M_TRIM_THRESHOLD: the heap never shrinks by itself


def give_memory_back() -> None:
    """Give what is free of the process's memory back to the system: after a run, or before another size of batch."""
    gc.collect()
    if hasattr(library := _c_library(), "malloc_trim"):
        library.malloc_trim(0)  # type: ignore[union-attr]


def _c_library() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


@contextlib.contextmanager
def device(name: str | None = None) -> Iterator[torch.device]:
    """Hold a device: a CUDA GPU that no other run holds if there is one (waiting for it), else the CPU.

    Args:
        name: `cpu`, `cuda` or `cuda:<n>`; None and the environment's CAPSBENCH_DEVICE unset: the best there is.

    Raises:
        CapsbenchError: a CUDA device is asked for that is not there, or that lets no process in.
    """
    name = name or os.environ.get("CAPSBENCH_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        yield torch.device("cpu")
        return
    wanted, _, number = name.partition(":")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted != "cuda" or (number and not number.isdigit()) or (number and int(number) >= count) or count == 0:
        raise CapsbenchError(f"There is no device {name!r} here ({count} CUDA GPUs); say cpu, cuda or cuda:<n>.")
    numbers = [int(number)] if number else list(range(count))
    with _one_gpu(numbers) as chosen:
        try:
            torch.cuda.set_device(chosen)
            torch.empty(1, device="cuda")
        except RuntimeError as error:  # full, held by somebody else alone, or broken
            said = str(error).splitlines()[0].removeprefix("CUDA error: ")
            raise CapsbenchError(
                f"cuda:{chosen} takes no work ({said}); free it, or name another device with CAPSBENCH_DEVICE."
            ) from None
        yield torch.device("cuda", chosen)


def locks_of_gpus() -> Path:
    """The folder of the GPUs' locks, this user's own."""
    return Path(tempfile.gettempdir()) / f"capsbench-gpus-{os.getuid()}"


@contextlib.contextmanager
def _one_gpu(numbers: list[int]) -> Iterator[int]:
    """Lock one GPU for this process: cells spread over GPUs and never meet on one. A dead process's lock is free.

    The GPUs of a batch job are its own, and each job may count them from 0: its locks are kept apart from other jobs'.
    """
    folder = locks_of_gpus()
    folder.mkdir(exist_ok=True)
    job = next((f"{name}-{os.environ[name]}-" for name in BATCH_JOBS if os.environ.get(name)), "")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    while True:
        for number in numbers:
            label = visible[number] if number < len(visible) and visible[number] else str(number)
            stream = (folder / f"{job}gpu-{label}".replace("/", "_")).open("w")
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stream.close()
                continue
            with stream:
                yield number
            return
        time.sleep(1)
