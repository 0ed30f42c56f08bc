"""A real one-node SLURM for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_node import PACKAGES, OneNode, missing_programs
from places import copy_source
from tools import unavailable


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneNode]:
    """A started cluster. A machine that cannot have one skips with the reason (tools.unavailable)."""
    if missing := missing_programs():
        unavailable(f"no SLURM ({', '.join(missing)}) on this machine, apt-get install {PACKAGES}")
    if os.geteuid() != 0:
        unavailable("only root can start SLURM's daemons")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    node = OneNode(folder)
    try:
        node.start()
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source."""
    return copy_source(tmp_path_factory.mktemp("source") / "clone")
