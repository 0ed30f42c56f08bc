"""Files that are either whole or not there: write to a temporary name, flush, rename."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DAY = 86_400  # seconds
FULL = (errno.ENOSPC, errno.EDQUOT)  # a disk that has no room, or none for this user


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends well, remove it otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes 0600; results are for sharing
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None or error.errno in FULL:  # a full disk names none, or one that is read
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def try_to_make(path: Path) -> None:
    """Raise OSError, naming `path`, where no file can be made there; a trial next to it leaves nothing behind."""
    there = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        error.filename = str(path)
        raise


def _remove_unfinished(path: Path) -> None:
    """Remove what processes that were killed left of `path`, so old that no other is still writing it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????"):
        with contextlib.suppress(OSError):  # another process removes it too
            if time.time() - left.stat().st_mtime > DAY:
                left.unlink()


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in one piece."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON in one piece. NaN is refused: a metric that does not exist is null."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON value in `path`. Raises ValueError on a truncated or senseless file, FileNotFoundError without one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is nested too deep to be one of ours") from None


def read_record(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; an empty one where there is no file, or a truncated one, or something else in it."""
    try:
        found = read_json(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
