"""Python in a process of its own, since Triton decides when it is imported whether it interprets its kernels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from packaging.version import Version
from tools import unavailable


def compiled(*command: str | Path) -> str:
    """What Python says where Triton compiles its kernels."""
    return _said("0", *command)


def interpreted(*command: str | Path, numbers: bool = True) -> str:
    """What Python says where Triton interprets its kernels.

    `numbers`: these kernels count or branch by a number they have computed, an array of one number to the interpreter.
    Triton before 3.7 cannot make it a number with NumPy 2.4 or later. What is compiled is as it was.
    """
    triton = [each.version for each in importlib.metadata.distributions(name="triton")]
    if numbers and triton and Version(triton[0]) < Version("3.7") and Version(np.__version__) >= Version("2.4"):
        unavailable(f"Triton {triton[0]} does not interpret this beside NumPy {np.__version__}; it takes 2.3 or older")
    return _said("1", *command)


def all_pass(tests: Path, marked: str = "", numbers: bool = True) -> None:
    """Every test of a file, or what is marked so, passes where Triton interprets its kernels."""
    command: list[str | Path] = ["-m", "pytest", tests, "-p", "no:cacheprovider", "-m", marked]
    said = interpreted(*command, numbers=numbers)
    assert " passed" in said
    assert "skipped" not in said


def _said(interpret: str, *command: str | Path) -> str:
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    given = {**os.environ, "TRITON_INTERPRET": interpret}
    words = [sys.executable, *map(str, command)]
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
