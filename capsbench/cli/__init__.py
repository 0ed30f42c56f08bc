"""The terminal. `main` is the `capsbench` command: a user's mistake is one sentence and an exit code."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import signal
import sys

from capsbench.errors import STOPPED, UNREAD, CapsbenchError, ResourceError

# What a disk or a place in it complains of, wherever it comes up; another OSError is our mistake, with its traceback.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM}
DISK |= {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
DISK |= {errno.EBUSY, errno.ESTALE, errno.ENOTEMPTY}  # a place that is mounted, gone on its server, or not ours alone

# Objects that come before Python looks for garbage. Its default, 700, costs a tenth of a start with torch for nothing:
# importing makes many objects and hardly any garbage.
SELDOM = 10_000


def main() -> None:
    """Run the command line and leave."""
    gc.set_threshold(SELDOM)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that is not UTF-8 must not end a run at its last table
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            _run()
        except SystemExit as end:
            _leave(end.code)
            raise
    except KeyboardInterrupt:  # a second one, while the sentence that answers the first one was said
        print("capsbench: stopped.", file=sys.stderr)
        _leave(STOPPED)
        sys.exit(STOPPED)


def _leave(code: str | int | None) -> None:
    """End the process at once where torch is loaded: taking it apart, object by object, is half a second for nothing.

    What is registered for the end is done before. Returns where the usual end is due: without torch, where a sentence
    stands instead of a code, and where what was said cannot be written out, which Python answers with its own.
    """
    if "torch" not in sys.modules or isinstance(code, str):
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is saved and said: a second Ctrl-C has nothing left to stop
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed before this process began, as by `>&-`
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code or 0)


def _run() -> None:
    """Never shows a traceback for a CapsbenchError or for Ctrl-C; raises SystemExit."""
    from capsbench.cli.travel import app  # it has all commands: its own and those of capsbench.cli.app
    from capsbench.training.what_to_lower import says_what_to_lower

    try:
        # where no command knows better what to lower
        with says_what_to_lower("This command", "free memory on the device it worked on, or take a larger one"):
            app(prog_name="capsbench")  # also of `python -m capsbench`
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != STOPPED:  # typer's answer to Ctrl-C in a command, in silence
            raise
        print("capsbench: stopped.", file=sys.stderr)
        sys.exit(STOPPED)
    except CapsbenchError as error:
        print(f"capsbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(UNREAD)
    except OSError as error:
        if error.errno not in DISK:
            raise
        print(f"capsbench: {error.filename or 'A file'} cannot be read or written ({error.strerror}).", file=sys.stderr)
        sys.exit(ResourceError.exit_code)
