"""The console that all commands print to."""

from __future__ import annotations

from rich.console import Console

from capsbench.errors import UNREAD


class Terminal(Console):
    """Ends the command with a code of its own where nobody reads it: rich's 1 means here that a run differs."""

    def on_broken_pipe(self) -> None:
        """Raises SystemExit with UNREAD, after nothing more can be printed."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(UNREAD) from None
