"""`capsbench run`: a plan through Snakemake, started, stopped and spoken for."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from capsbench.cli.affnist import say_affnist
from capsbench.cli.inputs import try_routings
from capsbench.cli.log import last_sentences, sentences_of_nodes
from capsbench.cli.offered_forks import forks_offered
from capsbench.cli.opening import open_plan
from capsbench.data.source import verify
from capsbench.errors import STOPPED, CapsbenchError, ResourceError, counted
from capsbench.files import FULL, try_to_make
from capsbench.pipeline import dataset_record, finished
from capsbench.plan import House
from capsbench.plan.routings import is_custom

SNAKEMAKE = "capsbench.cli.start_snakemake"  # `snakemake` itself, but for an early Ctrl-C
RESOURCES = "--resources"  # which Snakemake knows by its beginning too
ELSEWHERE = ("--profile", "--workflow-profile", "--executor")  # with one of these jobs may run on other machines
OF_SLURM = Path(".snakemake/slurm_logs")  # what jobs of its plugin print, where no profile says `slurm-logdir`
SHOWN = 3  # reasons of jobs that failed, which the last sentence repeats
OF_STAGES = {"--task", "--variant", "--seed", "--device"}  # and none of Snakemake's begins like one
ITS_OWN = {  # Snakemake's options that `run` says itself: with the user's, what runs would not be what is reported
    ("--snakefile", "-s"): "it runs capsbench's own",
    ("--configfiles", None): "it runs the plan that is named first",
    ("--directory", "-d"): "it works where it is called; CAPSBENCH_RESULTS chooses where results go",
}
NO_GPU = ("", "-1", "NoDevFiles")  # in CUDA_VISIBLE_DEVICES; the last is older SLURMs' word in a job without one
# Seconds in which what got a signal together with `capsbench run` ends by itself: a job saves, Snakemake cleans up.
GRACE: dict[int, float] = {signal.SIGTERM: 1.0, signal.SIGINT: 3.0}
SOLVER_FILES = 1 << 20  # bytes: room for the programs that Snakemake's scheduler writes for its solver, and more
UNKNOWN_OPTION = 2  # Snakemake's exit code for a command line that it cannot read; 1 is for everything else


def command(path: Path, cores: str, options: Sequence[str]) -> list[str]:
    """The command line of Snakemake for a plan.

    `--nolock`: Snakemake's own lock outlives a process that is killed. The Snakefile takes one that does not.
    """
    if stray := [word for word in options if word.partition("=")[0] in OF_STAGES]:
        raise CapsbenchError(
            f"`capsbench run` takes no {stray[0]}: it runs a whole plan. `capsbench train {path} --evaluate` takes it "
            "and does a part, which `run` then skips; CAPSBENCH_DEVICE chooses the device of every job."
        )
    for word in options:
        name = word.partition("=")[0]
        for (own, short), why in ITS_OWN.items():
            # Snakemake knows each by its beginning too; `--config` is an option of another meaning
            begins = len(name) > 3 and own.startswith(name) and name != "--config"
            if begins or (short and name.startswith(short)):
                raise CapsbenchError(f"`capsbench run` takes no {name}: {why}.")
    snakefile = Path(__file__).resolve().parents[2] / "Snakefile"
    if not snakefile.is_file():
        raise CapsbenchError("There is no Snakefile next to the package; run plans from a clone of capsbench.")
    said = [sys.executable, "-m", SNAKEMAKE, "--snakefile", str(snakefile), "--configfile", str(path)]
    if not _is_batch(options) and (count := gpus()):
        limit, options = _limited(options, f"gpu={count}")
        said += limit
    # Last what takes no word: options such as --configfile would take a target of the user's for theirs.
    return [*said, "--cores", cores, "--nolock", *options]


def _limited(options: Sequence[str], limit: str) -> tuple[list[str], list[str]]:
    """A resource as words for Snakemake, and the user's options; their own number of it stays.

    Snakemake takes the last --resources alone, so to the user's it is added.
    """
    words = list(options)
    said = [place for place, word in enumerate(words) if len(word) > 4 and RESOURCES.startswith(word.split("=")[0])]
    if not said:
        return [RESOURCES, limit], words
    at = said[-1]
    joined = words[at].partition("=")[2]  # --resources=mem_mb=1
    given = [joined] if joined else list(itertools.takewhile(lambda word: re.match(r"\w+=", word), words[at + 1 :]))
    if any(word.startswith("gpu=") for word in given):
        return [], words
    rest = words[at + 1 :] if joined else words[at + 1 + len(given) :]
    return [], [*words[:at], RESOURCES, *given, limit, "--nolock", *rest]


def gpus() -> int:
    """How many GPUs this machine may use, asked without torch; 0 where cells are to train on the CPU."""
    device, _, number = os.environ.get("CAPSBENCH_DEVICE", "").partition(":")
    if device == "cpu" or number:
        return 1 if number else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in NO_GPU])
    if (program := shutil.which("nvidia-smi")) is None:
        return 0
    return _listed(program)


@functools.cache
def _listed(program: str) -> int:
    """How many GPUs nvidia-smi lists; asked once, since it takes a second, or twenty where a driver hangs."""
    try:
        said = subprocess.run([program, "--list-gpus"], capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return 0
    return len([line for line in said.stdout.splitlines() if line.startswith("GPU ")])


def _is_batch(options: Sequence[str]) -> bool:
    """Whether the jobs run elsewhere: then how many GPUs this machine has is nobody's limit."""
    said = [option.partition("=")[0] for option in options]
    # Snakemake knows each by its beginning too, of which `--e` and `--p` are those of others
    elsewhere = any(len(word) > 4 and name.startswith(word) for word in said for name in ELSEWHERE)
    return bool(elsewhere or "-e" in said or os.environ.get("SNAKEMAKE_PROFILE"))


