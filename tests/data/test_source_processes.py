"""Downloads that are killed, that run in several processes at once, or that meet a full disk: in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torchvision
from mirror import FIRST, Handler, everything, whole

from capsbench.data.source import find_source, verify

PATIENCE = 120  # seconds for what a process does at once on a machine that is idle
CHILD = f"""
import json, sys, torchvision
from capsbench.data import download
from capsbench.data.source import find_source, verify
download.STALL_SECONDS = {PATIENCE}  # here a mirror waits for the slowest of four processes, or in the middle of a file
dataset, mirrors, resources = json.loads(sys.argv[1])
kind = {{"mnist": torchvision.datasets.MNIST, "fashion-mnist": torchvision.datasets.FashionMNIST}}[dataset]
kind.mirrors, kind.resources = mirrors, resources
print("ready", flush=True)
sys.stdin.readline()
source = find_source(dataset, fallback=True)
print(json.dumps([source.origin, verify(source)]))
"""


def child(dataset: str, mirrors: list[str], resources, cache: Path, before: str = "") -> subprocess.Popen:
    """A process of its own that has imported everything and finds the data once a line is sent to it."""
    environment = {**os.environ, "CAPSBENCH_CACHE": str(cache)}
    environment.pop("CAPSBENCH_DATA", None)
    return subprocess.Popen(
        [sys.executable, "-c", before + CHILD, json.dumps([dataset, mirrors, resources])],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def go(*processes: subprocess.Popen) -> None:
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # none before all are ready: the slowest start is no part of how long the others wait
        process.stdin.write("go\n")
        process.stdin.flush()


@pytest.mark.parametrize(("stop", "left"), [(signal.SIGINT, False), (signal.SIGKILL, True)])
def test_an_interrupted_download_is_no_data_and_disturbs_nobody(fashion, nothing_named, stop, left):
    half_sent, end = threading.Event(), threading.Event()

    def stall_halfway(handler: Handler, content: bytes) -> None:
        handler.send_half(content)
        handler.wfile.flush()
        if fashion.asked.count(FIRST) == 2:  # torchvision's first request is for redirects, its second for the file
            half_sent.set()
        end.wait(PATIENCE)

    fashion.special[FIRST] = stall_halfway
    process = child("fashion-mnist", [fashion.address], torchvision.datasets.FashionMNIST.resources, nothing_named)
    go(process)
    assert half_sent.wait(PATIENCE)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=PATIENCE)
    end.set()
    # of this signal, not of a download that failed; how Python ends on an interrupt depends on what it has imported
    assert errors.endswith("KeyboardInterrupt\n") if stop == signal.SIGINT else process.returncode == -stop, errors
    partial = list(nothing_named.iterdir())
    assert [path.name.startswith(".FashionMNIST.") for path in partial] == [True] * left
    assert not (nothing_named / "FashionMNIST").exists()

    fashion.special.clear()
    assert len(verify(find_source("fashion-mnist"))) == 4
    if left:  # nobody could tidy up: a later download does, when nothing can be under way there any more
        (nothing_named / "FashionMNIST" / "raw" / FIRST).unlink()
        os.utime(partial[0], (0, 0))
        find_source("fashion-mnist")
    assert everything(nothing_named) == whole("FashionMNIST")


def test_four_processes_at_once_all_get_the_data(fashion, nothing_named):
    together = threading.Barrier(4)

    def all_at_once(handler: Handler, content: bytes) -> None:
        together.wait(PATIENCE)  # nobody gets a byte before all four are downloading
        handler.send_whole(content)

    fashion.special[FIRST] = all_at_once
    resources = torchvision.datasets.FashionMNIST.resources
    processes = [child("fashion-mnist", [fashion.address], resources, nothing_named) for _ in range(4)]
    go(*processes)
    answers = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    expected = verify(find_source("fashion-mnist", download=False))
    assert answers == [["download", expected]] * 4
    assert fashion.asked.count(FIRST) == 8  # each of the four asked for itself: redirects, then the file
    assert everything(nothing_named) == whole("FashionMNIST")


def test_a_full_disk_is_no_reason_for_other_data(serve, small_files, nothing_named):
    """The system's limit on a file's size does what a full disk does: a write in the middle of the download fails."""
    mirror = serve(small_files)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
    process = child("mnist", [mirror.address], [], nothing_named, before=limit)
    go(process)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert f"ResourceError: The download cache {nothing_named} cannot be written (File too large)" in errors
    assert everything(nothing_named) == []
