"""SIGTERM: Snakemake's handler waits for no lock that the thread it interrupts holds; no moment makes it an orphan."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from snakemake.scheduling.job_scheduler import JobScheduler

from capsbench.cli import snakemake
from capsbench.signals import answer_sigterm_at_any_moment


def scheduler() -> JobScheduler:
    """One with no workflow: only what the handler touches."""
    made = object.__new__(JobScheduler)
    made._lock = threading.Lock()
    made._open_jobs = threading.Semaphore(0)
    made._user_kill = None
    return made


@pytest.mark.timeout(60)
def test_a_signal_while_a_failed_job_is_dealt_with_waits_for_nobody() -> None:
    answer_sigterm_at_any_moment()
    answer_sigterm_at_any_moment()  # a second time changes nothing
    made = scheduler()
    with made._lock:  # as the main thread holds it in _error_jobs
        made.exit_gracefully(15, None)
        made.exit_gracefully(15, None)
        assert made._user_kill is None
    for _ in range(2):
        assert made._open_jobs.acquire(timeout=10)
    assert made._user_kill == "graceful"


@pytest.mark.timeout(60)
def test_a_signal_that_comes_before_snakemake_is_there_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def late(said: list[str], **named: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGINT)  # a terminal's, which Snakemake gets by itself
        os.kill(os.getpid(), signal.SIGTERM)
        return start(said, **named)

    monkeypatch.setattr(subprocess, "Popen", late)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert snakemake._run([sys.executable, "-c", "import time; time.sleep(600)"]) == -signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_the_jobs_of_a_snakemake_are_found_beside_processes_of_any_name(tmp_path: Path) -> None:
    """The kernel cuts a process' name after 15 bytes, in the middle of a letter if it falls so."""
    odd = tmp_path / f"{'a' * 14}é"
    shutil.copy(str(shutil.which("sleep")), odd)
    job = [sys.executable, "-c", "import time; time.sleep(600)", "-m", "capsbench", "--log", "x"]
    with subprocess.Popen([odd, "600"]) as other, subprocess.Popen(job) as ours:
        try:
            assert b"\xc3)" in Path(f"/proc/{other.pid}/stat").read_bytes()
            assert snakemake.jobs(os.getpid()) == {ours.pid}
            assert snakemake.jobs(other.pid) == set()
        finally:
            other.kill()
            ours.kill()
