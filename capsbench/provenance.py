"""Where a number comes from: digests of configs and sources, versions, machine, commit."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import Any

from capsbench import __version__
from capsbench.errors import ResourceError
from capsbench.known_sources import Found, KnownSources

PACKAGE = Path(__file__).resolve().parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
RECORDED = (
    "torch",
    "triton",
    "torchvision",
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "torchmetrics",
    "safetensors",
    "snakemake",
)


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value, the same whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# ---- source --------------------------------------------------------------------------------------------------------


_fields: dict[type[ast.AST], list[tuple[str, str]]] = {}  # of a kind of node, in their order: name, and how it begins


def _without_words(node: Any, imports: list[ast.Import | ast.ImportFrom]) -> str:
    """An AST as JSON, without docstrings and positions: what the code does, whatever its comments say.

    Its nodes that import are added to `imports`. Written out here because `ast.dump` differs between Python versions,
    and results are carried between them.
    """
    if isinstance(node, list):
        return f"[{','.join([_without_words(item, imports) for item in node])}]"
    if not isinstance(node, ast.AST):
        return quoted(repr(node))
    kind = type(node)
    if kind not in _fields:
        named = sorted(name for name in kind._fields if name not in ("kind", "type_comment"))
        _fields[kind] = [(name, f"[{quoted(name)},") for name in named]
    if isinstance(node, ast.Import | ast.ImportFrom):
        imports.append(node)
    parts = [quoted(kind.__name__)]
    for name, begin in _fields[kind]:
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            value = value[1:]
        if value is not None and value != []:
            parts.append(f"{begin}{_without_words(value, imports)}]")
    return f"[{','.join(parts)}]"


_read: dict[Path, tuple[int, int]] = {}  # the package's files whose digest is known: their time and size then
_known = KnownSources(PACKAGE, rules=Path(__file__))


def _look(path: Path) -> Found:
    """What is in a file of the package; parsed only where no process has parsed these bytes."""
    _read[path] = _stamp(path)
    source = path.read_bytes()
    found = _known.of(path, source)
    if found is None:
        found = _parse(path, source)
        _known.add(path, source, found)
    return found


def _parse(path: Path, source: bytes) -> Found:
    """The digest of one source file and the capsbench modules it imports."""
    nodes: list[ast.Import | ast.ImportFrom] = []
    text = _without_words(ast.parse(source, filename=str(path)), nodes)
    imports: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif node.module and node.level == 0:
            imports.add(node.module)
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
    ours = tuple(sorted(name for name in imports if name.split(".")[0] == PACKAGE.name))
    return Found(hashlib.sha256(text.encode()).hexdigest(), ours)


def _stamp(path: Path) -> tuple[int, int]:
    """When a file was last written, and its size."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


_looked_at = functools.cache(_look)  # the package does not change while it runs; a user's file may


@functools.cache
def _file_of(module: str) -> Path | None:
    """The file of a capsbench module, or None (an imported name that is no module)."""
    base = PACKAGE.parent.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def import_source(roots: Iterable[str]) -> None:
    """Import all that `roots` (modules of capsbench) import, directly or not: what runs later is what is there now.

    A run takes hours, and Python reads a module when it is first asked for. A manifest names the source as it was read
    when the process began, so a file that was edited since would be run under another's digest.

    Raises:
        ResourceError: a file was written since its digest was taken.
    """
    missing = sorted(_closure(roots, {})[1] - sys.modules.keys())
    for name in missing:
        with contextlib.suppress(Exception):  # a library that is not here, or is broken: who needs it says so
            importlib.import_module(name)
    changed = [path for path, stamp in _read.items() if not path.is_file() or _stamp(path) != stamp]
    if changed and any(name in sys.modules for name in missing):  # else all had been imported before
        raise ResourceError(f"{changed[0]} was changed after this command began; say it again.")


# What these do to a run is in its config; they can grow without a run being trained again. How many steps its
# epochs are, and PUBLISHED_STEPS, by which its rate falls, are not in it: tests/plan/test_plans.py holds both.
NOT_SOURCE = ("capsbench.plan", "capsbench.provenance", "capsbench.files", "capsbench.errors")


def source_digest(roots: Iterable[str], outside: Mapping[str, Path] | None = None) -> str:
    """Digest of the source that `roots` (modules of capsbench) and files `outside`, by name, import, directly or not.

    Comments, docstrings and layout do not count, nor do the modules of NOT_SOURCE. A module outside this closure can
    change without changing the digest.
    """
    return _package_digest(tuple(roots)) if not outside else _closure_digest(roots, outside)


@functools.cache
def _package_digest(roots: tuple[str, ...]) -> str:
    """Once a process for the same roots, since the package does not change meanwhile: a plan asks for each run."""
    return _closure_digest(roots, {})


def _closure_digest(roots: Iterable[str], outside: Mapping[str, Path]) -> str:
    return digest_of(_closure(roots, outside)[0])


