"""Snakemake and SIGTERM: its handler made safe against the moment at which the signal comes."""

from __future__ import annotations

import threading


def answer_sigterm_at_any_moment() -> None:
    """Let Snakemake's scheduler answer SIGTERM from a thread of its own.

    Its handler takes the scheduler's lock, which is not reentrant, in the main thread, which holds that lock while it
    deals with a job that failed: and a job fails when it is stopped by the same signal. Of two signals in a row (a
    cluster's to every process, and the one that `capsbench run` passes on) the second then waits for ever. A Snakemake
    without such a handler is left as it is. Calling this again changes nothing.
    """
    try:
        from snakemake.scheduling.job_scheduler import JobScheduler
    except ImportError:
        return
    handler = getattr(JobScheduler, "exit_gracefully", None)
    if handler is None or hasattr(handler, "waits"):
        return

    def in_a_thread(self: object, *signal_and_frame: object) -> None:
        threading.Thread(target=handler, args=(self, *signal_and_frame), daemon=True).start()

    in_a_thread.waits = False  # type: ignore[attr-defined]  # the mark of this function
    JobScheduler.exit_gracefully = in_a_thread
