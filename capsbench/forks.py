"""A job as a fork of a process that has loaded its libraries, where `capsbench run` offers one (CAPSBENCH_FORKS).

To load torch and all else takes a job some four seconds of a core, and a plan has dozens of jobs. The process that
Snakemake started asks `capsbench.fork_server` for a fork of itself and stands in for that: it passes on the signals
that it gets, ends as the fork ends, and takes the fork along if it is killed. Where there is no such server, or one
that loaded something else, the job loads its libraries itself. Nothing is imported here that takes time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from capsbench.errors import STOPPED

ADDRESS = "CAPSBENCH_FORKS"  # names the server's socket, in a folder that is its user's alone
PATIENCE = 120  # seconds that a job waits for a server that is busy loading, before it loads its own libraries
FORKED = {"data", "tune", "train", "evaluate", "report"}  # not what measures time
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HEAD = struct.Struct("!I")


def send(to: socket.socket, value: Any, files: list[int] | None = None) -> None:
    """Send a JSON value, with open files. Raises OSError."""
    text = json.dumps(value).encode()
    socket.send_fds(to, [HEAD.pack(len(text))], files or [])
    to.sendall(text)


def receive(of: socket.socket, files: int = 0) -> tuple[Any, list[int]]:
    """A JSON value and open files. Raises EOFError where the other side is gone, OSError."""
    head, found, *_ = socket.recv_fds(of, HEAD.size, files)
    try:
        text = b""
        while len(head) == HEAD.size and len(text) < HEAD.unpack(head)[0]:
            if not (part := of.recv(1 << 16)):
                break
            text += part
        if len(head) < HEAD.size or len(text) < HEAD.unpack(head)[0]:
            raise EOFError
        return json.loads(text), found
    except BaseException:
        for each in found:
            os.close(each)
        raise


def what_is_asked() -> dict[str, Any]:
    """This process as a fork is to be: what it was told, where it is, and what must be the server's as well."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "python": sys.executable,
        "path": sys.path,
        "package": str(Path(__file__).resolve().parent),
        "confined": _confined(),
        "environment": dict(os.environ),
        "words": sys.argv[1:],
        "folder": os.getcwd(),  # noqa: PTH109
        "umask": umask,
        "ignored": [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN],
    }


def _confined() -> list[Any]:
    """The cores and the control group of this process: a batch system's job has its own, and stays in them."""
    if sys.platform != "linux":
        return []
    try:
        group = Path("/proc/self/cgroup").read_text()
    except OSError:
        group = ""
    return [sorted(os.sched_getaffinity(0)), group]


def run_as_fork() -> None:
    """Run this command, if it is a job of Snakemake's, as a fork, and end as it ends; comes back where it cannot."""
    if sys.argv[1:2] != ["--log"] or not FORKED & set(sys.argv[3:4]):
        return
    address = os.environ.pop(ADDRESS, "")
    if not address.startswith("/"):
        return
    alive, ends = os.pipe()  # a fork is killed when nobody holds the other end any more: when this process is gone
    with socket.socket(socket.AF_UNIX) as server:
        try:
            fork = _asked(server, address, alive)
            if fork is None:
                os.close(ends)
                return
            kind, number = receive(server)[0]
        except KeyboardInterrupt:  # before there was a fork that could answer it
            print("capsbench: stopped.", file=sys.stderr)
            os._exit(STOPPED)
        except (OSError, EOFError):
            _say("capsbench: the process that this job is a fork of was ended; the same command goes on.")
            os._exit(1)
    if kind == "signal":
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no other meaning
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(number)


def _asked(server: socket.socket, address: str, alive: int) -> int | None:
    """A fork of the server at `address`, to which signals go from now on; None where there is none to be had."""
    try:
        server.settimeout(PATIENCE)
        server.connect(address)
        send(server, what_is_asked(), [0, 1, 2, alive])
        fork = receive(server)[0]
        server.settimeout(None)
    except (OSError, EOFError, ValueError):
        return None
    finally:
        os.close(alive)
    if not isinstance(fork, int):  # it ended before it was one
        return None
    _pass_signals_on(fork)
    return fork


def _say(sentence: str) -> None:
    """Say it, and leave it in the job's log."""
    print(sentence, file=sys.stderr)
    with contextlib.suppress(OSError), open(sys.argv[2], "a", encoding="utf-8") as log:
        log.write(f"{sentence}\n")


def _pass_signals_on(fork: int) -> None:
    """From now on the fork gets the signals that this process gets, and sleeps while Ctrl-Z lets this one sleep."""

    def to_it(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(fork, number)

    def both_sleep(_: int, __: FrameType | None) -> None:
        to_it(signal.SIGSTOP, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        to_it(signal.SIGCONT, None)

    for number, answer in [*((number, to_it) for number in PASSED_ON), (signal.SIGTSTP, both_sleep)]:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, answer)
