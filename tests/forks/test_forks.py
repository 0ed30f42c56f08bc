"""A job that is a fork is the job that it would be by itself: what it makes, how it ends, what a signal does to it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import Place, copy_source
from tools import unavailable

SOON = 300  # seconds in which whatever is waited for happens, on a busy machine too
SIGNALS = Path(__file__).resolve().parents[1] / "signals"


class Server:
    """A server of forks as `capsbench run` starts it, and jobs that ask it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        (folder := place.folder / "socket").mkdir()
        self.address = folder / "forks"
        self.told = place.folder / "commands"  # to which every job adds itself (tests/signals)
        self.environment = {
            "PYTHONPATH": os.pathsep.join([str(place.clone), str(SIGNALS)]),
            "COMMANDS_TO": str(self.told),
        }
        self.process = self.start_server()
        self.jobs: list[subprocess.Popen[str]] = []

    def start_server(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "capsbench.fork_server", str(self.address)],
            cwd=self.place.folder,
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        until(self.address.exists)
        return process

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """A job as Snakemake starts it."""
        named = {**self.environment, "CAPSBENCH_FORKS": str(self.address), "OMP_NUM_THREADS": "1", **environment}
        self.jobs.append(self.place.start("-m", "capsbench", "--log", f"job-{len(self.jobs)}.log", *words, **named))
        return self.jobs[-1]

    def end(self) -> None:
        """Whatever a test has left."""
        for process in (*self.jobs, self.process):
            process.kill()
            process.communicate()

    def forks(self) -> list[int]:
        """The processes that are jobs as forks of this server now; libraries that load ask other programs too."""
        found, children = [], ""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for number in children.split():
            with contextlib.suppress(OSError):  # one that is gone hides no other
                if Path(f"/proc/{number}/comm").read_text().startswith("capsbench "):
                    found.append(int(number))
        return found

    def forked(self) -> list[int]:
        """The processes that were jobs as forks since the server began, however short."""
        lines = self.told.read_text().splitlines() if self.told.exists() else []
        return [int(line.split()[0]) for line in lines if line.split()[1] == "capsbench"]

    def training(self, variant: str = "capsnet-r1") -> tuple[subprocess.Popen[str], int]:
        """A job in the middle of a long training, and its fork."""
        before = self.forks()
        job = self.start("train", "long.yaml", "--task", "mnist", "--variant", variant, "--threads", "1")
        checkpoints = self.place.root / "long-digits" / "runs" / "mnist" / variant / "seed-0" / "checkpoint"
        until(lambda: any(checkpoints.glob("*")), job)
        (fork,) = set(self.forks()) - set(before)
        return job, fork


def until(happens: Callable[[], object], job: subprocess.Popen[str] | None = None) -> None:
    """Wait for something; fails where it does not come, or the job ends before."""
    end = time.monotonic() + SOON
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        assert job is None or job.poll() is None, job.communicate()
        time.sleep(0.02)


