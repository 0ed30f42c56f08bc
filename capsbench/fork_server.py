"""The process of which `capsbench run` lets jobs be forks: `python -m capsbench.fork_server SOCKET`.

It loads nothing before the first job that trains. A fork begins with what is loaded, and shares nothing afterwards.
What libraries read of the environment while they load is that job's: one with another gets no fork, nor does one of
another Python, package or control group, nor any once a file of the package was written. A plan that only evaluates
gets none. A fork has no terminal: signals reach it through the process that asked for it (capsbench.forks).

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
import select
import selectors
import signal
import socket
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any, NoReturn

from capsbench.errors import STOPPED, ResourceError
from capsbench.forks import PASSED_ON, receive, send, what_is_asked

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = Path(sysconfig.get_path("purelib"))
SAME = ("python", "path", "package", "confined")  # of a job, and its environment: as a fork it is what it is alone
AT_START = ("PYTHON", "LD_", "LANG", "LC_", "MALLOC_", "GLIBC_")  # what Python and its C library read before anything
TRAINS = {"train", "tune"}
PATIENCE = 10  # seconds for a job to say what it wants
SIGNAL_OF_A_FILE = 10  # F_SETSIG: which signal tells that a file can be read, or that its other end is closed


def main() -> None:
    """Serve the socket named on the command line; where a kernel or Python lacks what that takes, leave in silence."""
    for number in PASSED_ON:  # what a cluster sends to every process is for the jobs: they save, and then it ends
        signal.signal(number, signal.SIG_IGN)
    address = Path(sys.argv[1])
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            os.close(os.pidfd_open(os.getpid()))
            listening.bind(str(address))
            listening.listen(64)
        except (AttributeError, OSError):
            return
        try:
            Server(listening).serve()
        finally:
            with contextlib.suppress(OSError):
                address.unlink()
                address.parent.rmdir()
    os._exit(0)  # to take torch apart takes half a second, for nothing


def written() -> dict[str, tuple[int, int]]:
    """When each file of the package, and the folder of its libraries, was written, and its size."""
    found: dict[str, tuple[int, int]] = {}
    for path in (LIBRARIES, *PACKAGE.rglob("*.py")):
        with contextlib.suppress(OSError):  # an editor's dangling link
            stat = path.stat()
            found[str(path)] = stat.st_mtime_ns, stat.st_size
    return found


def _at_start(environment: dict[str, str]) -> dict[str, str]:
    """What of an environment was read before it could be another's."""
    return {name: value for name, value in environment.items() if name.startswith(AT_START) and name != "PYTHONPATH"}


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
        """Fork for one job, or leave it alone: then it loads its own libraries, and says what is wrong with them."""
        files: list[int] = []
        with contextlib.ExitStack() as stack:
            try:
                job = stack.enter_context(self._listening.accept()[0])
                job.settimeout(PATIENCE)
                asked, files = receive(job, files=4)
                job.settimeout(None)
                if self._fits(asked, files):
                    self._load()
                    self._fork(job, asked, files)
                    stack.pop_all()  # it is told how its fork ends
            except (OSError, EOFError):  # it is gone, or there is no room for a fork
                pass
            except Exception as error:  # whatever it is, jobs that are at work go on
                said = str(error) if isinstance(error, ResourceError) else repr(error)
                print(
                    f"capsbench: a job loads its libraries itself, since there is no fork for it: {said}",
                    file=sys.stderr,
                )
            finally:
                for file in files:
                    os.close(file)

    def _fits(self, asked: dict[str, Any], files: list[int]) -> bool:
        """Whether a fork would be what the job is by itself. The first one to train decides on the environment."""
        if written() != self._written or len(files) < 4 or any(asked[name] != self._same[name] for name in SAME):
            return False
        if _at_start(asked["environment"]) != _at_start(self._same["environment"]):
            return False
        if self._environment is None and asked["words"][2] in TRAINS:
            self._environment = asked["environment"]
            os.environ.clear()
            os.environ.update(self._environment)
        return bool(asked["environment"] == self._environment)

    def _load(self) -> None:
        """Import what jobs ask for, once. Raises ResourceError where a file was written meanwhile."""
        if self._is_loaded:
            return
        importlib.import_module("capsbench.cli.travel")  # all commands; torch comes with what follows
        importlib.import_module("capsbench.cli.inputs").import_everything()
        if written() != self._written:
            raise ResourceError("A file of the package was written while it was read.")
        self._is_loaded = True
        gc.collect()
        gc.freeze()  # so that a search for garbage in a fork copies nothing

    def _fork(self, job: socket.socket, asked: dict[str, Any], files: list[int]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            fork = os.fork()
            if fork == 0:
                become(
                    job, asked, files, [self._listening, self._waiting, *(other for _, other in self._forks.values())]
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        try:
            end = os.pidfd_open(fork)
            self._waiting.register(end, selectors.EVENT_READ)
        except OSError:  # too many files are open
            os.kill(fork, signal.SIGKILL)
            os.waitpid(fork, 0)
            raise
        self._forks[end] = fork, job

    def _tell(self, end: int) -> None:
        """Tell a job how its fork ended."""
        fork, job = self._forks.pop(end)
        self._waiting.unregister(end)
        os.close(end)
        ended = os.waitid(os.P_PID, fork, os.WEXITED | os.WNOWAIT)  # its number is its own until it has been told
        assert ended is not None
        with job, contextlib.suppress(OSError):
            send(job, ["exit" if ended.si_code == os.CLD_EXITED else "signal", ended.si_status])
        os.waitpid(fork, 0)


def become(job: socket.socket, asked: dict[str, Any], files: list[int], others: list[Any]) -> NoReturn:
    """Be the job, as `python -m capsbench` in a process of its own would be; `others` are the server's alone."""
    code = 1
    try:
        for other in others:
            other.close()
        _take_place(job, asked, files)
        sys.argv = ["capsbench", *asked["words"]]
        code = _run()
    except KeyboardInterrupt:
        print("capsbench: stopped.", file=sys.stderr)
        code = STOPPED
    except BaseException:  # the last that this process says; nobody is above
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_place(job: socket.socket, asked: dict[str, Any], files: list[int]) -> None:
    """Files, folder, signals and name of the process that asked. Raises KeyboardInterrupt."""
    *standard, alive = files
    os.set_inheritable(alive, False)
    fcntl.fcntl(alive, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(alive, SIGNAL_OF_A_FILE, signal.SIGKILL)
    fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([alive], [], [], 0)[0]:  # it was gone before that
        os._exit(1)
    send(job, os.getpid())
    job.close()
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (_stream(number, like) for number, like in ((1, sys.stdout), (2, sys.stderr)))
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"capsbench {asked['words'][2]}")
    random.seed()  # else all forks would draw the same
    for number in PASSED_ON:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in asked["ignored"] else default)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def _stream(number: int, like: Any) -> io.TextIOWrapper:
    """Standard output or error as Python opens them."""
    raw = io.FileIO(number, "w", closefd=False)
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(
        raw if at_once else io.BufferedWriter(raw),  # as Python does
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=number == 2 or os.isatty(number),
        write_through=at_once,
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
