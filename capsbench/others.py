"""How busy other processes kept our processor cores while something was timed.

A Snakemake that is killed leaves its jobs at work, and a neighbour asks nobody: a rate says little without this.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
SLACK = 0.1  # cores; less than this is the system's own housekeeping


class Others:
    """Counts what others take, from when it is made, of the cores that this process may use."""

    def __init__(self) -> None:
        self._taken, self._since = _seconds_of_others(), time.monotonic()

    def cores(self) -> float | None:
        """How many of our cores others have kept busy on average since; None where no system says (it is not Linux)."""
        taken, elapsed = _seconds_of_others(), time.monotonic() - self._since
        if taken is None or self._taken is None or elapsed <= 0:
            return None
        return round(max(0.0, taken - self._taken) / elapsed, 2)


def crowded(others: float | None, threads: int, cores: int | None) -> str | None:
    """A sentence if others left fewer than `threads` of a machine's cores to what was timed, else None."""
    if others is None or cores is None or others <= SLACK or others + threads <= cores + SLACK:
        return None
    return (
        f"Meanwhile other processes kept {others:.1f} of the {cores} cores busy, of which this was to have {threads}: "
        "on an idle machine it would be faster."
    )


def _seconds_of_others() -> float | None:
    """Seconds for which our cores have worked since the machine started, but not for this process, by proc(5).

    Those of a virtual machine's neighbours (`steal`) are among them; those of guests are in `user` already.
    """
    try:
        lines = STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for name, *figures in (words for words in map(str.split, lines) if words):
        if name not in ours:
            continue
        user, nice, system, _idle, _waits, interrupts, soft, stolen = (int(figure) for figure in figures[:8])
        ticks += user + nice + system + interrupts + soft + stolen
    own = os.times()
    mine = own.user + own.system + own.children_user + own.children_system
    return ticks / os.sysconf("SC_CLK_TCK") - mine
