"""The terminal. `main` is the `capsbench` command: a user's mistake is one sentence and an exit code."""

from __future__ import annotations

import errno
import gc
import sys

from capsbench.errors import CapsbenchError, ResourceError

# What a disk or a place in it complains of, wherever it comes up; another OSError is our mistake, with its traceback.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM}
DISK |= {errno.ENOTDIR, errno.EISDIR, errno.EEXIST}

# Objects that come before Python looks for garbage. Its default, 700, costs a tenth of a start with torch for nothing:
# importing makes many objects and hardly any garbage.
SELDOM = 10_000


def main() -> None:
    """Run the command line; never shows a traceback for a CapsbenchError or for Ctrl-C."""
    gc.set_threshold(SELDOM)
    from capsbench.cli.travel import app  # it has all commands: its own and those of capsbench.cli.app

    try:
        app(prog_name="capsbench")  # also of `python -m capsbench`
    except CapsbenchError as error:
        print(f"capsbench: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno not in DISK:
            raise
        print(f"capsbench: {error.filename or 'A file'} cannot be read or written ({error.strerror}).", file=sys.stderr)
        sys.exit(ResourceError.exit_code)
    except KeyboardInterrupt:
        print("capsbench: stopped.", file=sys.stderr)
        sys.exit(130)
