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
from places import Place, copy_source
from tools import unavailable

from capsbench.cli.offered_forks import forks_offered

SERVER = "-m\0capsbench.fork_server\0"
SOON = 120  # seconds


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
    given = Place(tmp_path / "work", copy_source(tmp_path / "clone"), {"TMPDIR": str(temporary)})
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


def forks_of(server: int) -> set[str]:
    """The names of what is a fork of it now."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return {Path(f"/proc/{child}/comm").read_text().strip() for child in children}
    return set()


def watched(process: subprocess.Popen[str]) -> set[str]:
    """The names of all forks that a run has while it lives, and whether it has a server."""
    seen: set[str] = set()
    server = None
    while process.poll() is None:
        server = server or server_of(process.pid)
        if server:
            seen |= {"server", *forks_of(server)}
        time.sleep(0.05)
    return seen


@pytest.mark.slow
def test_jobs_are_forks_and_nothing_of_that_is_left(place: Place, temporary: Path) -> None:
    run = place.start("-m", "capsbench", "run", "tiny.yaml")
    seen = watched(run)
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
    assert watched(run) == set()
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
    run = place.start("-m", "capsbench", "run", "tiny.yaml")
    end = time.monotonic() + SOON
    while not ((server := server_of(run.pid)) and "capsbench train" in forks_of(server)):
        assert time.monotonic() < end
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    done = place.results / "cells" / "mnist" / "capsnet-r1" / "trained.json"
    while SERVER in said(server) or not done.is_file():  # Snakemake goes on, as it does without forks
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not list(temporary.glob("capsbench-*"))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
