"""A file is whole or not there, for whom the umask says, and what a killed process left of one is removed once old."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from capsbench.files import DAY, read_record, write_json, write_text


@pytest.mark.parametrize("name", ["a.json", "a[1].json"])
def test_what_was_left_half_written_goes_when_it_is_old(tmp_path: Path, name: str) -> None:
    old, fresh, other = (tmp_path / f".{of}.abcdefg{k}" for k, of in enumerate([name, name, "b.json"]))
    for path in (old, fresh, other):
        path.touch()
    for path in (old, other):
        os.utime(path, times=(time.time() - 2 * DAY,) * 2)
    write_json(tmp_path / name, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{name}.abcdefg1", ".b.json.abcdefg2", name]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a machine that loses its power may leave an empty one of that name."""
    path, fsync = tmp_path / "a.json", os.fsync
    flushed: list[tuple[int, bool]] = []

    def flush(handle: int) -> None:
        flushed.append((os.fstat(handle).st_ino, path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", flush)
    write_json(path, 1)
    assert flushed == [(path.stat().st_ino, False)]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_file_is_for_whom_the_umask_says_and_the_umask_stays(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "a.json", 1)
        after = os.umask(umask)
    finally:
        os.umask(before)
    assert ((tmp_path / "a.json").stat().st_mode & 0o777, after) == (mode, umask)


def test_what_cannot_be_written_leaves_the_earlier_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"error": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"error": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert read_record(path) == {"error": 1.5}
    assert [*tmp_path.iterdir()] == [path]


def test_below_a_file_there_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    assert read_record(tmp_path / "results" / "plan.json") == {}
