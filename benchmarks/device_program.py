"""What a run on a GPU or on a CPU reaches of a package's source: its syntax without the rest. For `same_program.py`."""

from __future__ import annotations

import ast
import copy
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from capsbench.provenance import NOT_SOURCE

PACKAGE = "capsbench"
NO_RUN = ("capsbench.bench", "capsbench.report")  # what these name trains and evaluates nothing
# decorators that do no more
PLAIN = {"staticmethod", "classmethod", "property", "once_differentiable", "no_grad", "cache"}
INERT_CALLS = {"TypeVar"}  # in a module's constants
HARMLESS = sys.stdlib_module_names | {PACKAGE, "torch", "numpy"}  # to import, where torch is imported anyway

TORCHS = {  # what torch's classes have: attributes and methods
    name
    for kind in (*vars(torch.nn).values(), torch.autograd.Function)
    if isinstance(kind, type)
    for name in (*dir(kind), *getattr(kind, "__annotations__", ()), *getattr(kind, "__constants__", ()))
}


class Program:
    """What a run on `device` (cuda or cpu), with digits from files, reaches of the modules that `roots` import.

    `modules`: their syntax by name, without docstrings and without what only the other kind of device reaches, or only
    the digits that stand in for MNIST. `guards`: the questions about device and data whose answer was taken.
    """

    def __init__(self, tree: Path, roots: list[str], device: str = "cuda") -> None:
        self.tree, self.roots, self.device = tree, roots, device
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
            folding = OnDevice(name, self.device)
            self.modules[name] = folding.visit(module)
            self.guards |= folding.guards
            waiting += imports(self.modules[name]) + parents(name)

    def _without_unused(self) -> bool:
        """Remove once what nothing names; whether there was such a thing."""
        used = sum((words(module) for module in self.modules.values()), Counter(self.outside))
        removed = False
        for name, module in self.modules.items():
            if looks_names_up(module):
                continue
            own = words(module, imports_too=False)
            kept = [without_unused_names(statement, own) for statement in module.body]
            fixed = name in self.roots or used["__init_subclass__"]
            body = [s for s in kept if s is not None and (fixed or not is_unused(s, used, method=False))]
            for s in body:
                if isinstance(s, ast.ClassDef):
                    methods = [part for part in s.body if not is_unused(part, used, method=True)]
                    removed |= len(methods) < len(s.body)
                    s.body = methods
                    for method in (part for part in methods if isinstance(part, ast.FunctionDef)):
                        method.body = [part for part in method.body if not is_unread(part, used)] or [ast.Pass()]
            removed |= len(body) < len(module.body) or any(a is not b for a, b in zip(body, module.body, strict=False))
            module.body = body
        return removed

    def _without_unreached(self) -> None:
        """Remove modules that nothing imports any more, but for those whose import does something."""
        reached, waiting = (
            set(),
            [*self.roots, *(name for name, module in self.modules.items() if not is_inert(module))],
        )
        while waiting:
            name = waiting.pop()
            if name in self.modules and name not in reached:
                reached.add(name)
                waiting += imports(self.modules[name]) + parents(name)
        self.modules = {name: module for name, module in self.modules.items() if name in reached}


