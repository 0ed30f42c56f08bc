"""One process at a time in a folder of results. What waits for another process can be told to stop waiting."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from capsbench.errors import ResourceError

LOCK = ".lock"  # in a results folder, and in each folder below it that one process at a time works in
READING = ".reading"  # in a results folder, held for the moment in which the Snakefile is read
CLAIM = ".claim"  # in a run's folder, held by the `capsbench work` that has chosen it; nobody ever waits for one
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL}  # of file systems without locks
_waits: list[str] = []  # what this process waits for at the moment


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Within: this process does nothing but wait for `what`, so that whoever must stop it may do so at once."""
    _waits.append(what)
    try:
        yield
    finally:
        _waits.pop()


def waits_for() -> str | None:
    """What this process waits for at the moment; None while it works."""
    return _waits[-1] if _waits else None


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn an operating system's complaint about a results folder into a sentence. Raises ResourceError."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{error.filename or folder} cannot be written to ({error.strerror}); make room there, or name another "
            f"place with CAPSBENCH_RESULTS."
        ) from None


def lock(folder: Path, wait: bool = False, name: str = LOCK) -> int | None:
    """Lock a folder and return the open handle, None if another process has it. A dead process's lock is free.

    What is locked is a file in it: NFS hands a file's lock on to the server, and a folder's to nobody.
    On a file system that knows no locks there is nobody to ask: the folder counts as ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            os.close(handle)
            raise
    except ResourceError:  # told to stop waiting
        os.close(handle)
        raise
    return handle


def is_held(folder: Path) -> bool:
    """Whether another process is at work in a folder, or has chosen it. Raises ResourceError as `writable`."""
    for name in (LOCK, CLAIM):
        if not (folder / name).exists():
            continue
        with writable(folder):
            handle = lock(folder, name=name)
        if handle is None:
            return True
        os.close(handle)
    return False


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Choose a folder: its lock is taken when all that the work needs is loaded. Yields whether nobody else had.

    Raises ResourceError as `writable`.
    """
    with writable(folder):
        handle = lock(folder, name=CLAIM)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def sole(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder against other processes; waits for the one that has it, and says so.

    A Snakemake that is killed leaves its jobs behind: those of the next one must not write into the same files.
    """
    with writable(folder):
        handle = lock(folder)
        if handle is None:
            say(f"{folder}: another process is at work there; waiting for it to end")
            with waiting(f"the process that is at work on {folder}"):
                handle = lock(folder, wait=True)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
