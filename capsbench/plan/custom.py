"""A routing or model outside the package, `my_file:my_routing`: whether its name leads anywhere, and its files.

Nothing of the user's is imported here: a plan is checked, and digests are taken, where there is no torch.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from capsbench.errors import PlanError, nearest
from capsbench.plan.routings import ROUTINGS, is_custom
from capsbench.provenance import PACKAGE


def check_custom(name: str, folder: Path, where: str) -> None:
    """Raise PlanError, beginning with `where`, unless the name of a routing or model outside leads to something.

    Its file must lie in `folder` (that of the plan) or on Python's path, be Python, and bind the name after the colon.
    Names of the package's own routings are none of this function's business.
    """
    if not is_custom(name):
        return
    module, _, attribute = name.partition(":")
    root = _root(module, folder)
    path = None if root is None else _file(module, root)
    if root is None or (path is None and _file(f"{module}.{attribute}", root) is None):
        missing = f"there is no {module.replace('.', '/')}.py in {folder} and no {module} on Python's path."
        raise PlanError(f"{where}: {missing}")
    try:
        custom_files(name, folder)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None
    if path is None or _file(f"{module}.{attribute}", root) is not None:
        return
    names = set(_bound(_parse(path).body))
    if attribute not in names and not names & {"*", "__getattr__"}:
        raise PlanError(f"{where}: {path.name} has no {attribute!r}{nearest(attribute, names)}")


def custom_files(name: str, folder: Path) -> dict[str, Path]:
    """The files that a routing or model outside is made of, by module: its own and those beside it that it imports.

    Beside it: in the plan's folder, or in that of a single file on Python's path; for a package there, and for what is
    installed, in itself alone. Empty if there is no such module. Raises PlanError naming the file and line where one is
    not Python.
    """
    module, _, attribute = name.partition(":")
    root = _root(module, folder)
    if root is None:
        return {}
    found: dict[str, Path] = {}
    waiting = [module, f"{module}.{attribute}"]
    top = module.partition(".")[0]
    itself = root != folder and (_is_installed(root) or not (root / f"{top}.py").is_file())
    while waiting:
        parts = waiting.pop().split(".")
        is_ours = (root / parts[0]).resolve() == PACKAGE  # the suite's own source has its place in a digest already
        if is_ours or (itself and parts[0] != top):
            continue
        for depth in range(1, len(parts) + 1):  # a package's __init__ runs before its modules
            part = ".".join(parts[:depth])
            path = _file(part, root)
            if path is not None and part not in found:
                found[part] = path
                waiting.extend(_imports(path, part))
    return found


def routings_named(files: Iterable[Path]) -> list[str]:
    """The suite's routings that files name in words, as `route("kmeans", votes)` does: no import leads there."""
    words = {node.value for path in files for node in ast.walk(_parse(path)) if isinstance(node, ast.Constant)}
    return sorted(ROUTINGS.keys() & words)


def _is_installed(root: Path) -> bool:
    """Whether a folder is where packages are installed, or that of Python's own modules."""
    own = Path(sysconfig.get_path("stdlib"))
    return root == own or bool({"site-packages", "dist-packages"} & set(root.parts))


def forget_others(name: str, folder: Path | None) -> None:
    """Let Python import the files of a routing or model outside anew where those of another plan have their names.

    Anew is from what a file says, as its digest is: Python's bytecode counts as the file's if size and second agree.
    """
    if folder is None or not is_custom(name):
        return
    for module, path in custom_files(name, folder).items():
        loaded = getattr(sys.modules.get(module), "__file__", None)
        if loaded is not None and Path(loaded).resolve() == path.resolve():
            continue
        with contextlib.suppress(OSError):  # there is none; or it is of somebody whose folder is not ours to write in
            Path(importlib.util.cache_from_source(str(path))).unlink()
        if loaded is None:
            continue
        not_the_user_s = (*sys.stdlib_module_names, "capsbench")
        if not _is_installed(Path(loaded).parent) and module.partition(".")[0] not in not_the_user_s:
            del sys.modules[module]


def _root(module: str, folder: Path) -> Path | None:
    """The folder in which Python looks for `module`: the plan's, or one on its path; None where it finds nothing."""
    top = module.partition(".")[0]
    if _file(top, folder) is not None:
        return folder
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a module without a spec, such as __main__
        spec = None
    if spec is not None and spec.origin is not None and spec.has_location:
        path = Path(spec.origin)
        return path.parent.parent if path.stem == "__init__" else path.parent
    return folder if (folder / top).is_dir() else None  # a package without __init__.py


def _file(module: str, root: Path) -> Path | None:
    """The source file of a module under `root`, if it has one."""
    base = root.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def _parse(path: Path) -> ast.Module:
    """A file's syntax tree. Raises PlanError where it cannot be read or is not Python."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise PlanError(f"{path}{line}: not Python: {error.msg}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} cannot be read as Python: {error}.") from None


def _imports(path: Path, name: str) -> Iterator[str]:
    """The modules that a file imports (and names that may be modules), relative ones as Python resolves them."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ([base] if base else [])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements bind, also under `if`, `try` and `with`, but not inside functions and classes."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from _bound(handler.body)
            nodes = ast.walk(statement)
            yield from (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
