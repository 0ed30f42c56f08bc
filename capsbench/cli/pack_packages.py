"""The packages that `capsbench pack` carries: what `capsbench work` needs and the other machine has not."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from capsbench.errors import CapsbenchError, ResourceError
from capsbench.provenance import PACKAGE

LOCK = PACKAGE.parent / "requirements.lock"
# What `capsbench work` imports beside PyTorch. Snakemake and what only draws the report stay at home.
WORK = ("pydantic", "typer", "rich", "pyyaml", "safetensors", "pandas", "scipy", "scikit-learn", "torchmetrics")
PYTORCH = ("torch", "torchvision")
CARRIED = {"typing-extensions"}  # comes with PyTorch, but may be older there than pydantic wants


def missing_packages(have: Mapping[str, str | None], python: str) -> list[str]:
    """What `capsbench work` needs, and what is packed needs in turn, that neither comes with PyTorch nor is in `have`.

    Args:
        have: version by name, None where it is not known; then it is believed to do, unless it is one of CARRIED. What
            a package needs that is there is there as well, in the version that goes with it.
        python: the other machine's, such as 3.12.
    """
    there = {str(canonicalize_name(name)): version for name, version in have.items()}
    with_pytorch = _with_pytorch(python) - CARRIED
    wanted = {name: SpecifierSet() for name in WORK}
    wanted |= {name: versions for name, versions in _needs("capsbench", python) if name in wanted}
    packed: set[str] = set()
    waiting = list(WORK)
    while waiting:
        name = waiting.pop()
        if name in packed | with_pytorch or (name in there and _will_do(name, there[name], wanted[name])):
            continue
        packed.add(name)
        for other, versions in _needs(name, python):  # asked again where it was there, for these versions too
            wanted[other] = wanted.get(other, SpecifierSet()) & versions
            waiting.append(other)
    return sorted(packed)


def listed(path: Path) -> dict[str, str | None]:
    """The packages that a file names, one a line, with their versions where it says them. Raises CapsbenchError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CapsbenchError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CapsbenchError(f"{path} is not a list of names in UTF-8, one per line.") from None
    found: dict[str, str | None] = {}
    for line in (line.strip() for line in lines if line.strip() and line[0] != "#"):
        name, _, version = line.partition("==")
        found[re.split(r"[=<>!~ @;\[]", name, maxsplit=1)[0]] = version.split(";")[0].strip() or None
    return found


def fetch(names: list[str], site: Path, python: str) -> None:
    """Put packages as the lock has them, hashes checked, for 64-bit x86 Linux into a folder. Raises ResourceError.

    By uv where it is there, else, or where it fails, by pip, whose settings may name an index that uv does not know.
    """
    if not names:
        site.mkdir()
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("\n".join(_locked(names, python)) + "\n")
        requirements.flush()
        said = ["--target", str(site), "--python-version", python, "--no-deps", "--require-hashes"]
        said += ["--only-binary", ":all:", "-r", requirements.name]
        systems = [word for n in (28, 17) for word in ("--platform", f"manylinux_2_{n}_x86_64")]
        systems += ["--platform", "manylinux2014_x86_64", "--implementation", "cp"]
        systems += ["--ignore-requires-python"]  # it would ask its own Python, and the lock has chosen for that one
        commands = [[sys.executable, "-m", "pip", "install", "--quiet", *systems, *said]]
        if uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)):
            commands.insert(0, [uv, "pip", "install", "--quiet", "--python-platform", "x86_64-manylinux_2_28", *said])
        reasons = []
        for command in commands:
            site.mkdir()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
            reasons.append(" ".join(done.stderr.split())[-400:])
            shutil.rmtree(site)
        else:
            raise ResourceError(f"The packages for Python {python} could not be fetched: {'; '.join(reasons)}")
    for tests in [path for path in site.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests, ignore_errors=True)  # a third of some packages


def _locked(names: Iterable[str], python: str) -> list[str]:
    """The lock's lines for packages, of several versions the one for that Python; pip would look at its own Python."""
    found = []
    for block in re.split(r"\n(?=\S)", LOCK.read_text()):
        first, _, rest = block.partition("\n")
        try:
            need = Requirement(first.rstrip("\\ "))
        except ValueError:  # a comment
            continue
        if canonicalize_name(need.name) in names and _applies(need, python):
            found.append(f"{need.name}{need.specifier} \\\n{rest}")
    return found


def _with_pytorch(python: str) -> set[str]:
    """PyTorch and all that it brings."""
    found: set[str] = set()
    waiting = [*PYTORCH]
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += [other for other, _ in _needs(name, python)]
    return found


def _needs(name: str, python: str) -> list[tuple[str, SpecifierSet]]:
    """What a package needs on that Python, and which versions; nothing where the package itself is not here."""
    try:
        needs = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    except importlib.metadata.PackageNotFoundError:  # for another system or Python than this
        return []
    return [(canonicalize_name(need.name), need.specifier) for need in needs if _applies(need, python)]


def _applies(need: Requirement, python: str) -> bool:
    where = {
        "extra": "",
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    return need.marker is None or need.marker.evaluate(where)


def _will_do(name: str, version: str | None, wanted: SpecifierSet) -> bool:
    """Whether a version that is there is one of those wanted."""
    if version is None:
        return name not in CARRIED
    try:
        return wanted.contains(Version(version), prereleases=True)
    except InvalidVersion:  # a folder or an address: somebody's own
        return True
