"""Whether a change left the program that runs on a GPU as it was, shown without one.

    python benchmarks/same_program.py BEFORE [--after COMMIT] [--task mnist] [--variant NAME] [--plan PLAN]

Of the source of two commits it removes what only a CPU reaches: what stands behind a question like `x.device.type ==
"cpu"`, and then, again and again, the imports, functions, classes and methods that nothing else names any more. If what
is left is the same, statement by statement, then runs on a GPU go the same way, and config/same-bits.json says so, as
after `same_bits.py`. Else the modules that differ are printed and the exit code is 1.

It believes that tensors which such a question is asked of lie on the run's GPU; all questions whose answer it took are
printed and written down. What counts is what counts for a run's digest (`capsbench.provenance`), and names are compared
as words: a function counts as used where anything at all has its name, the command line's code included.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import difflib
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from same_bits import REPOSITORY, commit_of, git, known_changes, python, tree_of

from capsbench.files import write_json
from capsbench.plan.same_bits import KINDS, same_bits_file
from capsbench.provenance import NOT_SOURCE

DEVICE = "cuda"
PACKAGE = "capsbench"
NO_RUN = ("capsbench.bench", "capsbench.report")  # what these name trains and evaluates nothing
BY_TORCH = {"forward", "backward"}  # methods that torch calls
PLAIN = {"staticmethod", "classmethod", "property", "once_differentiable", "no_grad"}  # decorators that do no more

ABOUT = """
import json, sys
from pathlib import Path
from capsbench.plan import House
from capsbench.plan.done import evaluation_roots, evaluation_source, training_roots, training_source
from capsbench.plan.same_bits import what_trains
house = House.load(Path(sys.argv[1]))
print(json.dumps({
    f"{cell.task} {cell.folder_name}": {
        "what_trains": what_trains(cell.task, cell.config()),
        "training": [training_source(house, cell), training_roots(cell)],
        "evaluation": [evaluation_source(cell), evaluation_roots(cell)],
    }
    for cell in house.cells
}))
"""


def main() -> int:
    """Compare, and write down what was the same; 0 if all was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="the commit whose results are there")
    parser.add_argument("--after", default="HEAD", help="the commit that changed the source; else the one checked out")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "paper.yaml")
    parser.add_argument("--task", default="mnist")
    parser.add_argument("--variant", action="append", help="only this row; may be repeated")
    parser.add_argument("--to", type=Path, default=same_bits_file(), help="the file that gets an entry more")
    given = parser.parse_args()
    if given.after == "HEAD" and git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("The working tree differs from its commit; commit first, since what is compared are commits.")
    known, commits = known_changes(given.to), {name: commit_of(getattr(given, name)) for name in ("before", "after")}
    runs, guards, different = [], set(), []
    with tempfile.TemporaryDirectory(prefix="capsbench-same-program-") as place, contextlib.ExitStack() as stack:
        trees = [stack.enter_context(tree_of(commit, Path(place) / name)) for name, commit in commits.items()]
        before, after = (json.loads(python(tree, "-c", ABOUT, str(tree / of_tree(given.plan)))) for tree in trees)
        rows = [row for row in after if row.split()[0] == given.task and given.variant is None] or [
            f"{given.task} {variant}" for variant in given.variant or ()
        ]
        for row in rows:
            if row not in before or row not in after:
                sys.exit(f"{given.plan} has no row {row} in both commits.")
            run: dict[str, Any] = {"task": given.task, "variant": row.split()[1]}
            run["what_trains"] = after[row]["what_trains"]
            for kind in KINDS:
                programs = [
                    Program(tree, about[row][kind][1]) for tree, about in zip(trees, (before, after), strict=True)
                ]
                guards |= programs[0].guards | programs[1].guards
                different += [f"{row}, {kind}:\n{text}" for text in differences(*(p.modules for p in programs))]
                run[kind] = [before[row][kind][0], after[row][kind][0]]
            runs.append(run)
    if different:
        sys.exit("Not the same program:\n" + "\n".join(dict.fromkeys(different)))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    about = {"shown": "the same program, without what only a CPU reaches", "device": DEVICE, "guards": sorted(guards)}
    known["changes"].append({**commits, "made": today, **about, "runs": runs})
    write_json(given.to, known)
    print("\n".join(sorted(guards)))
    print(f"The same program in {len(runs)} rows, if these questions are answered for {DEVICE}; see {given.to}.")
    return 0


def of_tree(plan: Path) -> Path:
    """A plan of this repository as a path inside of it."""
    return plan.resolve().relative_to(REPOSITORY)


def differences(before: dict[str, ast.Module], after: dict[str, ast.Module]) -> Iterator[str]:
    """Of each module that differs, what does."""
    for name in sorted(before.keys() | after.keys()):
        texts = [ast.unparse(ast.fix_missing_locations(tree[name])) if name in tree else "" for tree in (before, after)]
        if texts[0] != texts[1]:
            lines = difflib.unified_diff(*(text.splitlines() for text in texts), name, name, lineterm="", n=1)
            yield "\n".join(f"  {line}" for line in lines)


