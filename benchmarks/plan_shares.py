"""Where a plan's work goes: core-seconds of a whole `capsbench run`, of training and of all that is around it.

    python benchmarks/plan_shares.py config/quick.yaml [--cores 2] [--to FILE.json]

The plan runs from nothing, in a folder of its own that is removed. Every process that it starts is looked at ten times
a second, and counts to the job whose log it names, or whose fork it is:

    train     the jobs that train: reading data, training, and evaluating what was trained
    training  of these, what the manifests say that training took, on one thread a run: seconds from beginning to end,
              which are those of a core where no other process takes it, and more where one does; then that is said
    evaluate, report, cost, data   these jobs
    loading   torch and all else, once, by the process that these jobs are forks of (capsbench/fork_server.py)
    snakemake  `capsbench run` itself, and what is nothing of the above

The pipeline's own share is all but `training`, in percent of the whole: seconds of a core, idle ones left out. What a
process does after its last look is missing, a twentieth of a second on average, and so is a job that is done between
two looks, whose row says 0: `whole` is what the kernel counted, so both are in `snakemake`. Linux alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from capsbench.cli.options import file_to_write, is_json
from capsbench.errors import CapsbenchError
from capsbench.files import read_json, write_json
from capsbench.forks import FORKED
from capsbench.others import Others, crowded
from capsbench.provenance import cores, git_state, machine, versions

REPOSITORY = Path(__file__).resolve().parent.parent
APART = 0.1  # seconds between two looks
TICKS = os.sysconf("SC_CLK_TCK")
JOB = re.compile(r"-m\0capsbench\0--log\0[^\0]*/logs/(\w+)")
SERVER = "-m\0capsbench.fork_server\0"


def main() -> int:
    """Print a table, one row for each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="jobs at once, of one core each")
    parser.add_argument("--to", type=Path, help="a JSON file for the table, with the machine")
    given = parser.parse_args()
    git_state()  # kept: the commit that runs, whatever is committed meanwhile
    try:
        given.to = given.to and file_to_write("--to", given.to, "plan-shares.json", is_json)
    except CapsbenchError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as root:
        os.environ["CAPSBENCH_RESULTS"] = root
        others = Others()
        seconds, wall = run(given.plan.absolute(), given.cores, Path(root))
        taken = others.cores()
        manifests = [read_json(path) for path in Path(root).glob("*/runs/*/*/*/manifest.json")]
    whole = sum(seconds.values())
    training = sum(manifest["seconds"] for manifest in manifests)
    own = 100 * (whole - training) / whole
    for kind, value in [*sorted(seconds.items()), ("training", training), ("whole", whole)]:
        print(f"{kind:10} {value:8.1f} s of a core")
    print(f"{len(manifests)} runs in {wall:.0f} s on {given.cores} cores; the pipeline's own share: {own:.1f} %")
    if said := crowded(taken, given.cores, cores()):
        print(said)
    if given.to:
        found = {"seconds": seconds, "training": training, "whole": whole, "own_percent": own, "wall": wall}
        write_json(
            given.to,
            {
                "plan": given.plan.name,
                "cores": given.cores,
                "runs": len(manifests),
                **found,
                "others": taken,
                "machine": machine(),
                "versions": versions(),
                "git": git_state(),
            },
        )
    return 0


def run(plan: Path, cores: int, root: Path) -> tuple[dict[str, float], float]:
    """Run the plan; returns core-seconds by kind of job, and seconds from beginning to end.

    Ends this process with what `capsbench run` said if it fails.
    """
    command = [sys.executable, "-m", "capsbench", "run", str(plan), "--cores", str(cores)]
    log = root / "run.log"
    began = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=out, stderr=out, start_new_session=True)
    spent: dict[tuple[int, int], tuple[str, float]] = {}
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        spent.update(looked_at(process.pid))
        time.sleep(APART)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"`capsbench run {plan}` ended with {code}:\n{log.read_text()[-2000:]}")
    wall = time.monotonic() - began
    seconds = defaultdict(float, dict.fromkeys(kinds_in(root), 0.0))
    for kind, value in spent.values():
        seconds[kind] += value
    seconds["snakemake"] += usage.ru_utime + usage.ru_stime - sum(seconds.values())
    if seconds["snakemake"] < 0:
        sys.exit(
            "`capsbench run` ended before the process of its forks, so the kernel did not count them; say it again."
        )
    return dict(seconds), wall


def kinds_in(root: Path) -> set[str]:
    """The kinds of jobs that ran, by their logs: a job too short to be looked at has a row, too."""
    return {path.name.split(".")[0] for path in root.glob("*/logs/*")}


def looked_at(session: int) -> dict[tuple[int, int], tuple[str, float]]:
    """Of each process of a session that is a job, and of those that it lets be forks: its kind, and seconds of a core.

    Keyed by its number and the moment of its start, which no two processes share. `session` is `capsbench run`.
    """
    found: dict[tuple[int, int], tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            fields: list[Any] = rest.split()
            said = (entry / "cmdline").read_text(errors="replace")
            if kind := _kind(name, said, int(fields[1]), int(fields[3]), session):  # proc(5), counted from the state
                found[int(entry.name), int(fields[19])] = (kind, (int(fields[11]) + int(fields[12])) / TICKS)
        except OSError:  # it has ended meanwhile
            continue
    return found


def _kind(name: str, said: str, parent: int, of_session: int, session: int) -> str | None:
    """What a process of this name and command line does for the `capsbench run` that is `session`, if anything."""
    if SERVER not in said:
        return job[1] if (job := JOB.search(said)) and of_session == session else None
    if parent == session:
        return "loading"
    if _parent(parent) != session:
        return None
    # a fork is named for its job, of which the kernel keeps 15 letters; until then it is as the server
    return next((kind for kind in FORKED if name == f"capsbench {kind}"[:15]), "loading")


def _parent(process: int) -> int:
    """The number of a process's parent. Raises OSError where it has ended."""
    return int(Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])


if __name__ == "__main__":
    raise SystemExit(main())
