"""Jobs that fail, processes that are killed, two at once: what others did stays, and the same command goes on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from places import PATIENCE, Place, processes, refused, wait_for

SIGNALS = Path(__file__).resolve().parents[1] / "signals"
STEPS = 40


def outcome(place: Place) -> dict[str, bytes]:
    """What a run ends with that must be the same bit for bit."""
    runs = place.results / "runs"
    return {
        path.relative_to(runs).as_posix(): path.read_bytes()
        for name in ("weights.safetensors", "predictions.npz")
        for path in runs.rglob(name)
    }


def test_two_cannot_work_on_the_same_results(done) -> None:
    (done.results / "report.html").unlink()
    handle = os.open(done.results / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        said = done.capsbench("run", "tiny.yaml")
    finally:
        os.close(handle)
    assert said.code == 4
    assert "Another Snakemake is at work on" in said.text
    assert "Traceback" not in said.text
    assert said.jobs == set()
    assert not (done.results / "report.html").exists()


def test_without_the_program_which_a_sentence_says_so(place, tmp_path) -> None:
    """As in a minimal container: Snakemake would end in a traceback, as its plugin for SLURM calls it when loaded."""
    place.plan()
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "uname"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    for options in ((), ("--dry-run",)):
        said = place.capsbench("run", "tiny.yaml", *options, PATH=str(tmp_path / "bin"))
        refused(said, "calls the program `which`, and PATH has none", "`capsbench train`")
        assert (said.code, said.err.count("\n"), said.jobs) == (4, 1, set())


@pytest.mark.parametrize(("options", "is_told"), [(("--executor", "local"), True), ((), False)])
def test_what_a_cluster_s_node_said_is_told_where_jobs_ran_elsewhere(done, options: tuple[str, ...], is_told) -> None:
    """The log stands for one of SLURM's, in its words; that jobs run elsewhere is told from the option."""
    log = done.folder / ".snakemake/slurm_logs/rule_train/mnist_cnn/20.log"
    log.parent.mkdir(parents=True)
    log.write_text('WorkflowError in file "/clone/workflow/rules/common.smk", line 21:\n/data is not there.\n')
    os.utime(log, (time.time() + 600, time.time() + 600))  # written while the command runs
    shutil.rmtree(done.results / "runs/mnist/cnn")
    (done.results / "runs/mnist/cnn").write_text("a file where a folder should be")  # so that a job fails
    said = done.capsbench("run", "tiny.yaml", *options)
    assert said.code == 4, said.text
    assert ("A job said: /data is not there." in said.err) is is_told
    assert ("in .snakemake/slurm_logs" in said.err) is is_told


