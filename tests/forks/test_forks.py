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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are offered on Linux alone")
SOON = 60  # seconds in which whatever is waited for happens, on a busy machine too


class Server:
    """A server of forks as `capsbench run` starts it, and jobs that ask it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        (folder := place.folder / "socket").mkdir()
        self.address = folder / "forks"
        self.process = self.start_server()

    def start_server(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "capsbench.fork_server", str(self.address)],
            cwd=self.place.folder,
            env={**os.environ, "PYTHONPATH": str(self.place.clone)},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        until(self.address.exists)
        return process

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """A job as Snakemake starts it."""
        named = {"CAPSBENCH_FORKS": str(self.address), "OMP_NUM_THREADS": "1", **environment}
        return self.place.start("-m", "capsbench", "--log", "job.log", *words, **named)

    def forks(self) -> list[int]:
        """The processes that are forks of this server now."""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            return [int(number) for number in children.split()]
        return []

    def training(self) -> tuple[subprocess.Popen[str], int]:
        """A job in the middle of a long training, and its fork."""
        job = self.start("train", "long.yaml", "--task", "mnist", "--variant", "capsnet-r1", "--threads", "1")
        checkpoints = self.place.root / "long-digits" / "runs" / "mnist" / "capsnet-r1" / "seed-0" / "checkpoint"
        until(lambda: any(checkpoints.glob("*")), job)
        (fork,) = self.forks()
        return job, fork


def until(happens: Callable[[], object], job: subprocess.Popen[str] | None = None) -> None:
    """Wait for something; fails where it does not come, or the job ends before."""
    end = time.monotonic() + SOON
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        assert job is None or job.poll() is None, job.communicate()
        time.sleep(0.02)


def state(process: int) -> str:
    """As proc(5) says it: R and S at work, T stopped, Z ended; empty where it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_source(tmp_path_factory.mktemp("forks") / "clone")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, clone: Path) -> Iterator[Server]:
    """One that a first training has made load its libraries."""
    place = Place(tmp_path_factory.mktemp("work"), clone, environment={"CAPSBENCH_CHECKPOINT_SECONDS": "0"})
    long = place.plan(variants="[cnn, capsnet-r1]", steps=100_000).read_text()
    (place.folder / "long.yaml").write_text(long.replace("name: tiny", "name: long"))
    place.plan(variants="[cnn, capsnet-r1]")
    given = Server(place)
    assert given.start("train", "tiny.yaml", "--threads", "1").wait(SOON * 5) == 0
    yield given
    given.process.kill()
    given.process.wait()


@pytest.fixture(autouse=True)
def nothing_is_left(server: Server) -> Iterator[None]:
    shutil.rmtree(server.place.root / "long-digits", ignore_errors=True)
    yield
    until(lambda: not server.forks())
    assert server.process.poll() is None


def test_what_it_trains_has_the_bits_of_a_process_of_its_own(server: Server) -> None:
    forked = {path: path.read_bytes() for path in server.place.root.rglob("weights.safetensors")}
    assert len(forked) == 2
    shutil.rmtree(server.place.root / "tiny-digits")
    alone = server.start("train", "tiny.yaml", "--threads", "1", CAPSBENCH_FORKS="nowhere")
    assert alone.wait(SOON * 5) == 0
    assert {path: path.read_bytes() for path in forked} == forked


def test_it_says_and_returns_the_same(server: Server) -> None:
    for words in (
        ["data", "tiny.yaml"],
        ["train", "nowhere.yaml"],
        ["evaluate"],
        ["report", "tiny.yaml"],
    ):
        said = []
        for address in (str(server.address), "nowhere"):
            job = server.start(*words, CAPSBENCH_FORKS=address)
            said.append((*job.communicate(timeout=SOON), job.returncode))
        assert said[0] == said[1]


def test_it_is_where_it_was_asked_for_and_masks_files_as_there(server: Server, tmp_path: Path) -> None:
    (tmp_path / "here.yaml").write_text((server.place.folder / "tiny.yaml").read_text())
    asks = f"cd {tmp_path}; umask 027; exec {sys.executable} -m capsbench --log job.log data here.yaml --done done.json"
    said = {**os.environ, "PYTHONPATH": str(server.place.clone), "CAPSBENCH_FORKS": str(server.address)}
    subprocess.run(["bash", "-c", asks], env=said | server.place.environment | {"CAPSBENCH_STAND_IN": "1"}, check=True)
    assert stat.S_IMODE((tmp_path / "done.json").stat().st_mode) == 0o640
    assert (tmp_path / "job.log").is_file()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_the_job_saves_and_ends_both(server: Server, name: str) -> None:
    job, fork = server.training()
    assert Path(f"/proc/{fork}/comm").read_text() == "capsbench train\n"
    job.send_signal(signal.Signals[name])
    _, err = job.communicate(timeout=SOON)
    assert job.returncode == 4
    assert re.fullmatch(rf"capsbench: .*: stopped by {name}, saved after step \d+ of 100000; the same .*\n", err)
    until(lambda: state(fork) == "")


def test_a_job_that_is_killed_takes_its_fork_along(server: Server) -> None:
    job, fork = server.training()
    job.kill()
    assert job.wait(SOON) == -signal.SIGKILL
    until(lambda: state(fork) == "")


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


def test_two_forks_share_nothing(server: Server) -> None:
    job, fork = server.training()
    other = server.start("data", "tiny.yaml")
    assert other.wait(SOON) == 0
    assert server.forks() == [fork]
    job.kill()  # of which the other's fork, begun later, held nothing open
    until(lambda: state(fork) == "")
    job.wait(SOON)


def test_another_environment_gets_none(server: Server) -> None:
    seen = watched(server, "train", "tiny.yaml", "--threads", "1", OMP_NUM_THREADS="2")
    assert seen == (0, set())
    assert watched(server, "train", "tiny.yaml", "--threads", "1")[0] == 0


def watched(server: Server, *words: str, **environment: str) -> tuple[int, set[int]]:
    """The exit code of a job, and the forks that were seen meanwhile."""
    job, seen = server.start(*words, **environment), set()
    while job.poll() is None:
        seen.update(server.forks())
        time.sleep(0.01)
    return job.returncode, seen


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


def test_it_serves_until_nobody_can_ask_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    place = Place(tmp_path, server.place.clone, environment=server.place.environment)
    shutil.copy(server.place.folder / "long.yaml", tmp_path)
    own = Server(place)
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


def test_a_server_that_is_killed_ends_its_jobs_with_a_sentence(server: Server, tmp_path: Path) -> None:
    place = Place(tmp_path, server.place.clone, environment=server.place.environment)
    shutil.copy(server.place.folder / "long.yaml", tmp_path)
    own = Server(place)
    job, fork = own.training()
    own.process.kill()
    _, err = job.communicate(timeout=SOON)
    assert job.returncode == 1
    assert err.endswith("capsbench: the process that this job is a fork of was ended; the same command goes on.\n")
    until(lambda: state(fork) == "")
    own.process.wait()
    job = own.start("data", "long.yaml")  # the socket is still there, and nobody answers
    assert job.wait(SOON) == 0
