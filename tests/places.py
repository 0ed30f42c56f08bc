"""Places where whole pipelines run as processes: a copy of the source, folders of their own, no data and no network."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PATIENCE = 1200  # seconds for one command; what hangs is ended, what is only slow is not
NOWHERE = "http://127.0.0.1:9"  # a proxy that refuses at once: the mirrors cannot be reached, wherever the tests run

PLAN = """
name: tiny
about: A few steps of three cells, on the digits that stand in.
budget: reduced
seeds: {seeds}
uci_digits: {uci_digits}
width: 0.0625
training: {{steps: {steps}, batch: 16, precision: float32}}
cost: {cost}
{own}tasks:
  mnist:
    variants: {variants}
    test_images: {test_images}
"""
DIVERGING = "variants: {diverging: {base: cnn, title: A rate at which no loss stays finite, training: {rate: 1e30}}}\n"


@dataclass
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def jobs(self) -> set[str]:
        """The jobs that Snakemake ran (or would run), by their messages."""
        return set(re.findall(r"Job \d+: (.*?) \(log:", self.text))


@dataclass
class Place:
    """A working directory with its own results, and the source that its commands run."""

    folder: Path
    clone: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "scratch"

    @property
    def results(self) -> Path:
        return self.root / "tiny-digits"

    def plan(self, **values: Any) -> Path:
        said: dict[str, Any] = {
            "seeds": [0],
            "uci_digits": "true",
            "steps": 4,
            "variants": "[cnn, capsnet-r3-recon, diverging]",
            "test_images": 20,
            "cost": "false",
        }
        said |= values
        path = self.folder / "tiny.yaml"
        path.write_text(PLAN.format(own=DIVERGING if "diverging" in said["variants"] else "", **said))
        return path

    def start(self, *command: object, **environment: str) -> subprocess.Popen[str]:
        """A process in a group of its own."""
        said = {key: value for key, value in os.environ.items() if not key.startswith(("CAPSBENCH_", "SNAKEMAKE_"))}
        said = {key: value for key, value in said.items() if not key.lower().endswith("_proxy")}
        said.pop("PYTEST_CURRENT_TEST", None)  # another one in each test, and forks are of one environment
        said |= {
            "PYTHONPATH": str(self.clone),
            "CAPSBENCH_RESULTS": str(self.root),
            "CAPSBENCH_CACHE": str(self.folder / "cache"),
            "CAPSBENCH_DEVICE": "cpu",  # what tests expect is a CPU's, also where there is a GPU
            "CAPSBENCH_STAND_IN": "1",  # ask no mirror; where a test sets it to nothing, they are asked
            **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE),
        }
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=self.folder,
            env=said | self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, *command: object, **environment: str) -> Said:
        process = self.start(*command, **environment)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return Said(process.returncode, out, err)

    def capsbench(self, *arguments: object, **environment: str) -> Said:
        return self.ask("-m", "capsbench", *arguments, **environment)

    def snakemake(self, *arguments: object, **environment: str) -> Said:
        """Snakemake with nothing said that a user would not say, but where the Snakefile is."""
        return self.ask("-m", "snakemake", "--snakefile", self.clone / "Snakefile", *arguments, **environment)

    def would_run(self, **environment: str) -> set[str]:
        """The jobs that a dry run of the plan lists."""
        said = self.snakemake("-n", "--configfile", "tiny.yaml", **environment)
        assert said.code == 0, said.text
        return said.jobs

    def manifests(self) -> dict[str, bytes]:
        """Every manifest's bytes, by task/variant/seed."""
        runs = self.results / "runs"
        return {
            path.parent.relative_to(runs).as_posix(): path.read_bytes()
            for path in sorted(runs.glob("*/*/*/manifest.json"))
        }


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 300) -> None:
    """Return once a process has made a file."""
    end = time.monotonic() + seconds
    # Of one look: a second may fall between the two renames of a checkpoint, when there is none of that name.
    while not (made := path.exists()) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    assert made or path.exists(), process.communicate() if process.poll() is not None else "too slow"


def refused(said: Said, *words: str) -> None:
    """The command refused: in words that a user can act on, without a traceback."""
    assert said.code not in (0, 3), said.text
    assert "Traceback" not in said.text
    for word in words:
        assert word in said.text


def processes(group: int, command: re.Pattern[str], state: str = "") -> list[int]:
    """The processes of a group whose command line begins as `command` says: not the shells that started them.

    `state` asks for one of ps' letters, such as T for stopped.
    """
    whole_lines = ["ps", "-ww", "-eo", "pid,pgid,stat,args"]  # pytest's readline leaves ps a width of 80
    listed = subprocess.run(whole_lines, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()[1:]]
    ours = [(pid, stat) for pid, pgid, stat, words in rows if int(pgid) == group and command.match(words)]
    return [int(pid) for pid, stat in ours if stat.startswith(state)]


def copy_source(folder: Path, origin: Path = REPOSITORY) -> Path:
    """A copy of the source as it is now: other work in the tree meanwhile cannot disturb a test."""
    folder.mkdir(parents=True)
    for name in ("capsbench", "config", "workflow", "profiles"):
        shutil.copytree(origin / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(origin / name, folder / name)
    return folder


@dataclass(frozen=True)
class Finished:
    """A whole run of the tiny plan, and what Snakemake said."""

    place: Place
    said: Said

    def copy(self, folder: Path, clone: Path | None = None, snakemake: bool = True) -> Place:
        """The finished run in another folder, as it is: with mtimes, with Snakemake's own records if wanted."""
        shutil.copytree(
            self.place.folder, folder, ignore=None if snakemake else shutil.ignore_patterns(".snakemake"), symlinks=True
        )
        return Place(folder, clone or self.place.clone)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that all workers of a parallel test run share: the first one makes it, the others wait."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, ready = base / name, base / f"{name}.ready"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            ready.touch()
    return folder
