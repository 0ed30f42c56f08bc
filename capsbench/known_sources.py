"""What earlier processes found in the package's files: kept beside Python's own bytecode, and as true as that.

Parsing a hundred files takes half a second, at the beginning of every command and every job. An entry holds for the
bytes of a file, the rules that they were read by and this Python: an edited file has none. What cannot be read here
is parsed, what cannot be written is parsed again by the next process.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from capsbench.files import read_record, write_json


class Found(NamedTuple):
    """What is in one source file: the digest of what it does, and the modules of capsbench that it imports."""

    digest: str
    imports: tuple[str, ...]


class KnownSources:
    """The files below `package` as found by `rules`, the file that reads them."""

    def __init__(self, package: Path, rules: Path) -> None:
        self._package = package
        self._file = package / "__pycache__" / f"sources.{sys.implementation.cache_tag}.json"
        self._rules = _sha256(rules.read_bytes() + platform.python_version().encode())
        self._entries: dict[str, list[object]] | None = None
        self._is_new = False

    def of(self, path: Path, source: bytes) -> Found | None:
        """What was found in a file of these bytes; None where nobody looked yet."""
        match self._read().get(self._name(path)):
            case [str(of), str(digest), [*imports]] if of == _sha256(source):
                return Found(digest, tuple(map(str, imports)))
        return None

    def add(self, path: Path, source: bytes, found: Found) -> None:
        """Note what was found in a file of these bytes."""
        self._read()[self._name(path)] = [_sha256(source), found.digest, list(found.imports)]
        self._is_new = True

    def keep(self) -> None:
        """Write what is new, for processes to come, where Python writes bytecode as well."""
        if self._is_new and not sys.dont_write_bytecode and self._file.parent.is_dir():
            # a package that only its owner may write, a full disk; what no JSON can hold, of a damaged file
            with contextlib.suppress(OSError, ValueError):
                write_json(self._file, {"rules": self._rules, "files": self._entries})
        self._is_new = False

    def _read(self) -> dict[str, list[object]]:
        if self._entries is None:
            try:
                record = read_record(self._file)
            except OSError:
                record = {}
            files = record.get("files") if record.get("rules") == self._rules else None
            self._entries = files if isinstance(files, dict) else {}
        return self._entries

    def _name(self, path: Path) -> str:
        return path.relative_to(self._package).as_posix()


def _sha256(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()
