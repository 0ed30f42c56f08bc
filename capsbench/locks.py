"""One process at a time in a folder of results. What waits for another process can be told to stop waiting."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from capsbench.errors import ResourceError

LOCK = ".lock"  # in a results folder, and in each folder below it that one process at a time works in
READING = ".reading"  # in a results folder, held for the moment in which the Snakefile is read
DRAWING = ".drawing"  # in a results folder, held while its report is drawn
CLAIM = ".claim"  # in a run's folder, held by the `capsbench work` that has chosen it; nobody ever waits for one
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL}  # of file systems without locks
GLANCE = 0.05  # seconds after which whoever only asked whether a folder is held has let go of it
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
def writable(folder: Path, other: str = "set CAPSBENCH_RESULTS to another place") -> Iterator[None]:
    """Turn an operating system's complaint about a results folder into a sentence. Raises ResourceError.

    other: what else can be done than to make room there.
    """
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{error.filename or folder} cannot be written to ({error.strerror}); make room there, or {other}."
        ) from None


def lock(folder: Path, wait: bool = False, name: str = LOCK) -> int | None:
    """Lock a folder and return the open handle, None if another process has it. A dead process's lock is free.

    What is locked is a file in it: NFS hands a file's lock on to the server, and a folder's to nobody.
    On a file system that knows no locks there is nobody to ask: the folder counts as ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if wait:
            _take(handle, fcntl.LOCK_EX)
        elif not any(_at_once(handle, fcntl.LOCK_EX, after) for after in (0, GLANCE)):
            os.close(handle)
            return None
    except (OSError, ResourceError):  # the latter: told to stop waiting
        os.close(handle)
        raise
    return handle


def _at_once(handle: int, kind: int, after: float = 0.0) -> bool:
    """Whether a lock of this kind could be had without waiting for it, `after` so many seconds."""
    if after:
        time.sleep(after)
    try:
        _take(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(handle: int, kind: int) -> None:
    try:
        fcntl.flock(handle, kind)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def is_held(folder: Path) -> bool:
    """Whether another process is at work in a folder, or has chosen it. Raises ResourceError as `writable`.

    Those who ask share the lock for the moment, so that none is taken for one at work; `lock` looks twice for them.
    """
    for name in (LOCK, CLAIM):
        with writable(folder):
            try:
                handle = os.open(folder / name, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                continue  # nobody was ever at work in it
            try:
                if not _at_once(handle, fcntl.LOCK_SH):
                    return True
            finally:
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
def sole(folder: Path, say: Callable[[str], None], name: str = LOCK) -> Iterator[None]:
    """Hold a folder, or its report, against other processes; waits for the one that has it, and says so.

    A Snakemake that is killed leaves its jobs behind: those of the next one must not write into the same files.
    """
    does = "draws the report of" if name == DRAWING else "is at work on"
    with writable(folder):
        handle = lock(folder, name=name)
        if handle is None:
            say(f"another process {does} {folder}; waiting for it to end")
            with waiting(f"the process that {does} {folder}"):
                handle = lock(folder, wait=True, name=name)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
