"""The device that a command works on, with what its user should hear of it."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
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

    Raises CapsbenchError: there is no such device, or a batch job was given a GPU that PyTorch cannot use.
    """
    from capsbench.training import device as devices

    devices.set_up(threads)
    _say_if_a_gpu_is_no_use(console, name)
    if (name or os.environ.get("CAPSBENCH_DEVICE")) != "cpu":
        _refuse_foreign_locks()
    words = f"waiting for {name or 'a GPU'}: other processes of capsbench hold what there is, or it is slow to start"
    said = threading.Timer(PATIENCE, lambda: console.print(words))
    said.daemon = True
    said.start()
    with ExitStack() as stack:
        stack.callback(said.cancel)
        with waiting(name or "a GPU"):
            chosen = stack.enter_context(devices.device(name))
        said.cancel()
        yield chosen


def _refuse_foreign_locks() -> None:
    """Raise ResourceError where somebody else made the folder of the GPUs' locks, or may write there.

    It lies where every user may write: links in it could lead to this user's files, which a lock empties.
    """
    import torch

    if not torch.cuda.is_available():
        return
    folder = Path(tempfile.gettempdir()) / f"capsbench-gpus-{os.getuid()}"  # capsbench.training.device
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        raise ResourceError(
            f"{folder}, where the GPUs' locks lie, is not a folder that you alone may write to; remove it, or name "
            "another place for temporary files with TMPDIR."
        )
    folder.chmod(0o700)


def _say_if_a_gpu_is_no_use(console: Console, name: str | None) -> None:
    """A machine with a GPU works on it, unless somebody says otherwise: a CPU takes days for its hours."""
    import torch

    from capsbench.training.device import BATCH_JOBS

    if name or os.environ.get("CAPSBENCH_DEVICE") or torch.cuda.is_available() or not gpus():
        return
    here = machine()
    if here["gpu"] is None:
        return
    why = "which has no CUDA" if torch.version.cuda is None else f"which is for CUDA {torch.version.cuda}"
    words = (
        f"There is a {here['gpu']} (driver {here['driver']}) here that PyTorch {torch.__version__}, {why}, cannot use"
    )
    if any(os.environ.get(job) for job in BATCH_JOBS):
        raise CapsbenchError(f"{words}; install one that can, or say CAPSBENCH_DEVICE=cpu to work on the CPU.")
    if words not in _said:
        on_the_cpu = "this works on the CPU, where CAPSBENCH_DEVICE=cpu lets cells train side by side."
        console.print(f"{words}: {on_the_cpu}", style="yellow", markup=False)
    _said.add(words)
