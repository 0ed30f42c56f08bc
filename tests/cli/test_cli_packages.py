"""The packages that a pack carries, and the Python that they are for."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from capsbench.cli import pack_packages
from capsbench.cli.pack import FOR_ONE_PYTHON, PYTHONS, pack
from capsbench.cli.pack_packages import _locked, fetch, listed, missing_packages
from capsbench.errors import CapsbenchError, ResourceError


def test_packages_that_come_with_pytorch_or_are_there_are_not_packed(tmp_path: Path) -> None:
    needed = missing_packages({}, "3.12")
    assert {"pydantic", "pydantic-core", "typer", "torchmetrics", "typing-extensions"} <= set(needed)
    assert not {"torch", "numpy", "snakemake"} & set(needed)
    have = tmp_path / "have.txt"
    have.write_text(
        "# of a machine\nPydantic==2.12.5\ntyper\nrich==10.0.0\ntyping_extensions\nPyYAML @ file:///a/folder\nscipy>=1\n"
    )
    assert listed(have) == {
        "Pydantic": "2.12.5", "typer": None, "rich": "10.0.0", "typing_extensions": None, "PyYAML": None, "scipy": None
    }  # fmt: skip
    packed = set(missing_packages(listed(have), "3.12"))
    assert not {"pydantic", "typer", "pyyaml", "scipy"} & packed
    assert {"rich", "typing-extensions"} <= packed  # too old; perhaps too old
    assert "typing-extensions" not in missing_packages({"typing_extensions": "4.99"}, "3.12")
    old = missing_packages({"pydantic": "1.10.0", "pydantic-core": "2.33.2"}, "3.12")
    assert {"pydantic", "pydantic-core"} <= set(old)  # the one that is packed wants another core than is there
    fitting = missing_packages({"pydantic": "2.11.7", "pydantic-core": "2.33.2"}, "3.12")
    assert not {"pydantic", "pydantic-core"} & set(fitting)  # and the one that is there wants its own


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
        about = f"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\nRequires-Python: =={other}.*\n"
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
