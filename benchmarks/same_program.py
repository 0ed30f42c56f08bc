"""Whether a change left the program that runs on a GPU, or on a CPU, as it was, shown without running it.

    python benchmarks/same_program.py BEFORE [--after COMMIT] [--device cpu] [--task TASK] [--variant NAME] [--plan P]

Of the source of two commits it removes what only the other kind of device reaches, and what only the digits reach that
stand in for MNIST: what stands behind a question like `x.device.type == "cpu"` or `source.folder is None`, and then,
again and again, the imports, functions, classes, methods and constant attributes that nothing else names any more. If
what is left is the same, statement by statement, then runs on that device go the same way, in any precision, and
config/same-bits.json says so, as after `same_bits.py`. Else the modules that differ are printed and the exit code is 1.

It believes that tensors which such a question is asked of lie on the run's device; all questions whose answer it took
are printed and written down. What counts is what counts for a run's digest (`capsbench.provenance`), and names are
compared as words: a function counts as used where anything at all has its name, the command line's code included. What
it cannot judge stays, and so counts: a module whose import does anything but define, methods that torch may call, code
of modules that look names up at run time, a question that decides whether a function is a generator or a name local to
it.

A run's evaluation may have been on a CPU, which no metrics say: of a run that trained on a GPU, evaluations count as
the same only where they were shown to be on a CPU too (`--device cpu`, or `same_bits.py`).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import difflib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from device_program import Program
from same_bits import REPOSITORY, changes_to_add_to, commit_of, git, python, tree_of

from capsbench.files import write_json
from capsbench.plan.same_bits import KINDS, same_bits_file

ABOUT = """
import json, sys
from pathlib import Path
from capsbench.errors import CapsbenchError
from capsbench.plan import House
from capsbench.plan.done import evaluation_roots, evaluation_source, training_roots, training_source
from capsbench.plan.same_bits import what_trains
try:
    house = House.load(Path(sys.argv[1]))
    print(json.dumps({
        f"{cell.task} {cell.folder_name}": {
            "what_trains": what_trains(cell.task, cell.config()),
            "training": [training_source(house, cell), training_roots(cell)],
            "evaluation": [evaluation_source(cell), evaluation_roots(cell)],
        }
        for cell in house.cells
    }))
except CapsbenchError as error:
    sys.exit(str(error))
"""


def main() -> int:
    """Compare, and write down what was the same; 0 if all was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="the commit whose results are there")
    parser.add_argument("--after", default="HEAD", help="the commit that changed the source; else the one checked out")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "paper.yaml")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="what the runs were made on")
    parser.add_argument("--task", default="mnist")
    parser.add_argument("--variant", action="append", help="only this row; may be repeated")
    parser.add_argument("--to", type=Path, default=same_bits_file(), help="the file that gets an entry more")
    given = parser.parse_args()
    if given.after == "HEAD" and git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("The working tree differs from its commit; commit first, since what is compared are commits.")
    known, plan = changes_to_add_to(given), of_tree(given.plan)
    commits = {name: commit_of(getattr(given, name)) for name in ("before", "after")}
    runs, guards, different = [], set(), []
    with tempfile.TemporaryDirectory(prefix="capsbench-same-program-") as place, contextlib.ExitStack() as stack:
        trees = [stack.enter_context(tree_of(commit, Path(place) / name)) for name, commit in commits.items()]
        before, after = (json.loads(python(tree, "-c", ABOUT, str(tree / plan))) for tree in trees)
        rows = [row for row in after if row.split()[0] == given.task and given.variant is None] or [
            f"{given.task} {variant}" for variant in given.variant or ()
        ]
        if not rows:
            sys.exit(f"{given.plan} has no task {given.task}.")
        for row in rows:
            if row not in before or row not in after:
                sys.exit(f"{given.plan} has no row {row} in both commits.")
            run: dict[str, Any] = {"task": given.task, "variant": row.split()[1]}
            run["what_trains"] = after[row]["what_trains"]
            for kind in KINDS:
                programs = [
                    Program(tree, about[row][kind][1], given.device)
                    for tree, about in zip(trees, (before, after), strict=True)
                ]
                guards |= programs[0].guards | programs[1].guards
                different += [f"{row}, {kind}:\n{text}" for text in differences(*(p.modules for p in programs))]
                run[kind] = [before[row][kind][0], after[row][kind][0]]
            runs.append(run)
    if different:
        sys.exit("Not the same program:\n" + "\n".join(dict.fromkeys(different)))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    shown = "the same program, without what this device and digits from files do not reach"
    about = {"shown": shown, "device": given.device, "guards": sorted(guards)}
    known["changes"].append({**commits, "made": today, **about, "runs": runs})
    write_json(given.to, known)
    print("\n".join(sorted(guards)))
    print(f"The same program in {len(runs)} rows, if these questions are answered for {given.device}; see {given.to}.")
    return 0


def of_tree(plan: Path) -> Path:
    """A plan of this repository as a path inside of it. Ends this process for one that lies elsewhere."""
    if not plan.resolve().is_relative_to(REPOSITORY):
        sys.exit(f"{plan} is not in this repository, whose commits are compared; name one of theirs with --plan.")
    return plan.resolve().relative_to(REPOSITORY)


def differences(before: dict[str, ast.Module], after: dict[str, ast.Module]) -> Iterator[str]:
    """Of each module that differs, what does."""
    for name in sorted(before.keys() | after.keys()):
        texts = [ast.unparse(ast.fix_missing_locations(tree[name])) if name in tree else "" for tree in (before, after)]
        if texts[0] != texts[1]:
            first, second = (text.splitlines() for text in texts)
            lines = difflib.unified_diff(first, second, name, name, lineterm="", n=1)
            yield "\n".join(f"  {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