def state(process: int) -> str:
    """As proc(5) says it: R, S and D at work, T stopped, Z ended; empty where it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux":
        unavailable("forks are offered on Linux alone")
    return copy_source(tmp_path_factory.mktemp("forks") / "clone")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clone: Path) -> Iterator[Server]:
    """One that a first training has made load its libraries."""
    place = Place(tmp_path_factory.mktemp("work"), clone, environment={"CAPSBENCH_CHECKPOINT_SECONDS": "0"})
    long = place.plan(variants="[cnn, capsnet-r1]", steps=100_000).read_text()
    (place.folder / "long.yaml").write_text(long.replace("name: tiny", "name: long"))
    place.plan(variants="[cnn, capsnet-r1]")
    given = Server(place)
    code, seen = watched(given, "train", "tiny.yaml", "--threads", "1", "--evaluate")
    assert (code, len(seen)) == (0, 1)
    yield given
    given.end()


@pytest.fixture
def own(server: Server, tmp_path: Path) -> Iterator[Server]:
    """One that a test may end; nothing is loaded yet."""
    place = Place(tmp_path, server.place.clone, environment=server.place.environment)
    shutil.copy(server.place.folder / "long.yaml", tmp_path)
    given = Server(place)
    yield given
    given.end()


@pytest.fixture(autouse=True)
def nothing_is_left(server: Server) -> Iterator[None]:
    shutil.rmtree(server.place.root / "long-digits", ignore_errors=True)
    yield
    while server.jobs:
        (job := server.jobs.pop()).kill()
        job.communicate()
    until(lambda: not server.forks())
    assert server.process.poll() is None


def test_what_it_makes_has_the_bits_of_a_process_of_its_own(server: Server) -> None:
    files = [path for name in ("*.safetensors", "*.npz", "metrics.json") for path in server.place.root.rglob(name)]
    forked = {path: timeless(path) for path in files}
    assert len([path for path in files if path.suffix == ".safetensors"]) == 2
    assert len(files) >= 8
    shutil.rmtree(server.place.root / "tiny-digits")
    words = ("train", "tiny.yaml", "--threads", "1", "--evaluate")
    assert watched(server, *words, CAPSBENCH_FORKS="off") == (0, set())
    assert {path: timeless(path) for path in forked} == forked


def timeless(file: Path) -> bytes:
    """What is in it, but for the seconds that it took."""
    return re.sub(rb'"seconds": [\d.e-]+', b"", file.read_bytes())


def test_it_says_and_returns_the_same(server: Server) -> None:
    for words in (
        ["data", "tiny.yaml"],
        ["train", "nowhere.yaml"],
        ["evaluate"],
        ["report", "tiny.yaml"],
    ):
        said = []
        for address in (str(server.address), "off"):
            _, seen = watched(server, *words, CAPSBENCH_FORKS=address)
            assert len(seen) == (address != "off"), words
            job = server.jobs[-1]
            said.append((*job.communicate(), job.returncode))
        assert said[0] == said[1]


def test_it_masks_files_as_the_job_would_and_writes_its_log(server: Server) -> None:
    before = os.umask(0o027)
    try:
        code, seen = watched(server, "data", "tiny.yaml", "--done", "done.json")
    finally:
        os.umask(before)
    assert (code, len(seen)) == (0, 1)
    assert stat.S_IMODE((server.place.folder / "done.json").stat().st_mode) == 0o640
    assert "all files intact" in (server.place.folder / f"job-{len(server.jobs) - 1}.log").read_text()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_the_job_saves_and_ends_both(server: Server, name: str) -> None:
    job, fork = server.training()
    assert Path(f"/proc/{fork}/comm").read_text() == "capsbench train\n"
    job.send_signal(signal.Signals[name])
    _, err = job.communicate(timeout=SOON)
    assert job.returncode == 4
    assert re.fullmatch(rf"capsbench: .*: stopped by {name}, saved after step \d+ of 100000; the same .*\n", err)
    until(lambda: state(fork) in ("", "Z"))


def test_a_job_that_is_killed_takes_its_fork_along(server: Server) -> None:
    job, fork = server.training()
    job.kill()
    assert job.wait(SOON) == -signal.SIGKILL
    until(lambda: state(fork) in ("", "Z"))


def test_a_fork_that_is_killed_takes_its_job_along(server: Server) -> None:
    job, fork = server.training()
    os.kill(fork, signal.SIGKILL)
    assert job.wait(SOON) == -signal.SIGKILL


def test_a_job_that_is_suspended_suspends_its_fork(server: Server) -> None:
    job, fork = server.training()
    job.send_signal(signal.SIGTSTP)
    until(lambda: (state(job.pid), state(fork)) == ("T", "T"))
    job.send_signal(signal.SIGCONT)
    until(lambda: "T" not in state(job.pid) + state(fork))
    job.kill()
    job.wait(SOON)


def test_a_signal_to_every_process_ends_the_job_and_not_the_server(server: Server) -> None:
    """As a cluster sends it at a time limit, or a machine that shuts down."""
    job, fork = server.training()
    for process in (server.process.pid, fork, job.pid):
        os.kill(process, signal.SIGTERM)
    _, err = job.communicate(timeout=SOON)
    # A job ends by a second one that comes when it has saved; here the second is what its process passes on. It may
    # come before or after its sentence.
    assert job.returncode in (4, -signal.SIGTERM), err
    assert "stopped by SIGTERM, saved after step" in err or job.returncode != 4, err
    assert server.process.poll() is None


@pytest.mark.parametrize("ignored", [False, True])  # as under nohup
def test_a_terminal_that_hangs_up_ends_both_unless_that_is_ignored(server: Server, ignored: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        job, fork = server.training()
    finally:
        signal.signal(signal.SIGHUP, before)
    for process in (job.pid, fork) if ignored else (job.pid,):
        os.kill(process, signal.SIGHUP)
    if ignored:
        time.sleep(1)
        assert job.poll() is None
        assert state(fork) in ("R", "S", "D")  # at work, or it saves
    else:
        assert job.wait(SOON) == -signal.SIGHUP
        until(lambda: state(fork) in ("", "Z"))


def test_ctrl_c_while_it_waits_for_its_fork_is_said(own: Server) -> None:
    job = own.start("train", "long.yaml", "--task", "mnist", "--variant", "cnn", "--threads", "1")
    until(lambda: "torch" in Path(f"/proc/{own.process.pid}/maps").read_text(), job)  # in the middle of loading
    job.send_signal(signal.SIGINT)
    assert job.communicate(timeout=SOON) == ("", "capsbench: stopped.\n")
    assert job.returncode == 130
    code, seen = watched(own, "data", "long.yaml")  # answered after that one, of which the fork found nobody who waits
    assert (code, len(seen)) == (0, 1)
    until(lambda: not own.forks())


def test_another_environment_gets_none(server: Server) -> None:
    seen = watched(server, "train", "tiny.yaml", "--threads", "1", OMP_NUM_THREADS="2")
    assert seen == (0, set())
    code, found = watched(server, "train", "tiny.yaml", "--threads", "1")
    assert (code, len(found)) == (0, 1)


def watched(server: Server, *words: str, **environment: str) -> tuple[int, set[int]]:
    """The exit code of a job, and the forks that there were meanwhile: one has told of itself before its job ends."""
    before = len(server.forked())
    job = server.start(*words, **environment)
    until(lambda: job.poll() is not None)
    return job.returncode, set(server.forked()[before:])


def test_once_the_package_has_changed_there_are_none(server: Server) -> None:
    assert len(watched(server, "report", "tiny.yaml")[1]) == 1
    file = server.place.clone / "capsbench" / "training" / "loop.py"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.touch()
    assert watched(server, "report", "tiny.yaml") == (0, set())
    os.utime(file, ns=times)
    assert len(watched(server, "report", "tiny.yaml")[1]) == 1


def test_what_measures_time_is_a_process_of_its_own(server: Server) -> None:
    assert watched(server, "cost", "tiny.yaml")[1] == set()


def test_it_serves_until_nobody_can_ask_and_leaves_nothing(own: Server) -> None:
    job, fork = own.training()
    assert own.process.stdin is not None
    own.process.stdin.close()
    time.sleep(0.5)
    assert own.process.poll() is None  # its fork is at work
    job.send_signal(signal.SIGTERM)
    assert job.wait(SOON) == 4
    assert own.process.wait(SOON) == 0
    assert not own.address.parent.exists()
    assert state(fork) == ""
    own.process.stdin = None


def test_a_server_that_is_killed_ends_all_its_jobs_with_a_sentence(own: Server) -> None:
    work = [own.training("capsnet-r1"), own.training("cnn")]  # the second holds nothing of the first open
    sentence = "capsbench: the process that this job is a fork of was ended; the same command goes on.\n"
    own.process.kill()
    for number, (job, fork) in enumerate(work):
        _, err = job.communicate(timeout=SOON)
        assert job.returncode == 1
        assert err.endswith(sentence)
        assert (own.place.folder / f"job-{number}.log").read_text().endswith(sentence)
        until(lambda fork=fork: state(fork) in ("", "Z"))
    own.process.wait()
    assert own.start("data", "long.yaml").wait(SOON) == 0  # the socket is still there, and nobody answers
