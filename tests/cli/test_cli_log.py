"""A job's log: what it says goes there too, and a second try keeps what the first one said."""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path

from places import REPOSITORY, Place

from capsbench.cli.log import Both, last_sentences, sentences_of_nodes
from capsbench.cli.snakemake import _reasons


def test_a_second_try_keeps_what_the_first_one_said(tmp_path: Path) -> None:
    place = Place(tmp_path, REPOSITORY)
    log, said = place.folder / "logs/job.log", []
    for plan in ("first.yaml", "second.yaml", "third.yaml"):
        said.append(place.capsbench("--log", "logs/job.log", "plan", plan).err.strip())
        if plan == "second.yaml":
            log.unlink()  # as Snakemake does before each try
    first, again, second, once_more, third = log.read_text().splitlines()
    assert [first, second, third] == said
    assert first.startswith("capsbench: There is no file first.yaml")
    for line in (again, once_more):
        assert re.fullmatch(r"--- again, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", line)
    log.unlink()
    (log.parent / "job.tries.log").unlink()  # where there are no second names
    said.append(place.capsbench("--log", "logs/job.log", "plan", "first.yaml").err.strip())
    assert log.read_text().strip() == said[-1]


def test_a_log_has_no_colours_and_the_terminal_keeps_them() -> None:
    log, terminal = io.StringIO(), io.StringIO()
    Both(log, terminal).write("\x1b[1;31mmnist/cnn seed 0 failed\x1b[0m\n")
    assert log.getvalue() == "mnist/cnn seed 0 failed\n"
    assert terminal.getvalue() == "\x1b[1;31mmnist/cnn seed 0 failed\x1b[0m\n"


def test_of_many_reasons_the_first_three_are_said_and_the_others_counted() -> None:
    assert _reasons([]) == ""
    assert _reasons(["a.", "b.", "c."]) == "A job said: a. A job said: b. A job said: c. "
    assert _reasons(["a.", "b.", "c.", "d."]) == "A job said: a. A job said: b. A job said: c. And 1 other reason. "


def test_the_reasons_of_jobs_are_the_errors_that_their_logs_end_with(tmp_path: Path) -> None:
    now, full = time.time(), "capsbench: results is full; make room there.\n"
    for name, text in {
        "train/mnist/cnn.log": f"mnist/cnn seed 0: step 1\n{full}",
        "train/mnist/capsnet.log": full,
        "train/mnist/capsnet.tries.log": "capsbench: a try before.\n",
        "train/affnist/cnn.log": "capsbench: no data.\n--- again\ncapsbench: the data are damaged.\n",
        "train/affnist/mended.log": f"{full}--- again, today\naffnist/mended seed 0: done\n",
        "train/affnist/stopped.log": "capsbench: x: stopped by SIGTERM; the same command goes on from there.\n",
        "report.log": "capsbench: of another day.\n",
        "data.log": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    os.utime(tmp_path / "report.log", (now - 60, now - 60))
    assert last_sentences(tmp_path, now) == ["the data are damaged.", "results is full; make room there."]
    assert last_sentences(tmp_path / "none", now) == []


def test_what_a_node_said_before_a_job_began_is_a_reason(tmp_path: Path) -> None:
    """The words are those of a job of SLURM's on a node without the data."""
    now = time.time()
    refusal = (
        'WorkflowError in file "/clone/workflow/rules/common.smk", line 21:\n'
        "/data, which CAPSBENCH_DATA names for MNIST, is not a folder that exists; name another.\n"
        '  File "/clone/workflow/rules/common.smk", line 21, in <module>\n'
    )
    for name, text in {
        "rule_train/mnist_cnn/20.log": refusal,
        "rule_train/mnist_capsnet/21.log": refusal,
        "rule_train/mnist_old/3.log": refusal.replace("/data,", "/other,"),
        "rule_train/mnist_ended/22.log": "mnist/ended seed 0: done\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    os.utime(tmp_path / "rule_train/mnist_old/3.log", (now - 60, now - 60))
    said = "/data, which CAPSBENCH_DATA names for MNIST, is not a folder that exists; name another."
    assert sentences_of_nodes(tmp_path, now) == [said]
    assert sentences_of_nodes(tmp_path / "none", now) == []
