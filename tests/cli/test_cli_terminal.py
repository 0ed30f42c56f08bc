"""The console of the commands where nobody reads it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from capsbench.errors import UNREAD
from capsbench.plan import config_folder


@pytest.mark.parametrize("words", [["plan", "config/quick.yaml"], ["variants"], ["doctor"]])
def test_a_reader_that_is_gone_has_a_code_of_its_own(words: list[str]) -> None:
    """Not 1, which says that a run differs or that something is wrong."""
    command = [sys.executable, "-m", "capsbench", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=config_folder().parent, text=True, **pipes)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == UNREAD == 141
