"""A job's log: what it says goes there too, and a second try keeps what the first one said."""

from __future__ import annotations

import io
import re
from pathlib import Path

from places import REPOSITORY, Place

from capsbench.cli.log import Both


def test_a_second_try_keeps_what_the_first_one_said(tmp_path: Path) -> None:
    place = Place(tmp_path, REPOSITORY)
    said = [place.capsbench("--log", "logs/job.log", "plan", plan).err for plan in ("first.yaml", "second.yaml")]
    first, again, second = (place.folder / "logs/job.log").read_text().splitlines()
    assert [first, second] == [text.strip() for text in said]
    assert first.startswith("capsbench: There is no file first.yaml")
    assert re.fullmatch(r"--- again, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", again)


def test_a_log_has_no_colours_and_the_terminal_keeps_them() -> None:
    log, terminal = io.StringIO(), io.StringIO()
    Both(log, terminal).write("\x1b[1;31mmnist/cnn seed 0 failed\x1b[0m\n")
    assert log.getvalue() == "mnist/cnn seed 0 failed\n"
    assert terminal.getvalue() == "\x1b[1;31mmnist/cnn seed 0 failed\x1b[0m\n"