class OnDevice(ast.NodeTransformer):
    """Takes the branch that a run on `device` goes, with data from files, where a condition asks for that alone."""

    def __init__(self, module: str, device: str) -> None:
        self.module, self.device = module, device
        self.guards: set[str] = set()

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

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function, as it is where what is cut would say what a name or the whole function is."""
        before, guards = copy.deepcopy(node), set(self.guards)
        after = self.generic_visit(node)
        if is_generator(before) == is_generator(after) and not (bound(before) - bound(after)) & read(after):
            return after
        self.guards = guards
        return before

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Without first operands that the answer makes idle: a true one of an `and`, a false one of an `or`."""
        idle = isinstance(node.op, ast.And)
        while len(node.values) > 1 and answered(node.values[0], self.device) is idle:
            self.guards.add(f"{self.module}: {ast.unparse(node.values[0])}")
            node.values = node.values[1:]
        return self.generic_visit(node) if len(node.values) > 1 else self.visit(node.values[0])

    def visit_If(self, node: ast.If) -> Any:
        """The statements of the branch that is taken."""
        return self._taken(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """The expression that is taken."""
        return self._taken(node)

    def _taken(self, node: ast.If | ast.IfExp) -> Any:
        answer = answered(node.test, self.device)
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


def answered(test: ast.expr, device: str) -> bool | None:
    """The value of a condition on `device`, if its first question is about the device or the data and decides."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return None if (answer := answered(operand, device)) is None else not answer
        case ast.BoolOp(op=op, values=[first, *_]):
            decides = isinstance(op, ast.Or)  # a true one decides an `or`, a false one an `and`
            return decides if answered(first, device) is decides else None
        case ast.Compare(
            left=ast.Attribute(attr="type", value=ast.Name(id="device") | ast.Attribute(attr="device")),
            ops=[op],
            comparators=[ast.Constant() | ast.Tuple() as said],
        ):
            devices = [part.value for part in (said.elts if isinstance(said, ast.Tuple) else [said])]  # type: ignore[attr-defined]
            if isinstance(op, ast.Eq | ast.In | ast.NotEq | ast.NotIn):
                return (device in devices) is isinstance(op, ast.Eq | ast.In)
        case ast.Compare(
            left=ast.Attribute(attr="folder", value=ast.Name(id="source")),
            ops=[ast.Is()],
            comparators=[ast.Constant(value=None)],
        ):
            return False  # only the digits that stand in for MNIST have no folder (capsbench/data/source.py)
    return None


def is_generator(node: ast.AST) -> bool:
    """Whether something in it yields."""
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))


def bound(node: ast.AST) -> set[str]:
    """The names that it binds, whichever way."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    for part in ast.walk(node):
        match part:
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.MatchAs(name=str(name)):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add((other or name).split(".")[0])
            case ast.Global(names=more) | ast.Nonlocal(names=more):
                names.update(more)
    return names


def read(node: ast.AST) -> set[str]:
    """The names that it reads."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def looks_names_up(module: ast.Module) -> bool:
    """Whether it asks for attributes or names that only a run knows."""
    for part in ast.walk(module):
        match part:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(), *_]):
                continue
            case ast.Call(func=ast.Name(id="getattr" | "vars" | "globals" | "locals" | "eval" | "exec")):
                return True
    return False


def is_inert(module: ast.Module) -> bool:
    """Whether importing it only defines: imports, functions, classes and constants."""
    for s in module.body:
        match s:
            case ast.Import(names=names) if all(top(alias.name) in HARMLESS for alias in names):
                continue
            case ast.ImportFrom(module=str(name)) if top(name) in HARMLESS:
                continue
            case ast.FunctionDef() if decorators(s) <= PLAIN:
                continue
            case ast.ClassDef() if not s.keywords and decorators(s) <= PLAIN and all(map(is_definition, s.body)):
                continue
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(value=value) | ast.AnnAssign(value=value):
                calls = [part.func for part in ast.walk(value or s) if isinstance(part, ast.Call)]
                if all(isinstance(call, ast.Name) and call.id in INERT_CALLS for call in calls):
                    continue
        return False
    return True


def is_definition(s: ast.stmt) -> bool:
    """Whether a statement of a class only defines."""
    return isinstance(s, ast.Pass) or (isinstance(s, ast.FunctionDef) and decorators(s) <= PLAIN)


def top(name: str) -> str:
    """The package of a module."""
    return name.split(".")[0]


def decorators(s: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The last word of each decorator."""
    return {ast.unparse(d.func if isinstance(d, ast.Call) else d).split(".")[-1] for d in s.decorator_list}


def is_unused(statement: ast.stmt, used: Counter[str], method: bool) -> bool:
    """Whether a function, class or method does nothing where it stands and has a name that nothing else has."""
    if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    name = statement.name
    if method and (isinstance(statement, ast.ClassDef) or not is_ours(name)):
        return False
    return decorators(statement) <= PLAIN and used[name] == words(statement)[name]


def is_ours(method: str) -> bool:
    """Whether a method is private, and none that torch's classes have and call."""
    return method.startswith("_") and not method.startswith("__") and method not in TORCHS


def is_unread(statement: ast.stmt, used: Counter[str]) -> bool:
    """Whether it gives an attribute a constant that nothing reads: nothing else here has its name, nor does torch."""
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Constant()):
            return used[name] == 1 and name not in TORCHS
    return False


def without_unused_names(statement: ast.stmt, own: Counter[str]) -> ast.stmt | None:
    """An import from the package without the names that its module does not use; None if none is left.

    Any other statement as it is: what else an import does, nobody knows.
    """
    if not isinstance(statement, ast.ImportFrom) or top(statement.module or "") != PACKAGE:
        return statement
    used = [alias for alias in statement.names if own[alias.asname or alias.name]]
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