def test_a_dry_run_beside_a_snakemake_at_work_takes_none_of_its_promises(done) -> None:
    for path in done.results.glob("runs/mnist/*/seed-0/manifest.json"):
        path.unlink()
    cells = done.results / "cells"
    promises = {path: path.read_bytes() for path in cells.rglob("*") if path.is_file()}
    handle = os.open(done.results / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        said = done.capsbench("run", "tiny.yaml", "-n")
    finally:
        os.close(handle)
    assert said.code == 0, said.text
    assert "nothing is written there" in said.text
    assert {path: path.read_bytes() for path in cells.rglob("*") if path.is_file()} == promises
    assert done.capsbench("run", "tiny.yaml", "-n").code == 0
    assert not (cells / "mnist" / "cnn" / "trained.json").exists()


@pytest.mark.slow
def test_a_job_that_fails_names_its_log_and_stops_no_other(done) -> None:
    shutil.rmtree(done.results / "runs/mnist/cnn")
    (done.results / "runs/mnist/cnn").write_text("a file where a folder should be")
    metrics = done.results / "runs/mnist/capsnet-r3-recon/seed-0/test/metrics.json"
    metrics.unlink()
    said = done.capsbench("run", "tiny.yaml")
    assert said.code == 4
    assert "Traceback" not in said.text
    log = done.results / "logs/train/mnist/cnn.log"
    sentence = f"{done.results}/runs/mnist/cnn"
    assert sentence in log.read_text()
    assert f"not every job is done. A job said: {sentence}" in said.err.splitlines()[-1]
    assert str(log.relative_to(done.folder)) in said.text
    assert "the same command goes on" in said.err
    assert metrics.is_file()  # the other cell went on
    assert "Draw tables, figures and the report" not in said.jobs

    (done.results / "runs/mnist/cnn").unlink()
    said = done.capsbench("run", "tiny.yaml")
    assert said.code == 3  # of the cell that diverges
    assert said.jobs == {"Train mnist/cnn", "Evaluate mnist/cnn", "Draw tables, figures and the report"}
    failed, mended = log.read_text().split("--- again, ")[-2:]
    assert sentence in failed  # why there was another try
    assert "mnist/cnn seed 0: done" in mended


def test_a_process_left_behind_is_waited_for(done) -> None:
    run = done.results / "runs/mnist/cnn/seed-0"
    before = (run / "weights.safetensors").read_bytes()
    (run / "manifest.json").unlink()
    handle = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    process = done.start("-u", "-m", "capsbench", "train", "tiny.yaml", "--variant", "cnn")
    assert process.stdout is not None
    assert f"another process is at work on {run}; waiting" in process.stdout.readline()
    assert not (run / "manifest.json").exists()
    os.close(handle)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    assert (run / "weights.safetensors").read_bytes() == before


def test_a_report_left_behind_is_waited_for_before_its_folder_is_removed(done) -> None:
    next(done.results.glob("figures/*.png")).unlink()
    command = ["-m", "snakemake", "--snakefile", done.clone / "Snakefile", "--configfile", "tiny.yaml", "--nolock"]
    killed = done.start(*command)
    job = re.compile(r"\S*python\S* -m capsbench --log \S*report\.log ")
    # The job first: `begin` too holds the report, for a moment, while the figures of the run before are still there.
    while not ((jobs := processes(killed.pid, job)) and is_drawing(done.results) and drawn_figures(done.results)):
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.01)
    (drawing,) = jobs
    os.kill(drawing, signal.SIGSTOP)
    killed.kill()
    drawn = drawn_figures(done.results)
    process = done.start("-u", *command)
    assert process.stderr is not None
    try:
        assert any(f"another process draws the report of {done.results}; waiting" in line for line in process.stderr)
        assert drawn <= drawn_figures(done.results)
    finally:
        os.kill(drawing, signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    killed.communicate(timeout=PATIENCE)


def drawn_figures(results: Path) -> set[Path]:
    return set(results.glob("figures/*.png"))


def is_drawing(results: Path) -> bool:
    """Whether a process draws the report of these results."""
    with contextlib.suppress(FileNotFoundError), (results / ".drawing").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, clone: Path) -> Place:
    """A plan that trains for some seconds, run from beginning to end."""
    place = Place(tmp_path_factory.mktemp("undisturbed"), clone)
    place.plan(steps=STEPS, variants="[capsnet-r3-recon]")
    said = place.capsbench("run", "tiny.yaml")
    assert said.code == 0, said.text
    return place


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["the group", "snakemake", "the trainer"])
def test_killed_in_the_middle_it_goes_on_to_the_same_bits(place, undisturbed, whom: str) -> None:
    place.plan(steps=STEPS, variants="[capsnet-r3-recon]")
    command = ["-m", "snakemake", "--snakefile", place.clone / "Snakefile", "--configfile", "tiny.yaml"]
    process = place.start(*command, **at_step(place, 17, "SIGSTOP"))
    trainer = halted(process)
    if whom == "the group":
        os.killpg(process.pid, signal.SIGKILL)
    elif whom == "snakemake":
        process.kill()
        os.kill(trainer, signal.SIGCONT)  # left behind, it goes on to its end
    else:
        os.kill(trainer, signal.SIGKILL)
    process.wait(timeout=PATIENCE)
    assert process.returncode != 0
    process.stdout.close()  # a trainer that is left behind holds the other end
    process.stderr.close()

    said = place.capsbench("run", "tiny.yaml")
    assert said.code == 0, said.text
    assert "cannot be locked" not in said.text
    if whom != "snakemake":  # that one leaves its trainer behind, which goes on to the end: the next one waits for it
        assert "going on after step 16 of 40" in said.text
    assert outcome(place) == outcome(undisturbed)
    assert place.would_run() == set()