def list_jobs(path: Path, cores: str, options: Sequence[str]) -> int:
    """Let Snakemake list the jobs that it would run; returns its exit code. Raises PlanError."""
    House.load(path)
    _try_which()
    return subprocess.run([*command(path, cores, options), "--dry-run"], check=False).returncode


def run_jobs(console: Console, path: Path, cores: str, options: Sequence[str]) -> Path:
    """Run what is missing of a plan; the folder of its results.

    Raises:
        PlanError, DataError, RoutingError: before anything is trained.
        ResourceError: jobs failed; the message says where to look.
        KeyboardInterrupt: Ctrl-C, before the first job.
    """
    house, source = open_plan(console, path)
    verify(source)
    say_affnist(console, house, source, house.cells)  # Snakemake's job `data` asks once: a plan may change after it
    _try_outside(console, house, dataset_record(source)["digest"])
    _try_which()
    _try_temporary()
    began = time.time()
    with forks_offered(not _is_batch(options) and not gpus()) as environment:
        code = _run(command(path, cores, options), {**environment, **_cache_to_write()})
    if code == STOPPED:
        raise KeyboardInterrupt  # before there was a job: nothing to tell of
    if code == UNKNOWN_OPTION:
        raise CapsbenchError(f"Snakemake does not take {' '.join(options)}; `snakemake --help` lists its options.")
    if code:
        logs = house.folder / "logs"
        elsewhere = sentences_of_nodes(OF_SLURM, began) if _is_batch(options) else []
        reasons = _reasons([*last_sentences(logs, began), *elsewhere])
        of_nodes = f" and, what a node said before its job began, in {OF_SLURM}" if elsewhere else ""
        raise ResourceError(
            f"Snakemake ended with exit code {code}: not every job is done. {reasons}The logs are in {logs}{of_nodes}; "
            f"the same command goes on from what is done, and `capsbench report {path}` shows what there is."
        )
    return house.folder


def _try_which() -> None:
    """Raise ResourceError where Snakemake could not even start: its SLURM plugin calls `which` when it is loaded."""
    if shutil.which("which") is None:
        raise ResourceError(
            "Snakemake's plugin for SLURM calls the program `which`, and PATH has none; install it (the package is "
            "called which or debianutils), or use `capsbench train` and `capsbench report`, which do without Snakemake."
        )


