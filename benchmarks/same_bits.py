"""Whether a change of training source changed a bit of what a task's runs come to on this machine, in float32.

    python benchmarks/same_bits.py BEFORE [--after COMMIT] [--task two_digit] [--variant NAME] [--steps 60]
    python benchmarks/same_bits.py --trees FOLDER FOLDER --device cuda --task mnist --to FILE
    python benchmarks/same_bits.py --merge FILE

It trains every row of the task with the source of two commits, BEFORE and the one checked out, in float32 and for a
few steps, evaluates it, and compares weights, losses, curves, predictions, metrics and what the manifest says of the
model. What is the same to the last bit goes into config/same-bits.json, by which finished runs by the other source stay
finished where they train the same model with the same batch and size of image; where anything differs, nothing is
written and the exit code is 1. Both commits are taken from git into folders of their own.

On a GPU machine without git, --trees names two unpacked `capsbench pack`s, the earlier one first; what it writes is
taken into config/same-bits.json by --merge, in the clone.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from arguments import at_least
from safetensors.numpy import load_file

from capsbench.cli.options import file_to_write, is_json
from capsbench.errors import CapsbenchError
from capsbench.files import read_json, write_json
from capsbench.plan import House
from capsbench.plan.same_bits import KINDS, same_bits_file, what_trains
from capsbench.provenance import machine, versions

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = """
import json, sys
from pathlib import Path
from capsbench.errors import CapsbenchError
from capsbench.plan import House
from capsbench.plan.done import evaluation_source, training_source
try:
    house = House.load(Path(sys.argv[1]))
    sources = {cell.folder_name: (training_source(house, cell), evaluation_source(cell)) for cell in house.cells}
    print(json.dumps(sources))
except CapsbenchError as error:
    sys.exit(str(error))