@pytest.mark.slow
def test_a_trainer_stopped_by_a_time_limit_is_a_failed_job_and_its_retry_goes_on(place, undisturbed) -> None:
    place.plan(steps=STEPS, variants="[capsnet-r3-recon]")
    process = place.start("-m", "capsbench", "run", "tiny.yaml", "--retries", 1, **at_step(place, 17, "SIGTERM"))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    assert "stopped by SIGTERM, saved after step 17 of 40" in out + err
    assert "going on after step 17 of 40" in out + err
    assert outcome(place) == outcome(undisturbed)


@pytest.mark.slow
def test_of_two_at_once_one_works_and_the_other_says_so(place, undisturbed) -> None:
    place.plan(steps=STEPS, variants="[capsnet-r3-recon]")
    processes = [place.start("-m", "capsbench", "run", "tiny.yaml") for _ in range(2)]
    answers = [process.communicate(timeout=PATIENCE) for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 4], answers
    for process, (out, err) in zip(processes, answers, strict=True):
        assert ("Another Snakemake is at work on" in out + err) == (process.returncode == 4)
        assert "Traceback" not in out + err
    assert outcome(place) == outcome(undisturbed)


def at_step(place: Place, step: int, name: str) -> dict[str, str]:
    """The environment in which a trainer signals itself just before it saves after a step."""
    paths = os.pathsep.join([str(place.clone), str(SIGNALS)])
    return {"PYTHONPATH": paths, "SIGNAL_AT_STEP": f"{step} {name}", "CAPSBENCH_CHECKPOINT_SECONDS": "0"}


def halted(process: subprocess.Popen[str], seconds: float = 300) -> int:
    """The trainer of a group, once it has stopped itself."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        # One listing says both: what a trainer forks bears its command line for a moment and is gone at a second look.
        if stopped := trainers(process.pid, state="T"):
            return stopped[0]
        time.sleep(0.05)
    raise AssertionError("no trainer stopped itself")


def trainers(group: int, state: str = "") -> list[int]:
    """The processes of a group that train."""
    return processes(group, re.compile(r"\S*python\S* -m capsbench (--log \S+ )?train "), state)


@pytest.mark.slow
def test_a_lock_that_a_bare_snakemake_left_says_what_to_do_and_capsbench_run_needs_nothing(place) -> None:
    place.plan(variants="[cnn]")
    locks = place.folder / ".snakemake" / "locks"
    process = place.start("-m", "snakemake", "--snakefile", place.clone / "Snakefile", "--configfile", "tiny.yaml")
    wait_for(place.results / "data.json", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert any(locks.iterdir())
    said = place.snakemake("--configfile", "tiny.yaml")
    assert said.code == 1
    assert "--unlock" in said.text
    said = place.capsbench("run", "tiny.yaml")
    assert said.code == 0, said.text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("send", [os.killpg, os.kill])
def test_a_signal_saves_and_ends(place, number: signal.Signals, send: Callable[[int, int], None]) -> None:
    """To all processes, as a terminal or a cluster sends it; or to `capsbench run` alone, as `kill` does."""
    place.plan(steps=100_000, variants="[capsnet-r3-recon]")
    run = place.results / "runs/mnist/capsnet-r3-recon/seed-0"
    process = place.start("-m", "capsbench", "run", "tiny.yaml", CAPSBENCH_CHECKPOINT_SECONDS="0.1")
    wait_for(run / "checkpoint" / "last.safetensors", process)
    assert trainers(process.pid)
    send(process.pid, number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4, out + err
    stopped = signal.SIGTERM if send is os.kill else number
    assert f"stopped by {stopped.name}, saved after step" in out + err
    assert "A job said" not in err  # it goes on from there
    assert "Traceback" not in out + err
    assert not trainers(process.pid)
