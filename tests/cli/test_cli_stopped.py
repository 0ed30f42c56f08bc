"""Ctrl-C in a command: its own exit code, one sentence, no traceback."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from places import REPOSITORY, Place


@pytest.mark.timeout(120)
def test_ctrl_c_in_a_command_is_one_sentence_and_its_own_exit_code(tmp_path: Path) -> None:
    place = Place(tmp_path, REPOSITORY)
    os.mkfifo(place.folder / "endless.yaml")
    process = place.start("-m", "capsbench", "plan", "endless.yaml")
    with (place.folder / "endless.yaml").open("w"):  # opens once the command has: from then on it waits for a word
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "capsbench: stopped.\n")
