"""The console of the commands where nobody reads it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from capsbench.errors import UNREAD
from capsbench.plan import config_folder


@pytest.mark.parametrize("words", [["plan", "config/quick.yaml"], ["variants"], ["doctor"]])
def test_a_reader_that_is_gone_has_a_code_of_its_own(words: list[str]) -> None:
    """Not 1, which says that a run differs or that something is wrong."""
    command = [sys.executable, "-m", "capsbench", *words]
    unread, to = os.pipe()
    os.close(unread)  # before the command begins: one that is faster than its reader's leave would find it still there
    try:
        said = subprocess.run(command, cwd=config_folder().parent, text=True, stdout=to, stderr=subprocess.PIPE)
    finally:
        os.close(to)
    assert said.stderr == ""
    assert said.returncode == UNREAD == 141
