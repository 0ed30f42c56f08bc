"""What a job of the pipeline says goes to the terminal and to its log."""

from __future__ import annotations

import contextlib
import datetime
import io
import re
import sys
from pathlib import Path
from typing import TextIO

from capsbench.locks import writable

REFUSED = re.compile(r"^WorkflowError in file .*common\.smk.*:\n(.+)", re.MULTILINE)  # a sentence of our Snakefile's
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # which a console that stands on a terminal writes


class Both(io.TextIOBase):
    """Writes to a log and to a terminal. When one is gone the other goes on alone.

    A terminal is gone when its Snakemake was killed, a log when its disk is full, which must still be said.
    """

    encoding = "utf-8"

    def __init__(self, log: TextIO, terminal: TextIO) -> None:
        self.log, self.there = log, [log, terminal]

    def write(self, text: str) -> int:
        """Write text to both, at once."""
        for stream in list(self.there):
            try:
                stream.write(COLOURS.sub("", text) if stream is self.log else text)
                stream.flush()
            except OSError:
                self.there.remove(stream)
        return len(text)

    def isatty(self) -> bool:
        """Not a terminal: progress is lines, not a bar that is drawn over."""
        return False


def log_to(path: Path) -> None:
    """Send standard output and errors of this process to `path` as well. Raises ResourceError.

    What an earlier try of the job said stays: it tells why there was another. Snakemake removes a job's log before each
    try, so the file has a second name, <job>.tries.log, by which it is found again.
    """
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = path.with_suffix(".tries.log")
        with contextlib.suppress(OSError):  # a file system without second names keeps the last try's words alone
            path.hardlink_to(kept)  # which there is not at a first try, and not to do where nobody removed the log
        log = path.open("a", encoding="utf-8")
        if log.tell():
            log.write(f"--- again, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC\n")
        with contextlib.suppress(OSError):
            if not (kept.exists() and kept.samefile(path)):  # a copied folder has two files there
                kept.unlink(missing_ok=True)
                kept.hardlink_to(path)
    sys.stdout, sys.stderr = Both(log, sys.stdout), Both(log, sys.stderr)


def last_sentences(folder: Path, since: float) -> list[str]:
    """Why jobs failed: of each log below `folder`, written after a time (in seconds), the last words, if an error's.

    A run that was stopped is not one that failed: it says so in its log, and that it goes on.
    """
    found = []
    for path in sorted(folder.rglob("*.log")):
        with contextlib.suppress(OSError):  # of another `capsbench run`, which removes it before its next try
            if path.name.endswith(".tries.log") or path.stat().st_mtime < since - 1:  # a file's clock may be behind
                continue
            *_, last = ["", *path.read_text(encoding="utf-8", errors="replace").splitlines()]
            if last.startswith("capsbench: ") and not last.endswith("the same command goes on from there."):
                found.append(last.removeprefix("capsbench: "))
    return list(dict.fromkeys(found))


def sentences_of_nodes(folder: Path, since: float) -> list[str]:
    """Why a cluster's jobs did not come to their own log: what the Snakefile said on their node, of each of these logs.

    Args:
        folder: where Snakemake's plugin keeps these logs; since: as for `last_sentences`.
    """
    found = []
    for path in sorted(folder.rglob("*.log")):
        with contextlib.suppress(OSError):  # removed by the plugin, which keeps none of a job that ended well
            if path.stat().st_mtime >= since - 1:
                found += REFUSED.findall(path.read_text(encoding="utf-8", errors="replace"))
    return list(dict.fromkeys(found))