"""
MODEL = ("status", "steps", "parameters", "flops", "final_loss")  # what tables have of a manifest
SCORES = ("status", "images", "metrics")  # and of an evaluation


def main() -> int:
    """Compare, and write down what was the same; 0 if all was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?", help="the commit whose results are there")
    parser.add_argument("--after", default="HEAD", help="the commit that changed the source; else the one checked out")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "paper.yaml")
    parser.add_argument("--task", default="two_digit")
    parser.add_argument("--variant", action="append", help="only this row; may be repeated")
    parser.add_argument("--steps", type=at_least(1), default=60)
    parser.add_argument("--threads", type=at_least(1), default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--trees", type=Path, nargs=2, help="unpacked packs of the two commits, where there is no git")
    parser.add_argument("--merge", type=Path, nargs="+", help="files to take entries from, all that is done")
    parser.add_argument("--to", type=Path, default=same_bits_file(), help="the file that gets an entry more")
    given = parser.parse_args()
    known = changes_to_add_to(given)
    if given.merge:
        known["changes"] += [change for path in given.merge for change in changes_in(path)]
        write_json(given.to, known)
        return 0
    if (given.before is None) == (given.trees is None):
        parser.error("name the commit before, or two folders with --trees")
    if given.trees:
        folders = zip(("before", "after"), given.trees, strict=True)
        commits = {name: packed_commit(folder) for name, folder in folders}
    else:
        commits = {name: commit_of(getattr(given, name)) for name in ("before", "after")}
    if not given.trees and given.after == "HEAD" and git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("The working tree differs from its commit; commit first, since what is compared are commits.")
    with tempfile.TemporaryDirectory(prefix="capsbench-same-bits-") as place, contextlib.ExitStack() as stack:
        plan = Path(place) / "same-bits.yaml"
        plan.write_text(yaml.safe_dump(checked_plan(given)), encoding="utf-8")
        trees = [tree.resolve() for tree in given.trees or ()] or [
            stack.enter_context(tree_of(commit, Path(place) / name)) for name, commit in commits.items()
        ]
        before, after = (json.loads(python(tree, "-c", SOURCES, str(plan))) for tree in trees)
        if unlike := sorted(before.keys() ^ after.keys()):
            sys.exit(f"Only one of the commits has {', '.join(unlike)}; name rows that both have with --variant.")
        for tree in given.trees or ():
            shutil.rmtree(results_of(tree.resolve()), ignore_errors=True)  # of an earlier call: it would be skipped
        runs, different = [], []
        for variant in after:
            (_, first), (what, second) = (made_by(tree, plan, variant, given) for tree in trees)
            files = sorted(file for file in first.keys() | second.keys() if first.get(file) != second.get(file))
            different += [f"{variant}: {', '.join(files)}"] if files else []
            row: dict[str, Any] = {"task": given.task, "variant": variant, "what_trains": what}
            pairs = zip(before[variant], after[variant], strict=True)
            row |= {kind: list(both) for kind, both in zip(KINDS, pairs, strict=True)}
            runs.append(row | {"bits": second})
    if different:
        sys.exit("Not the same bits:\n  " + "\n  ".join(different))
    about = {"steps": given.steps, "precision": "float32", "device": given.device, "threads": given.threads}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    known["changes"].append(
        {**commits, "made": today, **about, "machine": machine(), "versions": versions(), "runs": runs}
    )
    write_json(given.to, known)
    print(f"The same bits in {len(runs)} rows; written down in {given.to}.")
    return 0


def made_by(tree: Path, plan: Path, variant: str, given: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """What trained (its digest) and digests of all that a commit makes of one row.

    Ends this process for a row that trains in another precision.
    """
    print(f"{tree.name}: {variant}", flush=True)
    words = ("--variant", variant, "--device", given.device, "--threads", str(given.threads), "--evaluate")
    python(tree, "-m", "capsbench", "train", str(plan), *words)
    run = results_of(tree) / "same-bits" / "runs" / given.task / variant / "seed-0"
    manifest = read_json(run / "manifest.json")
    if (precision := manifest["resolved"]["precision"]) != "float32":
        sys.exit(f"{variant} trains in {precision}; name the rows that train in float32 with --variant.")
    return what_trains(given.task, manifest["config"]), traces(run)


@contextlib.contextmanager
def tree_of(commit: str, folder: Path) -> Iterator[Path]:
    """A commit's files in a folder, for as long as they are wanted."""
    git("worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        git("worktree", "remove", "--force", str(folder))


def git(*words: str) -> str:
    """What git says. Raises CalledProcessError."""
    done = subprocess.run(["git", *words], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def commit_of(name: str) -> str:
    """The whole name of a commit. Ends this process where there is none."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        sys.exit(f"{name} is no commit of this repository.")


def packed_commit(folder: Path) -> str:
    """The commit that `capsbench pack` wrote into a pack. Ends this process where there is none."""
    try:
        return str(read_json(folder / "PACKED.json")["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        sys.exit(f"{folder} is no unpacked `capsbench pack`: it has no PACKED.json that names a commit.")


def changes_in(path: Path) -> list[dict[str, Any]]:
    """The entries of a file that another call wrote. Ends this process where it cannot be read."""
    if not path.exists():
        sys.exit(f"{path} is not there.")
    return list(known_changes(path)["changes"])


def changes_to_add_to(given: argparse.Namespace) -> dict[str, Any]:
    """What is in the file of --to. Ends this process where it cannot be read, or nothing could be written there."""
    try:
        given.to = file_to_write("--to", given.to, "same-bits.json", is_json)
    except CapsbenchError as error:
        sys.exit(str(error))
    return known_changes(given.to)


def known_changes(path: Path) -> dict[str, Any]:
    """What is written down already. Ends this process where it cannot be read."""
    try:
        known: dict[str, Any] = dict(read_json(path)) if path.exists() else {"schema": 1, "changes": []}
        return known | {"changes": list(known["changes"])}
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read ({error}); take it from the repository again.")
    except (KeyError, TypeError):
        sys.exit(f"{path} is no file that this script has written, for it has no list of changes.")


def checked_plan(given: argparse.Namespace) -> dict[str, Any]:
    """The short plan. Ends this process with a sentence where --plan names none, or one that is wrong."""
    try:
        House.load(given.plan)
    except CapsbenchError as error:
        sys.exit(str(error))
    return short_plan(given)


def short_plan(given: argparse.Namespace) -> dict[str, Any]:
    """The task as the plan has it, but one seed, a few steps and fewer images to evaluate."""
    plan = yaml.safe_load(given.plan.read_text(encoding="utf-8"))
    if given.task not in plan["tasks"]:
        sys.exit(f"{given.plan} has no task {given.task}; it has {', '.join(plan['tasks'])}.")
    task = plan["tasks"][given.task]
    said = plan.get("training", {}) | task.get("training", {})
    training = {key: value for key, value in said.items() if key not in ("epochs", "steps")}
    # rows made of others, what rows are compared with, and seeds of the task's own
    for key in ("tuned", "bf16", "axes", "reference", "references", "ladder", "seeds"):
        task.pop(key, None)
    task |= {"pairs": 500} if "pairs" in task else {"test_images": 500}
    task |= {"test_pairs": 500} if given.task == "multimnist" else {}
    task.pop("last_epochs", None)  # of so few steps there is one epoch
    if "probe_images" in task:  # of so few digits no more than there are
        task["probe_images"] = min(task["probe_images"], 500 * task.get("transforms", 32))
    task |= {"attack_images": 10} if "attack_images" in task else {}  # of each image 81 gradients
    task |= {"training": {}, "variants": given.variant or task["variants"]}
    if "widths" in task:
        task["widths"] = {name: width for name, width in task["widths"].items() if name in task["variants"]}
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
    paths = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **data, "PYTHONPATH": paths, "CAPSBENCH_RESULTS": str(results_of(tree))}
    done = subprocess.run([sys.executable, *words], cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}with the source of {tree.name}: exit code {done.returncode}; nothing is written.")
    return done.stdout


def traces(run: Path) -> dict[str, str]:
    """SHA-256 of all that a run left but times and digests, by file."""
    manifest = read_json(run / "manifest.json")
    found = {"weights": digest(load_file(run / "weights.safetensors")), "manifest.json": of_keys(manifest, MODEL)}
    for path in sorted(run.rglob("*.npz")):
        found[path.relative_to(run).as_posix()] = digest(dict(np.load(path)))
    for path in sorted(run.glob("*/metrics.json")):
        found[path.relative_to(run).as_posix()] = of_keys(read_json(path), SCORES)
    for path in sorted(run.rglob("*.csv")):
        lines = [line.split(",") for line in path.read_text().splitlines()]
        kept = [n for n, name in enumerate(lines[0]) if name != "images_per_second"]
        text = "\n".join(",".join(line[n] for n in kept) for line in lines)
        found[path.relative_to(run).as_posix()] = sha256(text.encode())
    return found


def of_keys(record: dict[str, Any], keys: tuple[str, ...]) -> str:
    """SHA-256 of some values of a record."""
    return sha256(json.dumps({key: record[key] for key in keys}).encode())


def digest(arrays: dict[str, Any]) -> str:
    """SHA-256 of arrays by name, shape and type."""
    return sha256(b"".join(f"{n} {a.dtype} {a.shape} ".encode() + a.tobytes() for n, a in sorted(arrays.items())))


def sha256(text: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(text).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