class Program:
    """What a GPU reaches of the modules that `roots` import, directly or not.

    `modules`: their syntax by name, without docstrings and without what only a CPU reaches. `guards`: the questions
    about the device whose answer was taken.
    """

    def __init__(self, tree: Path, roots: list[str]) -> None:
        self.tree, self.roots = tree, roots
        self.guards: set[str] = set()
        self.modules: dict[str, ast.Module] = {}
        self._read(roots)
        names = {path: name_of(path.relative_to(tree)) for path in (tree / PACKAGE).rglob("*.py")}
        outside = [path for path, name in names.items() if name not in self.modules and not inside(name, NO_RUN)]
        self.outside = sum((words(ast.parse(path.read_bytes())) for path in outside), Counter())
        while self._without_unused():
            self._without_unreached()

    def _read(self, roots: list[str]) -> None:
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            path = file_of(self.tree, name)
            if path is None or name in self.modules or inside(name, NOT_SOURCE):
                continue
            module = without_docstrings(ast.parse(path.read_bytes()))
            folding = OnDevice(name)
            self.modules[name] = folding.visit(module)
            self.guards |= folding.guards
            waiting += imports(self.modules[name]) + parents(name)

    def _without_unused(self) -> bool:
        """Remove once what nothing names; whether there was such a thing."""
        used = sum((words(module) for module in self.modules.values()), Counter(self.outside))
        removed = False
        for name, module in self.modules.items():
            own = words(module, imports_too=False)
            kept = [without_unused(statement, own) for statement in module.body]
            body = [s for s in kept if s is not None and (name in self.roots or not is_unused(s, used, method=False))]
            for s in body:
                if isinstance(s, ast.ClassDef):
                    methods = [part for part in s.body if not is_unused(part, used, method=True)]
                    removed |= len(methods) < len(s.body)
                    s.body = methods
            removed |= len(body) < len(module.body) or any(a is not b for a, b in zip(body, module.body, strict=False))
            module.body = body
        return removed

    def _without_unreached(self) -> None:
        """Remove modules that nothing imports any more."""
        reached, waiting = set(), list(self.roots)
        while waiting:
            name = waiting.pop()
            if name in self.modules and name not in reached:
                reached.add(name)
                waiting += imports(self.modules[name]) + parents(name)
        self.modules = {name: module for name, module in self.modules.items() if name in reached}


class OnDevice(ast.NodeTransformer):
    """Takes the branch that a tensor or a run on DEVICE goes, where a condition asks for that alone."""

    def __init__(self, module: str) -> None:
        self.module, self.guards = module, set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Also cut off what stands after a return that is now certain."""
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                statements = statements or ([ast.Pass()] if field == "body" else [])
                ends = [n for n, s in enumerate(statements) if isinstance(s, ast.Return | ast.Raise)]
                setattr(node, field, statements[: ends[0] + 1] if ends else statements)
        return node

    def visit_If(self, node: ast.If) -> Any:
        """The statements of the branch that is taken."""
        return self._taken(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """The expression that is taken."""
        return self._taken(node)

    def _taken(self, node: ast.If | ast.IfExp) -> Any:
        answer = answered(node.test)
        if answer is None:
            return self.generic_visit(node)
        self.guards.add(f"{self.module}: {ast.unparse(node.test)}")
        branch = node.body if answer else node.orelse
        if not isinstance(branch, list):
            return self.visit(branch)
        found: list[ast.stmt] = []
        for statement in branch:
            one = self.visit(statement)
            found += one if isinstance(one, list) else [one]
        return found


def answered(test: ast.expr) -> bool | None:
    """The value of a condition on DEVICE, if its first question is about the device and decides."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return None if (answer := answered(operand)) is None else not answer
        case ast.BoolOp(op=op, values=[first, *_]):
            decides = isinstance(op, ast.Or)  # a true one decides an `or`, a false one an `and`
            return decides if answered(first) is decides else None
        case ast.Compare(
            left=ast.Attribute(attr="type", value=ast.Name(id="device") | ast.Attribute(attr="device")),
            ops=[ast.Eq() | ast.NotEq() as op],
            comparators=[ast.Constant(value=str(device))],
        ):
            return (device == DEVICE) is isinstance(op, ast.Eq)
    return None


def is_unused(statement: ast.stmt, used: Counter[str], method: bool) -> bool:
    """Whether a function, class or method does nothing where it stands and has a name that nothing else has."""
    if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    name = statement.name
    if method and (isinstance(statement, ast.ClassDef) or name in BY_TORCH or name.startswith("__")):
        return False
    decorators = {word for decorator in statement.decorator_list for word in words(decorator)}
    return decorators <= PLAIN | {"torch"} and used[name] == words(statement)[name]


def without_unused(statement: ast.stmt, own: Counter[str]) -> ast.stmt | None:
    """An import without the names that its module does not use; None if none is left. Any other statement as it is."""
    if not isinstance(statement, ast.Import | ast.ImportFrom) or getattr(statement, "module", None) == "__future__":
        return statement
    used = [alias for alias in statement.names if own[(alias.asname or alias.name).split(".")[0]]]
    if len(used) == len(statement.names):
        return statement
    statement.names = used
    return statement if used else None


def words(node: ast.AST, imports_too: bool = True) -> Counter[str]:
    """How often each word stands in it: names, attributes, keywords, words of strings, names of definitions."""
    found: Counter[str] = Counter()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.arg(arg=word):
                found[word] += 1
            case ast.FunctionDef(name=word) | ast.ClassDef(name=word):
                found[word] += 1
            case ast.Constant(value=str(text)):
                found.update(re.findall(r"\w+", text))
            case ast.alias(name=text) if imports_too:
                found.update(text.split("."))
    return found


def without_docstrings(module: ast.Module) -> ast.Module:
    """A module without its docstrings."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return module


def imports(module: ast.Module) -> list[str]:
    """The modules of the package that it imports, and the names of which some may be modules."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.split(".")[0] == PACKAGE]


def parents(name: str) -> list[str]:
    """The packages that a module lies in."""
    return [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]


def file_of(tree: Path, name: str) -> Path | None:
    """The file of a module of the package, or None."""
    base = tree.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def name_of(path: Path) -> str:
    """The module that a file of the package is."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def inside(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of the packages or lies in one."""
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))


if __name__ == "__main__":
    sys.exit(main())
