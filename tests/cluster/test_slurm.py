"""profiles/slurm on a real SLURM of one node: all four tasks; a job is cancelled, loses its node and is preempted.

The story runs once (about a minute and a half on two idle cores); each test looks at one thing that it must have done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from one_node import NODE, OneNode
from places import PATIENCE, Place, Said

from capsbench.training.checkpoint import read_tensors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PLAN = """
name: four
about: Every task in a few steps, but one cell that trains long enough to be stopped.
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
training: {steps: 10, batch: 16, precision: float32}
tasks:
  mnist: {variants: [capsnet-r3-recon], training: {steps: 1500}, test_images: 20}
  affnist:
    variants: [capsnet-r3-recon]
    matched_at: 0.3
    held_out: 100
    probe_every: 5
    probe_images: 20
    test_images: 20
    transforms: 2
    factor_images: 10
  multimnist: {variants: [capsnet-r3-recon], train_pairs: 1_000, test_pairs: 40, segmentation_pairs: 10}
  two_digit:
    variants: [two-digit-average-mlp]
    width: 0.125
    train_images: 500
    pairs: 40
    test_images: 40
    last_epochs: 1
"""
TASKS = ("mnist", "affnist", "multimnist", "two_digit")
CELL = "mnist/capsnet-r3-recon"
COMMENT = "rule_train_wildcards_mnist_capsnet-r3-recon"  # what the job of that cell's training is called in SLURM
COST, WHOLE_NODE = "rule_cost", "gpu:mock:2(IDX:0-1)"
ALIKE = {"CAPSBENCH_DEVICE": "cpu", "CAPSBENCH_CHECKPOINT_SECONDS": "0.2"}


@dataclass
class Story:
    """What happened: Snakemake's words, SLURM's memory of its jobs, and what was seen on the way."""

    cluster: OneNode
    place: Place
    said: Said = field(default_factory=lambda: Said(-1, "", ""))
    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    cancelled: str = ""
    lost: str = ""  # the job whose node died under it, and which was preempted later
    at_drain: set[str] = field(default_factory=set)  # running, beside the long cell, just before the node was drained
    drained: dict[str, dict[str, str]] = field(default_factory=dict)  # the jobs at the end of the drain
    together: list[list[str]] = field(default_factory=list)  # the GPUs of jobs that ran at the same time

    @property
    def results(self) -> Path:
        return self.place.root / "four-digits"

    @property
    def checkpoint(self) -> Path:
        return self.results / "runs" / CELL / "seed-0" / "checkpoint" / "last.safetensors"

    def log(self) -> str:
        path = self.results / "logs" / "train" / f"{CELL}.log"
        return path.read_text() if path.exists() else ""

    def resumed(self) -> int:
        """How often the long cell was gone on with when it last saved: one that ends before it saves counts nowhere."""
        try:
            return int(read_tensors(self.checkpoint).meta["resumed"])
        except FileNotFoundError:  # between the two renames
            return 0

    def running(self) -> dict[str, dict[str, str]]:
        """The jobs that run now; notes which GPUs they hold."""
        jobs = {name: job for name, job in self.cluster.jobs().items() if job["JobState"] == "RUNNING"}
        self.together.append([job.get("GRES", "") for job in jobs.values()])
        return jobs

    def node(self, state: str) -> None:
        self.cluster.ask("scontrol", "update", f"NodeName={NODE}", f"State={state}", "Reason=test")

    def until(self, there: Callable[[], object], what: str, seconds: float = 1000) -> None:
        end = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < end, f"{what} never came; jobs: {self.cluster.jobs()}\n{self.cluster.logs()}"
            self.running()
            time.sleep(0.2)

    def training(self) -> str:
        """The running job that trains the long cell."""
        return next(name for name, job in self.running().items() if job["Comment"] == COMMENT)

    def beside(self) -> set[str]:
        """The jobs that run while the long cell's training does, if it does."""
        jobs = self.running()
        others = {name for name, job in jobs.items() if job["Comment"] != COMMENT}
        self.at_drain = others if len(others) < len(jobs) else set()
        return self.at_drain

    def start_at_once(self) -> None:
        """Let requeued jobs start without SLURM's two minutes of waiting."""
        for name, job in self.cluster.jobs().items():
            if job["JobState"] == "PENDING" and job["Reason"] == "BeginTime":
                self.cluster.ask("scontrol", "update", f"JobId={name}", "StartTime=now+5")


