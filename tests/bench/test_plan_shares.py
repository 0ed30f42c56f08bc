"""benchmarks/plan_shares.py: what of a plan's work is training, and what is around it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripts import script

REPOSITORY = Path(__file__).resolve().parents[2]
PLAN = """
budget: reduced
seeds: [0, 1]
uci_digits: true
width: 0.0625
cost: false
training: {steps: 30, batch: 16, precision: float32}
tasks:
  mnist: {variants: [capsnet-r1], test_images: 20}
"""
BUSY = "import time\nwhile time.process_time() < 0.6: pass\ntime.sleep(60)"


def test_a_process_counts_to_the_job_whose_log_it_names() -> None:
    tool = script("plan_shares")
    words = {"train": ["-m", "capsbench", "--log", "/x/logs/train/mnist/cnn.log", "train"], None: ["-m", "capsbench"]}
    processes = {
        kind: subprocess.Popen([sys.executable, "-c", BUSY, *said], start_new_session=True)
        for kind, said in words.items()
    }
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = tool.looked_at(processes["train"].pid)
            if found and min(seconds for _, seconds in found.values()) >= 0.55:
                break
        ((number, _),) = found
        ((kind, seconds),) = found.values()
        assert (number, kind) == (processes["train"].pid, "train")
        assert 0.55 <= seconds < 10
        assert tool.looked_at(processes[None].pid) == {}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_a_job_that_was_never_looked_at_has_a_row(tmp_path: Path) -> None:
    for log in ("train/mnist/cnn.log", "train/mnist/cnn.tries.log", "report.log", "report.tries.log"):
        (path := tmp_path / "plan" / "logs" / log).parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert script("plan_shares").kinds_in(tmp_path) == {"train", "report"}


def test_what_others_are_called_need_not_be_text() -> None:
    tool = script("plan_shares")
    named = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", b"\xff\xfe"])
    try:
        while b"\xff\xfe" not in Path(f"/proc/{named.pid}/cmdline").read_bytes():  # until it is the program that it is
            assert named.poll() is None
        assert tool.looked_at(named.pid) == {}
    finally:
        named.kill()
        named.wait()


FORK = """
import os, sys, time
pid = os.fork()
if pid == 0:
    open("/proc/self/comm", "w").write(sys.argv[1])
    while time.process_time() < 0.6: pass
    time.sleep(60)
os.waitpid(pid, 0)
"""
RUN = """
import subprocess, sys
words = [sys.executable, "-c", sys.argv[1], sys.argv[2], "-m", "capsbench.fork_server", "x"]
subprocess.run(words, start_new_session=True)
"""


@pytest.mark.parametrize(("name", "kind"), [("capsbench evalu", "evaluate"), ("python", "loading")])
def test_a_fork_counts_to_the_job_that_it_is(name: str, kind: str) -> None:
    tool = script("plan_shares")
    run = subprocess.Popen([sys.executable, "-c", RUN, FORK, name], start_new_session=True)
    found: dict[tuple[int, int], tuple[str, float]] = {}
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not any(seconds > 0.55 for _, seconds in found.values()):
            found = tool.looked_at(run.pid)
        assert sorted(of for of, _ in found.values()) == sorted([kind, "loading"])
        assert [of for of, seconds in found.values() if seconds > 0.55] == [kind]
        with subprocess.Popen(["true"]) as other:
            assert tool.looked_at(other.pid) == {}
    finally:
        for number, _ in found or tool.looked_at(run.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        run.wait()


def ask(plan: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/plan_shares.py", str(plan), *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_plan_is_run_from_nothing_and_its_parts_are_its_whole(tmp_path, no_data, monkeypatch) -> None:
    for name, value in no_data.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path / "mine"))
    (plan := tmp_path / "shares.yaml").write_text(PLAN)
    done = ask(plan, "--cores", "1", "--to", str(tmp_path / "shares.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "shares.json").read_text())
    assert (found["plan"], found["runs"], found["cores"]) == ("shares.yaml", 2, 1)
    assert set(found["seconds"]) == {"data", "loading", "train", "evaluate", "report", "snakemake"}
    assert min(found["seconds"].values()) >= 0
    # of one machine, however fast: all libraries are more work than to find that a run is evaluated already
    assert found["seconds"]["loading"] > found["seconds"]["evaluate"]
    assert sum(found["seconds"].values()) == pytest.approx(found["whole"])
    # on a clock, which goes on while other processes have the core; on one core nothing else of the plan runs meanwhile
    assert 0 < found["training"] < found["wall"]
    assert found["others"] is None or found["others"] >= 0
    assert found["own_percent"] == pytest.approx(100 * (1 - found["training"] / found["whole"]))
    assert f"the pipeline's own share: {found['own_percent']:.1f} %" in done.stdout
    assert not (tmp_path / "mine").exists()


def test_a_plan_that_is_wrong_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    (plan := tmp_path / "wrong.yaml").write_text(PLAN.replace("capsnet-r1", "nothing"))
    done = ask(plan, "--to", str(tmp_path / "shares.json"))
    assert done.returncode == 1
    assert "ended with" in done.stderr
    assert "'nothing'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "shares.json").exists()
