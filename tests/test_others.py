"""What other processes take of the cores while something is timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tools import unavailable

from capsbench import others
from capsbench.others import Others, crowded


def test_another_process_counts() -> None:
    if Others().cores() is None:
        unavailable("this system does not say how long each core was at work")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        counted = Others()
        time.sleep(2)
        assert counted.cores() >= 0.4  # all of a core, or half of one with two at work in these tests
    finally:
        busy.kill()
        busy.wait()


def test_what_our_cores_did_for_others_is_counted_without_idling_and_without_us(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def at(moment: float, ours: int, another_s: int, own: float) -> None:
        """Each core has idled for 7,000 ticks, and stolen ticks are ten; the machine has four cores, two are ours."""
        line = "{} {} 5 5 7000 900 5 5 10 300 0"
        ticks = {"cpu": 9 * ours, "cpu0": ours, "cpu1": another_s, "cpu2": ours, "cpu3": another_s}
        stat.write_text("\n".join(line.format(name, user) for name, user in ticks.items()) + "\nintr 5 0\n\nctxt 7\n")
        times = SimpleNamespace(user=own, system=1.0, children_user=0.5, children_system=0.0)
        monkeypatch.setattr(os, "times", lambda: times)
        monkeypatch.setattr(time, "monotonic", lambda: moment)

    stat = tmp_path / "stat"
    monkeypatch.setattr(others, "STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    at(50.0, ours=1000, another_s=1000, own=4.0)
    counted = Others()
    at(60.0, ours=1900, another_s=5000, own=10.0)  # 18 seconds of two cores, six of them this process's
    assert counted.cores() == 1.2
    at(60.0, ours=1000, another_s=1000, own=9.0)  # clocks of unlike steps never make it negative
    assert counted.cores() == 0
    stat.unlink()
    assert counted.cores() is None
    assert Others().cores() is None


@pytest.mark.parametrize(
    ("taken", "threads", "cores"), [(None, 2, 2), (1.0, 1, None), (0.05, 2, 2), (1.05, 1, 2), (30.0, 2, 32)]
)
def test_nothing_is_said_where_nobody_was_in_the_way(taken: float | None, threads: int, cores: int | None) -> None:
    assert crowded(taken, threads, cores) is None


def test_who_was_in_the_way_is_said() -> None:
    said = crowded(1.32, 1, 2)
    assert said is not None
    assert said.startswith("Meanwhile other processes kept 1.3 of the 2 cores busy, of which this was to have 1:")
