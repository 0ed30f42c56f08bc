"""`capsbench run` offers its jobs to be forks, leaves nothing of that behind, and does without where it cannot."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import PATIENCE, Place, copy_source
from tools import unavailable

from capsbench.cli.offered_forks import forks_offered

SERVER = "-m\0capsbench.fork_server\0"
SIGNALS = Path(__file__).resolve().parents[1] / "signals"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where `capsbench run` puts its socket; pytest's own folders are too long for the path of one."""
    with tempfile.TemporaryDirectory(prefix="forks-") as folder:
        yield Path(folder)


@pytest.fixture
def place(tmp_path: Path, temporary: Path) -> Place:
    if sys.platform != "linux":
        unavailable("forks are offered on Linux alone")
    (tmp_path / "work").mkdir()
    clone = copy_source(tmp_path / "clone")
    signals = {"PYTHONPATH": os.pathsep.join([str(clone), str(SIGNALS)]), "COMMANDS_TO": str(tmp_path / "commands")}
    given = Place(tmp_path / "work", clone, {"TMPDIR": str(temporary), **signals})
    given.plan(variants="[capsnet-r1]")
    return given


def server_of(run: int) -> int | None:
    """The process of which a `capsbench run` lets its jobs be forks."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == run and SERVER in (entry / "cmdline").read_text():
                return int(entry.name)
    return None


def said(process: int) -> str:
    """Its command line; nothing once it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def forks_of(place: Place) -> set[str]:
    """The names of what has been a fork, however short: each tells of itself (tests/signals)."""
    lines = Path(place.environment["COMMANDS_TO"]).read_text().splitlines()
    return {name for name in (line.partition(" ")[2] for line in lines) if name.startswith("capsbench ")}


def halted_fork(server: int) -> int | None:
    """The fork of a server that has stopped itself in the middle of its training."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if (state, int(parent)) == ("T", server):
                return int(entry.name)
    return None


def watched(place: Place, process: subprocess.Popen[str]) -> set[str]:
    """The names of all forks that a run has had when it has ended, and whether a server was seen."""
    server = None
    while process.poll() is None:
        server = server or server_of(process.pid)
        time.sleep(0.05)
    return forks_of(place) | ({"server"} if server else set())


@pytest.mark.slow
def test_jobs_are_forks_and_nothing_of_that_is_left(place: Place, temporary: Path) -> None:
    run = place.start("-m", "capsbench", "run", "tiny.yaml")
    seen = watched(place, run)
    assert run.returncode == 0, run.communicate()
    assert seen >= {"server", "capsbench train", "capsbench repor"}
    assert "capsbench data" not in seen  # it came before the first that trains
    assert not list(temporary.glob("capsbench-*"))


@pytest.mark.slow
@pytest.mark.parametrize("why", ["off", "a long path"])
def test_without_them_every_job_begins_by_itself(place: Place, tmp_path: Path, why: str) -> None:
    (long := tmp_path / ("x" * 100)).mkdir()
    environment = {"CAPSBENCH_FORKS": "off"} if why == "off" else {"TMPDIR": str(long)}
    run = place.start("-m", "capsbench", "run", "tiny.yaml", **environment)
    assert watched(place, run) == set()
    assert run.returncode == 0, run.communicate()
    assert (place.results / "report.html").is_file()


@pytest.mark.parametrize(("system", "wanted"), [("darwin", True), ("linux", False)])
def test_other_systems_and_gpus_have_none(monkeypatch: pytest.MonkeyPatch, system: str, wanted: bool) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(subprocess, "Popen", pytest.fail)
    with forks_offered(wanted) as environment:
        assert environment == dict(os.environ)


def test_another_word_is_a_sentence_before_anything_runs(place: Place) -> None:
    said = place.capsbench("run", "tiny.yaml", CAPSBENCH_FORKS="some")
    assert said.code == 2
    assert "capsbench: CAPSBENCH_FORKS is 'some'; it takes `on` and `off`" in said.err
    assert "Traceback" not in said.err
    assert said.jobs == set()


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_the_server_to_its_jobs_and_no_longer(place: Place, temporary: Path) -> None:
    halts = {"SIGNAL_AT_STEP": "2 SIGSTOP", "CAPSBENCH_CHECKPOINT_SECONDS": "0"}
    run = place.start("-m", "capsbench", "run", "tiny.yaml", **halts)
    end = time.monotonic() + PATIENCE
    while not ((server := server_of(run.pid)) and (halted := halted_fork(server))):
        assert time.monotonic() < end
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    assert SERVER in said(server)  # its fork is at work
    os.kill(halted, signal.SIGCONT)
    done = place.results / "cells" / "mnist" / "capsnet-r1" / "trained.json"
    while SERVER in said(server) or not done.is_file():  # Snakemake goes on, as it does without forks
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not list(temporary.glob("capsbench-*"))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
