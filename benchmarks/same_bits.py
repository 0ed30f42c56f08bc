"""Whether a change of training source changed a bit of what a task's runs come to on this CPU, in float32.

    python benchmarks/same_bits.py BEFORE [--after COMMIT] [--task two_digit] [--variant NAME] [--steps 60]

It trains every row of the task with the source of two commits, BEFORE and the one checked out, in float32 and for a
few steps, evaluates it, and compares weights, losses, curves, predictions and metrics. What is the same to the last bit
goes into config/same-bits.json, by which finished runs of the earlier source stay finished; where anything differs,
nothing is written and the exit code is 1. Both commits are taken from git into folders of their own.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file

from capsbench.files import read_json, write_json
from capsbench.plan.same_bits import KINDS, same_bits_file
from capsbench.provenance import machine, versions

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = """
import json, sys
from pathlib import Path
from capsbench.plan import House
from capsbench.plan.done import evaluation_source, training_source
house = House.load(Path(sys.argv[1]))
kinds = {"training": lambda cell: training_source(house, cell), "evaluation": evaluation_source}
print(json.dumps({cell.folder_name: {kind: of(cell) for kind, of in kinds.items()} for cell in house.cells}))
"""


def main() -> int:
    """Compare, and write down what was the same; 0 if all was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="the commit whose results are there")
    parser.add_argument("--after", default="HEAD", help="the commit that changed the source; else the one checked out")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "paper.yaml")
    parser.add_argument("--task", default="two_digit")
    parser.add_argument("--variant", action="append", help="only this row; may be repeated")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--to", type=Path, default=same_bits_file(), help="the file that gets an entry more")
    given = parser.parse_args()
    commits = {name: git("rev-parse", f"{getattr(given, name)}^{{commit}}") for name in ("before", "after")}
    if given.after == "HEAD" and git("status", "--porcelain", "--untracked-files=no"):
        return refuse("The working tree differs from its commit; commit first, since what is compared are commits.")
    with tempfile.TemporaryDirectory(prefix="capsbench-same-bits-") as place:
        made = {name: made_by(name, commit, Path(place), given) for name, commit in commits.items()}
    runs, different = [], []
    for variant, after in made["after"].items():
        before = made["before"][variant]
        files = before["bits"].keys() | after["bits"].keys()
        unlike = sorted(file for file in files if before["bits"].get(file) != after["bits"].get(file))
        different += [f"{variant}: {', '.join(unlike)}"] if unlike else []
        sources = {kind: [before[kind], after[kind]] for kind in KINDS}
        runs.append({"task": given.task, "variant": variant, **sources, "bits": after["bits"]})
    if different:
        return refuse("Not the same bits:\n  " + "\n  ".join(different))
    about = {"steps": given.steps, "precision": "float32", "device": "cpu", "threads": given.threads}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    known = read_json(given.to) if given.to.exists() else {"schema": 1, "changes": []}
    known["changes"].append(
        {**commits, "made": today, **about, "machine": machine(), "versions": versions(), "runs": runs}
    )
    write_json(given.to, known)
    print(f"The same bits in {len(runs)} rows; written down in {given.to}.")
    return 0


def made_by(name: str, commit: str, place: Path, given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """For each row the digests of that commit's source, and of all that it trains and evaluates."""
    tree, plan = place / name, place / "same-bits.yaml"
    plan.write_text(yaml.safe_dump(short_plan(given)), encoding="utf-8")
    git("worktree", "add", "--detach", str(tree), commit)
    try:
        found: dict[str, dict[str, Any]] = json.loads(python(tree, "-c", SOURCES, str(plan)))
        for variant in found:
            print(f"{name} ({commit[:7]}): {variant}", flush=True)
            words = ("--variant", variant, "--device", "cpu", "--threads", str(given.threads), "--evaluate")
            python(tree, "-m", "capsbench", "train", str(plan), *words)
            run = results_of(tree) / "same-bits" / "runs" / given.task / variant / "seed-0"
            found[variant]["bits"] = traces(run)
    finally:
        git("worktree", "remove", "--force", str(tree))
    return found


def refuse(why: str) -> int:
    """Say why nothing is written."""
    print(why, file=sys.stderr)
    return 1


def git(*words: str) -> str:
    """What git says. Raises CalledProcessError."""
    done = subprocess.run(["git", *words], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def short_plan(given: argparse.Namespace) -> dict[str, Any]:
    """The task as the plan has it, but one seed, a few steps and fewer images to evaluate."""
    plan = yaml.safe_load(given.plan.read_text(encoding="utf-8"))
    task = plan["tasks"][given.task]
    said = plan["training"] | task.get("training", {})
    training = {key: value for key, value in said.items() if key not in ("epochs", "steps")}
    task |= {"pairs": 500} if "pairs" in task else {"test_images": 500}
    task |= {"training": {}, "variants": given.variant or task["variants"]}
    rows = {name: row for name, row in plan.get("variants", {}).items() if name in task["variants"]}
    for row in rows.values():
        row.pop("training", None)  # a row's own number of epochs
    rest = {key: plan[key] for key in ("dataset", "data_folder", "width") if key in plan} | {"variants": rows}
    short = {"steps": given.steps, "precision": "float32"}
    about = {"name": "same-bits", "budget": "reduced", "seeds": [0], "training": training | short}
    return about | rest | {"tasks": {given.task: task}}


def results_of(tree: Path) -> Path:
    """Where a commit's package keeps its results."""
    return tree.with_name(f"results-{tree.name}")


def python(tree: Path, *words: str) -> str:
    """What Python says with a commit's package. Ends this process where it fails, having said why."""
    data = {name: str(Path(os.environ[name]).resolve()) for name in ("CAPSBENCH_DATA",) if name in os.environ}
    environment = {**os.environ, **data, "PYTHONPATH": str(tree), "CAPSBENCH_RESULTS": str(results_of(tree))}
    done = subprocess.run([sys.executable, *words], cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}with the source of {tree.name}: exit code {done.returncode}; nothing is written.")
    return done.stdout


def traces(run: Path) -> dict[str, str]:
    """SHA-256 of all that a run left but times and digests, by file."""
    found = {"weights": digest(load_file(run / "weights.safetensors"))}
    for path in sorted(run.rglob("*.npz")):
        found[path.relative_to(run).as_posix()] = digest(dict(np.load(path)))
    for path in sorted(run.glob("*/metrics.json")):
        found[path.relative_to(run).as_posix()] = sha256(json.dumps(read_json(path)["metrics"]).encode())
    for path in sorted(run.glob("*.csv")):
        lines = [line.split(",") for line in path.read_text().splitlines()]
        kept = [n for n, name in enumerate(lines[0]) if name != "images_per_second"]
        found[path.name] = sha256("\n".join(",".join(line[n] for n in kept) for line in lines).encode())
    return found


def digest(arrays: dict[str, Any]) -> str:
    """SHA-256 of arrays by name, shape and type."""
    return sha256(b"".join(f"{n} {a.dtype} {a.shape} ".encode() + a.tobytes() for n, a in sorted(arrays.items())))


def sha256(text: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(text).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