def _closure(roots: Iterable[str], outside: Mapping[str, Path]) -> tuple[dict[str, str], set[str]]:
    """The digests of the files that count, by name, and the names of the package's modules among them."""
    files: dict[str, str] = {}
    modules: set[str] = set()
    waiting = list(roots)
    for name, file in outside.items():
        files[f"outside {name}"], imports = _parse(file, file.read_bytes())
        waiting.extend(imports)
    while waiting:
        module = waiting.pop()
        path = _file_of(module)
        if path is None or f"{module}.".startswith(tuple(f"{other}." for other in NOT_SOURCE)):
            continue
        name = path.relative_to(PACKAGE.parent).as_posix()
        if name in files:
            continue
        files[name], imports = _looked_at(path)
        modules.add(module)
        parents = [module.rsplit(".", depth)[0] for depth in range(1, module.count(".") + 1)]  # their __init__ runs too
        waiting.extend([*imports, *parents])
    _known.keep()
    return files, modules


# ---- machine -------------------------------------------------------------------------------------------------------


# With one of these torch takes other instructions, or fewer threads than it counts, and comes to other bits.
ALTERING = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "ONEDNN_MAX_CPU_ISA")
SOURCE = (":(top)", ":(top,exclude)results")  # of the repository, as git names it


def versions() -> dict[str, str]:
    """Versions of Python, of capsbench and of the packages that can change a number."""
    found = {"capsbench": __version__, "python": platform.python_version()}
    for name in RECORDED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _ask(*command: str, folder: Path | None = None) -> str | None:
    """What a program prints, or None if it is not there, says no, or takes over 20 s."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):  # a driver or a disk that hangs must not cost a finished training
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def git(*words: str) -> list[str]:
    """A command of git's that answers about this clone whoever owns it: a group may share one, and its code runs here.

    Of a repository in which the clone only lies git goes on asking whose it is.
    """
    return ["git", "-c", f"safe.directory={PACKAGE.parent}", *words]


def tree(root: Path) -> dict[str, str]:
    """SHA-256 of every file of the package and its plans under `root`, by name: what a packed commit must still be."""
    files = [path for part in ("capsbench", "config") for path in (root / part).rglob("*") if path.is_file()]
    kept = sorted(path for path in files if path.parent.name != "__pycache__")
    return {path.relative_to(root).as_posix(): digest_of_file(path) for path in kept}


def is_packed() -> bool:
    """Whether this clone was unpacked from an archive of `capsbench pack`."""
    return _packed() is not None


def _packed() -> dict[str, Any] | None:
    """The state that `capsbench pack` wrote beside the package, dirty where a file is no more as it was packed."""
    try:
        said = json.loads((PACKAGE.parent / "PACKED.json").read_text())
        return {"commit": said["commit"], "dirty": said["files"] != tree(PACKAGE.parent)}
    except (OSError, ValueError, KeyError, TypeError):
        return None


@functools.cache
def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the clone (or packed commit) that capsbench runs from; both null outside one.

    Results that are in the repository do not count: a report drawn anew changes them, and no number. A file of the
    package that git does not know does. Where git does not answer, as on a disk that hangs, dirty is null.
    """
    commit = _ask(*git("rev-parse", "HEAD"), folder=PACKAGE)
    tracked = _ask(*git("ls-files", "--error-unmatch", "provenance.py"), folder=PACKAGE)
    if commit is None or tracked is None:
        return _packed() or {"commit": None, "dirty": None}
    ask = git("status", "--porcelain")
    changed = _ask(*ask, "--untracked-files=no", "--", *SOURCE, folder=PACKAGE)
    unknown = _ask(*ask, "--untracked-files=all", "--", ".", folder=PACKAGE)
    known = changed is not None and unknown is not None
    return {"commit": commit, "dirty": bool(changed or unknown) if known else None}


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _gpu(identity: str | None) -> tuple[str | None, str | None]:
    """Name and driver of the GPU of that UUID or number, as `nvidia-smi` says; of the first where none is known."""
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    answer = (_ask(*query, f"--id={identity}") if identity else None) or _ask(*query)
    if not answer:
        return None, None
    name, driver = (part.strip() for part in answer.splitlines()[0].split(",")[:2])
    return name, driver


def _gpu_at_work() -> str | None:
    """The UUID of the GPU that this process works on, for a machine may have several types; before, what it may use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return first if first not in ("", "-1") else None


def processor(cpuinfo: Path) -> str:
    """Name of the processor that the file describes, as Linux's /proc/cpuinfo does; what Python knows where it is none.

    With family and model number where it has them: a virtual machine may call every generation "AMD EPYC", and two of
    them trained the same models at rates a factor of two apart.
    """
    said: dict[str, str] = {}
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []:
        key, _, value = line.partition(":")
        said.setdefault(key.strip(), value.strip())  # of the first core
    name = said.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in said and "model" in said:
        return f"{name} (family {said['cpu family']}, model {said['model']})"
    return name


def machine() -> dict[str, Any]:
    """Processor, cores and GPU of this machine, and its variables that alter bits. No host name: it alters none."""
    altering = [f"{name}={os.environ[name]}" for name in ALTERING if os.environ.get(name)]
    gpu, driver = _gpu(_gpu_at_work())
    torch = sys.modules.get("torch")
    return {
        "processor": processor(Path("/proc/cpuinfo")),
        "cores": cores(),
        "gpu": gpu,
        "driver": driver,
        "cuda": torch.version.cuda if torch is not None and gpu else None,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **({"environment": " ".join(altering)} if altering else {}),
    }
