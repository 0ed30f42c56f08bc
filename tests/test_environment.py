"""pyproject.toml, requirements.lock and environment.yml describe one environment."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch", "snakemake": "snakemake-minimal"}


def declared(*extras: str) -> list[Requirement]:
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def locked() -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", (ROOT / "requirements.lock").read_text(), re.M):
        found.setdefault(name.lower(), []).append(Version(version))
    return found


def test_the_lock_holds_every_declared_requirement() -> None:
    lock = locked()
    for requirement in declared(*PROJECT["optional-dependencies"]):
        versions = lock[requirement.name.lower()]
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_every_locked_package_has_hashes_and_no_registry_is_named() -> None:
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert len(blocks) > 50
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)
    assert "http" not in text
    assert "index-url" not in text


def test_conda_s_environment_has_the_same_requirements() -> None:
    lines = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = {Requirement(line).name: Requirement(line).specifier for line in lines}
    for requirement in declared("slurm"):
        name = CONDA_NAMES.get(requirement.name, requirement.name)
        assert conda.pop(name) == requirement.specifier, name
    assert conda.pop("python") == Requirement(f"python{PROJECT['requires-python']}").specifier
    assert set(conda) == {"pip", "git"}


def test_torch_is_not_held_back() -> None:
    torch = next(r for r in declared() if r.name == "torch")
    assert torch.specifier.contains(Version("2.11"))
    assert not torch.specifier.contains(Version("2.10"))