def _try_temporary() -> None:
    """Raise ResourceError where the disk is full on which Snakemake's scheduler writes what it gives to its solver.

    The solver's library looks for these variables in this order, and itself does without a folder that is not there or
    that it may not write to.
    """
    folder = os.environ.get("TMP", os.environ.get("TMPDIR", "/tmp"))
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(SOLVER_FILES))
    except OSError as error:
        if error.errno in FULL:
            raise ResourceError(
                f"{folder} has no room for the temporary files of Snakemake's scheduler ({error.strerror}); make room "
                "there, or set TMPDIR to a folder on another disk (and TMP, if it is set)."
            ) from None


def _cache_to_write() -> dict[str, str]:
    """Where Snakemake may keep copies of sources, if its usual place cannot be written to: an account without a home.

    The suite's own data stay where they are looked for.
    """
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        try_to_make(caches / "snakemake" / "sources")
    except (OSError, RuntimeError):  # the latter where there is no home at all
        return {"XDG_CACHE_HOME": str(Path(".snakemake/cache").absolute())}
    return {}


def _reasons(sentences: Sequence[str]) -> str:
    """What jobs said that failed, of many the first; empty where none said anything."""
    more = [f"And {counted(len(sentences) - SHOWN, 'other reason')}."] if len(sentences) > SHOWN else []
    return "".join(f"{words} " for words in [*(f"A job said: {one}" for one in sentences[:SHOWN]), *more])


def _try_outside(console: Console, house: House, data: str) -> None:
    """Try the routings from outside of runs that are not done: a job would find their mistakes, hours later perhaps."""
    try_routings(
        console,
        house,
        [
            cell
            for cell in house.cells
            if is_custom(cell.routing) and any(finished(house, cell, seed, data) is None for seed in cell.seeds)
        ],
    )


def _run(said: list[str], environment: dict[str, str] | None = None) -> int:
    """Run Snakemake to its end. A signal does not make it an orphan: it stops its jobs, which save, and then ends.

    Snakemake itself would wait for its jobs to end, hours later perhaps.
    """
    early: list[int] = []  # signals that came before there was a process to stop
    answer = early.append

    def answered(number: int, _: FrameType | None) -> None:
        answer(number)

    # A terminal sends Ctrl-C to Snakemake as well. Not SIG_IGN, which Snakemake would inherit.
    before = {number: signal.signal(number, answered) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(said, env=environment)
        answer = _Stop(process)
        for number in early:
            answer(number)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Stop:
    """Stop a Snakemake and its jobs on this machine, whether a signal reached them all or `capsbench run` alone.

    SIGTERM is passed on at once, so that no further job begins. Jobs get it only where they do not end by themselves:
    they have had the signal too where it was a terminal's or a cluster's, and one that is saved already would die of
    a second.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._thread: threading.Thread | None = None

    def __call__(self, number: int) -> None:
        if number == signal.SIGTERM:
            self._process.send_signal(number)
        if self._thread is None:
            self._thread = threading.Thread(target=self._stop_jobs, args=(number,), daemon=True)
            self._thread.start()

    def _stop_jobs(self, number: int) -> None:
        time.sleep(GRACE[number])
        if self._process.poll() is None and number == signal.SIGINT:
            self._process.send_signal(signal.SIGTERM)
        told: set[int] = set()
        while self._process.poll() is None:
            for pid in jobs(self._process.pid) - told:
                told.add(pid)
                with contextlib.suppress(ProcessLookupError):  # it came to its own end
                    os.kill(pid, signal.SIGTERM)
            time.sleep(2)  # one that began meanwhile is told then


def jobs(snakemake: int) -> set[int]:
    """The jobs of a Snakemake on this machine: those of the processes below it that are `capsbench --log`.

    Asks /proc; where there is none, it finds nothing.
    """
    parents: dict[int, int] = {}
    ours: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parents[int(folder.name)] = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
            if b"-m\0capsbench\0--log\0" in (folder / "cmdline").read_bytes():
                ours.add(int(folder.name))

    def is_below(pid: int) -> bool:
        while pid in parents and pid != snakemake:
            pid = parents[pid]
        return pid == snakemake

    return {pid for pid in ours if is_below(pid)}
