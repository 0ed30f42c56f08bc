"""A folder's lock: who has it, who may take it, and what becomes of the open file where none is got."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

import pytest

from capsbench import locks
from capsbench.errors import ResourceError
from capsbench.locks import LOCK, is_held, lock, waiting, waits_for


def refused(number: int):
    def flock(handle: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


def opened(folder: Path) -> int:
    """How many of this process's open files lie in a folder: others come and go with what earlier tests left behind."""
    there = {(path.stat().st_dev, path.stat().st_ino) for path in folder.rglob("*")}
    found = 0
    for number in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # the list's own
            stat = os.fstat(int(number.name))
            found += (stat.st_dev, stat.st_ino) in there
    return found


def test_a_lock_that_is_refused_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refused(errno.EIO))
    before = opened(tmp_path)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        lock(tmp_path)
    assert opened(tmp_path) == before


def test_a_folder_another_has_leaves_no_file_open(tmp_path: Path) -> None:
    ours = lock(tmp_path)
    assert ours is not None
    before = opened(tmp_path)
    assert lock(tmp_path) is None
    assert opened(tmp_path) == before
    os.close(ours)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL])
def test_where_no_locks_are_known_the_folder_counts_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", refused(number))
    handle = lock(tmp_path)
    assert handle is not None
    os.close(handle)


def test_who_waited_for_a_folder_has_it_alone(tmp_path: Path) -> None:
    ours = lock(tmp_path, wait=True)
    assert ours is not None
    assert is_held(tmp_path)
    assert lock(tmp_path) is None
    os.close(ours)


def test_who_may_write_to_a_shared_folder_may_take_its_lock(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        ours = lock(tmp_path)
    finally:
        os.umask(before)
    assert ours is not None
    os.close(ours)
    assert (tmp_path / LOCK).stat().st_mode & 0o777 == 0o664


def test_who_waited_is_at_work_afterwards(tmp_path: Path) -> None:
    """And is not ended, unsaved, as one that only waits may be."""
    with waiting("the first"):
        with pytest.raises(ResourceError), waiting("the second"):
            raise ResourceError("told to stop waiting")
        assert waits_for() == "the first"
    assert waits_for() is None


def test_who_only_asks_is_not_taken_for_one_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LOCK).touch()
    asks = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(asks, fcntl.LOCK_SH)  # as `is_held` has it for the moment in which it asks
    assert not is_held(tmp_path)
    monkeypatch.setattr(locks.time, "sleep", lambda _: os.close(asks))  # in the moment between the two tries
    ours = lock(tmp_path)
    assert ours is not None
    assert is_held(tmp_path)
    os.close(ours)
    assert not is_held(tmp_path)


def test_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    before = opened(tmp_path)
    assert not is_held(tmp_path / "never made")
    assert not (tmp_path / "never made").exists()
    ours = lock(tmp_path)
    assert ours is not None
    os.close(ours)
    assert not is_held(tmp_path)
    assert opened(tmp_path) == before
