"""The packages that a pack carries, and the Python that they are for."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from rich.console import Console

from capsbench.cli import pack as packing
from capsbench.cli import pack_packages
from capsbench.cli.pack import FOR_ONE_PYTHON, PYTHONS, pack
from capsbench.cli.pack_packages import _locked, fetch, listed, missing_packages
from capsbench.data.raw import FILES
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError, DataError, ResourceError
from capsbench.plan import config_folder


def test_packages_that_come_with_pytorch_or_are_there_are_not_packed(tmp_path: Path) -> None:
    needed = missing_packages({}, "3.12")
    assert {"pydantic", "pydantic-core", "typer", "torchmetrics", "typing-extensions"} <= set(needed)
    assert not {"torch", "numpy", "snakemake"} & set(needed)
    have = tmp_path / "have.txt"
    have.write_text(
        "# of a machine\nPydantic==2.12.5\ntyper\nrich==10.0.0\ntyping_extensions\nPyYAML @ file:///a/folder\nscipy>=1\n"
        "torchmetrics==1.6.0 ; python_version > '3'\n"
    )
    assert listed(have) == {
        "Pydantic": "2.12.5", "typer": None, "rich": "10.0.0", "typing_extensions": None, "PyYAML": None, "scipy": None,
        "torchmetrics": "1.6.0",
    }  # fmt: skip
    packed = set(missing_packages(listed(have), "3.12"))
    assert not {"pydantic", "typer", "pyyaml", "scipy"} & packed
    assert {"rich", "typing-extensions"} <= packed  # too old; perhaps too old
    assert "typing-extensions" not in missing_packages({"typing_extensions": "4.99"}, "3.12")
    old = missing_packages({"pydantic": "1.10.0", "pydantic-core": "2.33.2"}, "3.12")
    assert {"pydantic", "pydantic-core"} <= set(old)  # the one that is packed wants another core than is there
    fitting = missing_packages({"pydantic": "2.11.7", "pydantic-core": "2.33.2"}, "3.12")
    assert not {"pydantic", "pydantic-core"} & set(fitting)  # and the one that is there wants its own
    for version in ("99.0rc1", "built-by-hand"):  # as an image of NVIDIA's may have it; or nobody knows
        assert "scipy" not in missing_packages({"scipy": version}, "3.12"), version


def test_a_package_that_is_there_is_to_do_for_all_that_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {"typer": [("click", ">=8"), ("shellingham", "")], "shellingham": [("click", ">=7")]}
    monkeypatch.setattr(
        pack_packages, "_needs", lambda name, _: [(of, SpecifierSet(which)) for of, which in needs.get(name, [])]
    )
    assert "click" in missing_packages({"click": "7.5"}, "3.12")
    assert "click" not in missing_packages({"click": "8.1"}, "3.12")


def test_of_two_locked_versions_the_other_machine_s_python_decides() -> None:
    versions = {python: _locked(["scipy"], python) for python in ("3.11", "3.12", "3.13")}
    assert {len(found) for found in versions.values()} == {1}
    first = {python: found[0].splitlines()[0] for python, found in versions.items()}
    assert first["3.11"] != first["3.12"] == first["3.13"]
    assert re.fullmatch(r"scipy==[\d.]+ \\", first["3.12"])  # without its marker, which pip would ask of its own Python


def test_packages_for_another_python_come_by_uv_and_where_that_fails_by_pip(tmp_path: Path, monkeypatch) -> None:
    other = next(python for python in PYTHONS if python != f"{sys.version_info.major}.{sys.version_info.minor}")
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        about = f"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\nRequires-Python: =={other}.*\nRequires-Dist: none\n"
        archive.writestr("tiny-1.0.dist-info/METADATA", about)
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"tiny==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    monkeypatch.setattr(pack_packages, "LOCK", lock)
    for name in ("UV_OFFLINE", "UV_NO_INDEX", "PIP_NO_INDEX"):  # neither asks the network
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PATH", "")  # uv is found beside Python too
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, str(tmp_path))
        fetch(["tiny"], tmp_path / name, other)
        assert (tmp_path / name / "tiny.py").is_file()
        monkeypatch.delenv(name)
    with pytest.raises(
        ResourceError, match=rf"^The packages for Python {re.escape(other)} could not be fetched: .*tiny"
    ):
        fetch(["tiny"], tmp_path / "neither", other)
    assert not (tmp_path / "neither").exists()
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, str(tmp_path))
    lock.write_text(f"tiny==1.0 \\\n    --hash=sha256:{64 * '0'}\n")  # what lies there is not what was locked
    with pytest.raises(ResourceError, match=r"could not be fetched: .*Hash mismatch .*; .*tampered"):
        fetch(["tiny"], tmp_path / "another", other)


def test_a_pack_for_one_python_refuses_another_in_a_sentence(tmp_path: Path) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python, code in ((here, 0), ("3.99", 2)):
        script = tmp_path / "run.sh"
        script.write_text(f'#!/bin/sh\npython="{sys.executable}"\n{FOR_ONE_PYTHON.format(python)}echo goes on\n')
        said = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout) == (code, "" if code else "goes on\n")
        assert (f"is not Python {python}, which this pack is for; name one with PYTHON=" in said.stderr) == bool(code)


@pytest.mark.parametrize("python", ["3", "3.12.4", "python3.12", "3.10", "3.14"])
def test_a_python_that_capsbench_does_not_run_on_is_a_sentence(python: str, tmp_path: Path) -> None:
    with pytest.raises(CapsbenchError, match=r"--python must be 3\.11, 3\.12 or 3\.13, not "):
        pack(Console(quiet=True), [], tmp_path / "pack.tar.gz", python, None)


@pytest.mark.parametrize(("commit", "dirty"), [(None, None), ("a", True), ("a", None)])
def test_only_a_commit_that_is_known_to_be_clean_is_packed(
    commit: str | None, dirty: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "is_packed", lambda: False)
    monkeypatch.setattr(packing, "git_state", lambda: {"commit": commit, "dirty": dirty})
    with pytest.raises(CapsbenchError, match="Only a clean commit is packed"):
        pack(Console(quiet=True), [], tmp_path / "pack.tar.gz", "3.12", None)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """This clone as if nothing were changed in it, and packages from nowhere."""
    monkeypatch.setattr(packing, "git_state", lambda: {"commit": "a", "dirty": False})
    monkeypatch.setattr(packing, "fetch", lambda names, site, _: site.mkdir())


@pytest.mark.usefixtures("clean")
def test_altered_data_are_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in FILES.items():
        (tmp_path / name).write_bytes(bytes(size))
    monkeypatch.setenv("CAPSBENCH_DATA", str(tmp_path))
    with pytest.raises(DataError, match="is altered: its SHA-256 is"):
        pack(Console(quiet=True), [config_folder() / "smoke.yaml"], tmp_path / "pack.tar.gz", "3.12", None)
    assert not (tmp_path / "pack.tar.gz").exists()


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("needs_packages", [True, False])
def test_a_pack_with_packages_is_for_one_python(
    needs_packages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "find_source", lambda _: DataSource("mnist", tmp_path, "MNIST", "plan"))
    monkeypatch.setattr(packing, "verify", lambda _: {})
    monkeypatch.setattr(packing, "missing_packages", lambda *_: ["rich"] * needs_packages)
    pack(Console(quiet=True), [config_folder() / "smoke.yaml"], tmp_path / "pack.tar.gz", "3.12", None)
    with tarfile.open(tmp_path / "pack.tar.gz") as stored:
        script = stored.extractfile("capsbench-pack/run.sh")
        assert script is not None
        assert ("is not Python 3.12, which this pack is for" in script.read().decode()) is needs_packages
