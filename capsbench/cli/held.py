"""The device that a command works on, with what its user should hear of it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from capsbench.cli.snakemake import gpus
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.locks import waiting
from capsbench.provenance import machine

if TYPE_CHECKING:
    import torch

PATIENCE = 10.0  # seconds of waiting before it is said
_said: set[str] = set()  # once a process: `capsbench work` holds a device for each run


@contextmanager
def held_device(console: Console, name: str | None, threads: int) -> Iterator[torch.device]:
    """Hold a device, torch set up for it and so many threads of the CPU (capsbench.training.device).

    Says so where it has to wait for a device, or leaves a GPU unused.

    Raises CapsbenchError: there is no such device, or it is a GPU that PyTorch cannot use or has no code for.
    """
    from capsbench.training import device as devices

    asked = name or os.environ.get("CAPSBENCH_DEVICE")
    if asked and not re.fullmatch(r"cpu|cuda(:[0-9]{1,4})?", asked):
        raise CapsbenchError(f"There is no device {asked!r}; say cpu, cuda or cuda:<n>.")
    devices.set_up(threads)
    _say_if_a_gpu_is_no_use(console, name)
    if asked != "cpu":
        _refuse_foreign_locks()
    words = f"waiting for {name or 'a GPU'}: it is held by other capsbench processes, or slow to start"
    said = threading.Timer(PATIENCE, lambda: console.print(words))
    said.daemon = True
    said.start()
    with ExitStack() as stack:
        stack.callback(said.cancel)
        with waiting(name or "a GPU"):
            chosen = stack.enter_context(devices.device(name))
        said.cancel()
        if chosen.type == "cuda":
            _refuse_gpu_without_code(chosen)
        yield chosen


def _refuse_gpu_without_code(chosen: torch.device) -> None:
    """Raise CapsbenchError for a GPU that PyTorch sees and was not built for: its first kernel would fail."""
    import torch

    if torch.version.cuda is None:  # ROCm calls its GPUs so too, and names their code in another way
        return
    capability, built = torch.cuda.get_device_capability(chosen), torch.cuda.get_arch_list()
    if not has_code_for(capability, built):
        raise CapsbenchError(
            f"{torch.cuda.get_device_name(chosen)} has compute capability {capability[0]}.{capability[1]}, and PyTorch "
            f"{torch.__version__} was built for {', '.join(built)}; install a PyTorch >= 2.11 that was built for it, "
            "or use --device cpu."
        )


def has_code_for(capability: tuple[int, int], built: list[str]) -> bool:
    """Whether a PyTorch `built` for these architectures (`sm_90`, `compute_80`) runs on a GPU of that capability.

    Machine code serves later minor versions of its major one, but with a letter (`sm_90a`) only its own; the portable
    code of `compute_` serves every later GPU.
    """
    for name in built:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if found is None:
            continue
        made = (int(found[2]), int(found[3]))
        portable = found[1] == "compute" and not found[4] and made <= capability
        native = made == capability or (not found[4] and made[0] == capability[0] and made <= capability)
        if portable or native:
            return True
    return False


def _refuse_foreign_locks() -> None:
    """Raise ResourceError where somebody else made the folder of the GPUs' locks, or may write there.

    It lies where every user may write: links in it could lead to this user's files, which a lock empties.
    """
    import torch

    from capsbench.training.device import locks_of_gpus

    if not torch.cuda.is_available():
        return
    folder = locks_of_gpus()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        raise ResourceError(
            f"{folder}, which holds the GPUs' locks, is not a folder that only you can write to; remove it, or "
            "set TMPDIR to another place for temporary files."
        )
    folder.chmod(0o700)


def _say_if_a_gpu_is_no_use(console: Console, name: str | None) -> None:
    """A machine with a GPU works on it, unless somebody says otherwise: a CPU takes days for its hours.

    Of a GPU whose driver has failed nothing is left but CUDA_VISIBLE_DEVICES, by which a batch system names it.
    """
    import torch

    from capsbench.training.device import BATCH_JOBS

    if name or os.environ.get("CAPSBENCH_DEVICE") or torch.cuda.is_available() or not gpus():
        return
    here, visible = machine(), os.environ.get("CUDA_VISIBLE_DEVICES")
    why = "which has no CUDA" if torch.version.cuda is None else f"which is for CUDA {torch.version.cuda}"
    named = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible})"
    pytorch = f"PyTorch {torch.__version__}, {why},"
    if here["gpu"] is None:
        words = f"nvidia-smi shows no GPU here, and {pytorch} finds none{named}"
        remedy = "use another node, since this one's driver may have failed"
    else:
        words = f"There is a {here['gpu']} (driver {here['driver']}) here that {pytorch} cannot use{named}"
        remedy = "install one that can"
    if any(os.environ.get(job) for job in BATCH_JOBS):
        raise CapsbenchError(f"{words}; {remedy}, or set CAPSBENCH_DEVICE=cpu to work on the CPU.")
    if words not in _said:
        on_the_cpu = "working on the CPU; with CAPSBENCH_DEVICE=cpu, cells can train side by side."
        console.print(f"{words}: {on_the_cpu}", style="yellow", markup=False)
    _said.add(words)