def states(cluster: OneNode) -> list[str]:
    return [job["JobState"] for job in cluster.jobs().values()]


def site_profile(clone: Path, folder: Path) -> Path:
    """The profile as it is shipped, with this cluster's words in the lines that are commented out."""
    text = (clone / "profiles" / "slurm" / "profile.yaml").read_text()
    for before, after in (
        ('''# slurm_partition: "'gpu'"''', '''slurm_partition: "'main'"'''),
        ('''# gpu_model: "'a100'"''', '''gpu_model: "'mock'"'''),
        ("# slurm-status-command: squeue", "slurm-status-command: squeue"),
    ):
        assert before in text
        text = text.replace(before, after)
    folder.mkdir()
    (folder / "profile.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def story(cluster: OneNode, clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = Place(tmp_path_factory.mktemp("slurm"), clone, ALIKE)
    (place.folder / "four.yaml").write_text(PLAN)
    told = Story(cluster, place)
    patience = ["--slurm-init-seconds-before-status-checks", 3, "--seconds-between-status-checks", 3]
    command = ["--snakefile", clone / "Snakefile", "--profile", site_profile(clone, place.folder / "site")]
    process = place.start(
        "-m", "snakemake", *command, "--configfile", "four.yaml", *patience, "--latency-wait", 5, **cluster.environment
    )
    try:
        told.until(
            lambda: (told.checkpoint.exists() and told.beside()) or process.poll() is not None,
            "a checkpoint while another job runs",
        )
        assert process.poll() is None, process.communicate()
        told.cancelled = told.training()
        cluster.ask("scancel", told.cancelled)

        told.node("drain")
        told.until(lambda: cluster.ask("sinfo", "-h", "-o", "%T") == "drained", "the end of the drain")
        told.until(lambda: "PENDING" in states(cluster), "the retry's submission to a node that takes none")
        told.drained = cluster.jobs()
        told.node("resume")

        told.until(lambda: told.resumed() == 1, "a checkpoint of the retry")
        assert "going on after step" in told.log()
        told.lost = told.training()
        told.node("down")
        told.until(lambda: cluster.jobs()[told.lost]["JobState"] == "PENDING", "the requeued job")
        told.until(lambda: not cluster.steps(), "the end of the lost node's processes")
        told.node("resume")
        told.start_at_once()

        told.until(lambda: told.resumed() == 2, "a checkpoint of the requeued job")
        assert told.training() == told.lost
        urgent = cluster.ask(
            *("sbatch", "--parsable", "--partition=urgent", "--gres=gpu:mock:2", "--output=/dev/null", "--wrap=sleep 1")
        )
        told.until(lambda: cluster.jobs()[told.lost]["JobState"] == "PENDING", "the preempted job")
        told.until(lambda: cluster.jobs()[urgent]["JobState"] == "COMPLETED", "the end of what preempted it")
        assert "stopped by SIGTERM, saved after step" in told.log()
        told.start_at_once()

        told.until(lambda: process.poll() is not None, "the end")
        told.said = Said(process.returncode, *process.communicate())
        told.jobs = {name: job for name, job in cluster.jobs().items() if name != urgent}
    finally:
        process.kill()
        process.wait()
    return told


def test_every_table_is_made(story: Story) -> None:
    assert story.said.code == 0, story.said.text
    for task in TASKS:
        table = pd.read_csv(story.results / "tables" / f"{task}.csv")
        assert set(table["task"]) == {task}
        assert table["mean"].notna().any()
        assert (table["n_failed"].sum() == 0) or task == "affnist"  # matched may never be reached in ten steps
    assert (story.results / "report.html").stat().st_size > 10_000
    assert "localrule data" in story.said.text or "Check the data" in story.said.jobs


def test_jobs_ask_for_one_gpu_and_for_the_rule_s_memory_and_time(story: Story) -> None:
    submitted = {job["Comment"] for job in story.jobs.values()}
    assert submitted == {
        f"rule_{rule}_wildcards_{task}_{'two-digit-average-mlp' if task == 'two_digit' else 'capsnet-r3-recon'}"
        for rule in ("train", "evaluate")
        for task in TASKS
    } | {COST}  # and neither data nor report: they run where Snakemake runs
    for job in story.jobs.values():
        assert job["TresPerJob"] == "gres:gpu:mock:1"
        assert (job["Partition"], job["Requeue"]) == ("main", "1")
        if job["Comment"] == COST:  # it measures time: with the whole node to itself
            assert (job["NumCPUs"], job["OverSubscribe"]) == ("8", "NO")
        else:
            assert job["NumCPUs"] == "1"
        if job["Comment"] not in (COMMENT, COST):
            time_limit = "12:00:00" if job["Comment"].startswith("rule_train") else "04:00:00"
            assert (job["MinMemoryNode"], job["TimeLimit"]) == ("8000M", time_limit)


def test_two_jobs_ran_at_once_on_different_gpus_and_never_three(story: Story) -> None:
    assert {len(gpus) for gpus in story.together} >= {1, 2}
    assert max(len(gpus) for gpus in story.together) == 2
    for gpus in story.together:
        assert len(set(gpus)) == len(gpus), gpus
        assert set(gpus) <= {"gpu:mock:1(IDX:0)", "gpu:mock:1(IDX:1)"} or gpus == [WHOLE_NODE]


def test_a_cancelled_job_is_tried_again_with_more_memory(story: Story) -> None:
    first, second = (story.jobs[name] for name in (story.cancelled, story.lost))
    assert first["JobState"] == "CANCELLED"
    assert (first["Comment"], second["Comment"]) == (COMMENT, COMMENT)
    assert (first["MinMemoryNode"], first["TimeLimit"]) == ("8000M", "12:00:00")
    assert (second["MinMemoryNode"], second["TimeLimit"]) == ("16000M", "12:00:00")
    assert [job["Comment"] for job in story.jobs.values()].count(COMMENT) == 2  # the lost node cost no third one


def test_a_drained_node_finishes_its_jobs_and_starts_none(story: Story) -> None:
    ended = {name: job["JobState"] for name, job in story.drained.items()}
    assert {ended[name] for name in story.at_drain} == {"COMPLETED"}
    assert "PENDING" in ended.values()
    assert "RUNNING" not in ended.values()


def test_a_job_whose_node_died_or_that_is_preempted_goes_on_where_it_saved(story: Story) -> None:
    job = story.jobs[story.lost]
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "2")
    manifest = json.loads((story.results / "runs" / CELL / "seed-0" / "manifest.json").read_text())
    assert manifest["resumed"] == 3  # after the cancellation, after the node and after the preemption


def test_results_equal_a_local_run_s_bit_for_bit(story: Story, tmp_path: Path) -> None:
    local = Place(tmp_path, story.place.clone, ALIKE)
    (tmp_path / "four.yaml").write_text(PLAN)
    process = local.start("-m", "capsbench", "work", "four.yaml")  # which trains and evaluates, and draws nothing
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    there, here = story.results / "runs", local.root / "four-digits" / "runs"
    names = {path.relative_to(here) for end in ("weights.safetensors", "predictions.npz") for path in here.rglob(end)}
    assert len(names) >= 2 * len(TASKS)
    for name in names:
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    metrics = {path.relative_to(here) for path in here.rglob("metrics.json")}
    assert len(metrics) >= len(TASKS)
    for name in metrics:
        ours, theirs = (json.loads((root / name).read_text()) for root in (there, here))
        assert ours["metrics"] == theirs["metrics"], name
    assert (
        json.loads((there / CELL / "seed-0" / "manifest.json").read_text())["resolved"]
        == (json.loads((here / CELL / "seed-0" / "manifest.json").read_text())["resolved"])
    )
