"""What a job of the pipeline says goes to the terminal and to its log."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TextIO

from capsbench.pipeline import writable


class Both(io.TextIOBase):
    """Writes to a log and to a terminal; when the terminal is gone (its Snakemake was killed) the log goes on alone."""

    encoding = "utf-8"

    def __init__(self, log: TextIO, terminal: TextIO) -> None:
        self.log, self.terminal = log, terminal
        self.gone = False

    def write(self, text: str) -> int:
        """Write text to both, at once."""
        self.log.write(text)
        self.log.flush()
        if not self.gone:
            try:
                self.terminal.write(text)
                self.terminal.flush()
            except OSError:
                self.gone = True
        return len(text)

    def isatty(self) -> bool:
        """Not a terminal: progress is lines, not a bar that is drawn over."""
        return False


def log_to(path: Path) -> None:
    """Send standard output and errors of this process to `path` as well. Raises ResourceError."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("w", encoding="utf-8")
    sys.stdout, sys.stderr = Both(log, sys.stdout), Both(log, sys.stderr)
