"""Errors a user can act on: one sentence saying what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

STOPPED = 130  # the exit code after Ctrl-C, as shells have it
UNREAD = 141  # where nobody reads what is printed, as behind `| head -1`; likewise


def printable(text: str) -> str:
    """`text` in one line, with escapes instead of what a terminal would obey rather than show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


class CapsbenchError(Exception):
    """A mistake in the user's input or environment. The terminal prints the sentence, never a traceback."""

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())  # it may quote a file that came from anywhere


class DataError(CapsbenchError):
    """A data file is missing, truncated, altered or of the wrong kind."""


class PlanError(CapsbenchError):
    """A plan or a variant does not hold together."""


class RoutingError(CapsbenchError):
    """A routing, or a model from outside, got options it does not take, or returned something that is none."""


class ResourceError(CapsbenchError):
    """The machine could not do the work (memory, disk, a signal): the job failed and can be tried again."""

    exit_code = 4


def refuse_lost_gpu() -> None:
    """Raise ResourceError where CUDA answers no more: after an illegal access, say, it never does in this process."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise ResourceError(
            "The GPU is lost to this process; give the same command again to continue in a new one."
        ) from None


def counted(number: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def nearest(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'capsnet-r3'?` for the known word nearest to `word`, or the known words if none is near."""
    names = sorted(str(name) for name in known)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}." if names else "."
