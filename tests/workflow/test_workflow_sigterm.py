"""Snakemake's handler of SIGTERM: it must not wait for a lock that the thread it interrupts holds."""

from __future__ import annotations

import threading

import pytest
from snakemake.scheduling.job_scheduler import JobScheduler

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
