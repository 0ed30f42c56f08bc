"""kill -9 twenty times at random moments: of a job, of Snakemake, of the whole group. It ends in the same bits."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter

import pytest
from places import PATIENCE, Place, processes
from test_workflow_faults import outcome

SEED = 20
KILLS = 20
STEPS = 900  # longer than one life: most runs are killed several times before they end
LONGEST = 6.0  # seconds from the beginning of a command, or of its job, to its death
JOB = re.compile(r"\S*python\S* -m capsbench --log ")
SNAKEMAKE = re.compile(r"\S*python\S* -m (snakemake|capsbench\.cli\.start_snakemake|capsbench run) ")


def kill(group: int, command: re.Pattern[str]) -> list[int]:
    """kill -9 every process of a group that `processes` finds, and return what was found."""
    victims = processes(group, command)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):  # it came to its own end
            os.kill(pid, signal.SIGKILL)
    return victims


def kill_all(group: int) -> list[int]:
    """kill -9 `capsbench run` and its Snakemake, and look until there is none.

    A Snakemake that was born between the look and the blow would work on, and the next life be refused, as it must.
    """
    victims: list[int] = []
    while found := kill(group, SNAKEMAKE):
        victims += found
    return victims


def live_and_die(place: Place, whom: str, since: str, seconds: float) -> tuple[subprocess.Popen[str], str]:
    """Start the plan and kill -9 `whom` so many seconds after the start, or after its first job is seen.

    Returns the process and what was killed; `nothing` where the plan came to its end before.
    """
    process = place.start("-m", "capsbench", "run", "tiny.yaml", CAPSBENCH_CHECKPOINT_SECONDS="0.3")
    if since == "job":
        while process.poll() is None and not processes(process.pid, JOB):
            time.sleep(0.1)
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    if process.poll() is not None:
        return process, "nothing"
    victims = kill(process.pid, JOB) if whom == "job" else kill_all(process.pid) if whom == "snakemake" else []
    if not victims:
        whom = "group"
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=PATIENCE)
    return process, whom if process.returncode != 0 else "nothing"  # it may have ended before the kill met it


@pytest.mark.slow
@pytest.mark.timeout(3600)  # under four minutes on two cores of its own
def test_killed_twenty_times_at_random_moments_it_ends_in_the_same_bits(tmp_path, clone, capsys) -> None:
    def new_place(name: str) -> Place:
        (tmp_path / name).mkdir()
        place = Place(tmp_path / name, clone)
        place.plan(steps=STEPS, variants="[capsnet-r3-recon]")
        return place

    undisturbed = new_place("undisturbed")
    assert undisturbed.capsbench("run", "tiny.yaml").code == 0
    expected = outcome(undisturbed)
    assert len(expected) == 2
    draw = random.Random(SEED)
    killed: Counter[str] = Counter()
    groups, lives = [], []
    place = new_place("place-0")
    try:
        while killed.total() < KILLS:
            whom, since = draw.choice(["job", "snakemake", "group"]), draw.choice(["start", "job", "job"])
            seconds = draw.uniform(0.0, LONGEST)
            process, met = live_and_die(place, whom, since, seconds)
            groups.append(process.pid)
            lives.append(f"{met} {seconds:.1f} s after its {since}")
            said_last = ""
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)  # a job that is left behind holds the other ends
                said_last += (stream.buffer.raw.read() or b"").decode(errors="replace")  # type: ignore[attr-defined]
                stream.close()
            if met == "nothing":
                assert process.returncode == 0, said_last
                assert outcome(place) == expected
                place = new_place(f"place-{len(lives)}")
            else:
                killed[met] += 1
        said = place.capsbench("run", "tiny.yaml")
    finally:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        with capsys.disabled():
            print(f"\n{killed.total()} kills with seed {SEED}, {dict(killed)}: {'; '.join(lives)}")
    assert said.code == 0, said.text
    assert outcome(place) == expected
    assert place.would_run() == set()
    assert set(killed) == {"job", "snakemake", "group"}
