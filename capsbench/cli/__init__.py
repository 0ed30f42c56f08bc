"""The terminal. `main` is the `capsbench` command: a user's mistake is one sentence and an exit code."""

from __future__ import annotations

import sys

from capsbench.errors import CapsbenchError


def main() -> None:
    """Run the command line; never shows a traceback for a CapsbenchError or for Ctrl-C."""
    from capsbench.cli.app import app

    try:
        app(prog_name="capsbench")  # also of `python -m capsbench`
    except CapsbenchError as error:
        print(f"capsbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("capsbench: stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
