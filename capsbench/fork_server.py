"""The process of which `capsbench run` lets jobs be forks: `python -m capsbench.fork_server SOCKET`.

It loads nothing before the first job that trains. A fork begins with what is loaded, and shares nothing afterwards.
What Python and libraries read of the environment while they load is that job's: one with another gets no fork, nor
does one of another Python or package, nor any once a file of the package was written.
A fork has no terminal: signals reach it through the process that asked for it (capsbench.forks).

It ends when its standard input does (`capsbench run` holds the other end) and its forks have ended. Linux alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import io
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from capsbench.errors import CapsbenchError
from capsbench.forks import PASSED_ON, receive, send, what_is_asked

PACKAGE = Path(__file__).resolve().parent
SAME = ("python", "path", "package")  # of a job, beside its environment: as a fork it is what it would be by itself
TRAINS = {"train", "tune"}
MODERATE = 10  # seconds for a job to say what it wants
SIGNAL_OF_A_FILE = 10  # F_SETSIG: which signal tells that a file can be read, or that its other end is closed


def main() -> None:
    """Serve the socket named on the command line."""
    address = Path(sys.argv[1])
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen(64)
        try:
            Server(listening).serve()
        finally:
            with contextlib.suppress(OSError):
                address.unlink()
                address.parent.rmdir()


def written() -> dict[str, tuple[int, int]]:
    """When each file of the package was written, and its size."""
    found = ((str(path), path.stat()) for path in PACKAGE.rglob("*.py"))
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in found}


class Server:
    """Forks this process for whoever asks, and tells each how its fork ended."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._waiting = selectors.DefaultSelector()
        self._forks: dict[int, tuple[int, socket.socket]] = {}  # by the file that tells of their end
        self._written = written()
        self._same = what_is_asked()
        self._environment: dict[str, str] | None = None  # of the first job that trains: what is loaded then reads it
        self._is_loaded = False

    def serve(self) -> None:
        """Until nobody is left who could ask."""
        self._waiting.register(self._listening, selectors.EVENT_READ)
        self._waiting.register(0, selectors.EVENT_READ)
        offered = True
        while offered or self._forks:
            for key, _ in self._waiting.select():
                if key.fileobj is self._listening:
                    self._answer()
                elif key.fd == 0:
                    self._waiting.unregister(0)
                    offered = False
                else:
                    self._tell(key.fd)

    def _answer(self) -> None:
        """Fork for one job, or leave it alone."""
        job, _ = self._listening.accept()
        files: list[int] = []
        try:
            job.settimeout(MODERATE)
            asked, files = receive(job, files=4)
            job.settimeout(None)
            if self._fits(asked, files):
                self._load()
                self._fork(job, asked, files)
                job = None  # type: ignore[assignment]  # kept open
        except (OSError, EOFError, ValueError):  # it is gone, or no job, or there is no room for a fork
            pass
        except (CapsbenchError, ImportError):  # it meets the same when it loads its own libraries, and says it
            pass
        finally:
            for file in files:
                os.close(file)
            if job is not None:
                job.close()

    def _fits(self, asked: dict[str, Any], files: list[int]) -> bool:
        """Whether a fork would be what the job would be by itself."""
        if len(files) < 4 or any(asked[name] != self._same[name] for name in SAME) or written() != self._written:
            return False
        if self._environment is None and asked["words"][2] in TRAINS:
            self._environment = asked["environment"]
            os.environ.clear()
            os.environ.update(self._environment)
        return bool(asked["environment"] == self._environment)

    def _load(self) -> None:
        """Import what jobs ask for, once."""
        if self._is_loaded:
            return
        importlib.import_module("capsbench.cli.travel")  # all commands; torch comes with what follows
        importlib.import_module("capsbench.cli.inputs").import_everything()
        self._is_loaded = True
        gc.collect()
        gc.freeze()  # so that a search for garbage in a fork copies nothing

    def _fork(self, job: socket.socket, asked: dict[str, Any], files: list[int]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            fork = os.fork()
            if fork == 0:
                for _, other in self._forks.values():
                    other.close()
                self._listening.close()
                self._waiting.close()
                become(job, asked, files)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        end = os.pidfd_open(fork)
        self._forks[end] = fork, job
        self._waiting.register(end, selectors.EVENT_READ)

    def _tell(self, end: int) -> None:
        """Tell a job how its fork ended."""
        fork, job = self._forks.pop(end)
        self._waiting.unregister(end)
        os.close(end)
        _, status = os.waitpid(fork, 0)
        code = os.waitstatus_to_exitcode(status)
        with job, contextlib.suppress(OSError):
            send(job, ["signal", -code] if code < 0 else ["exit", code])


def become(job: socket.socket, asked: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the job, as `python -m capsbench` in a process of its own would be."""
    code = 1
    try:
        _take_place(job, asked, files)
        sys.argv = ["capsbench", *asked["words"]]
        code = _run()
    except BaseException:  # the last that this process says; nobody is above
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_place(job: socket.socket, asked: dict[str, Any], files: list[int]) -> None:
    """Files, folder, signals and name of the process that asked."""
    *standard, alive = files
    os.set_inheritable(alive, False)
    fcntl.fcntl(alive, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(alive, SIGNAL_OF_A_FILE, signal.SIGKILL)
    fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)
    try:
        send(job, os.getpid())
    except OSError:  # it was gone before it could take this along
        os._exit(1)
    job.close()
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (_stream(number, like) for number, like in ((1, sys.stdout), (2, sys.stderr)))
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    for number in PASSED_ON:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in asked["ignored"] else default)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"capsbench {asked['words'][2]}")
    random.seed()  # else all forks would draw the same
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def _stream(number: int, like: Any) -> io.TextIOWrapper:
    """Standard output or error as Python opens them."""
    through = bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=number == 2 or os.isatty(number),
        write_through=through,
    )


def _run() -> int:
    """Run the command; its exit code."""
    try:
        runpy.run_module("capsbench", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    main()
