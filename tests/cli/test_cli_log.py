"""A job's log: what it says goes there too, and a second try keeps what the first one said."""

from __future__ import annotations

import io
import re
from pathlib import Path

from places import REPOSITORY, Place

from capsbench.cli.log import Both


def test_a_second_try_keeps_what_the_first_one_said(tmp_path: Path) -> None:
    place = Place(tmp_path, REPOSITORY)
    log, said = place.folder / "logs/job.log", []
    for plan in ("first.yaml", "second.yaml", "third.yaml"):
        said.append(place.capsbench("--log", "logs/job.log", "plan", plan).err.strip())
        if plan == "second.yaml":
            log.unlink()  # as Snakemake does before each try
    first, again, second, once_more, third = log.read_text().splitlines()
    assert [first, second, third] == said
    assert first.startswith("capsbench: There is no file first.yaml")
    for line in (again, once_more):
        assert re.fullmatch(r"--- again, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", line)
    log.unlink()
    (log.parent / "job.tries.log").unlink()  # where there are no second names
    said.append(place.capsbench("--log", "logs/job.log", "plan", "first.yaml").err.strip())
    assert log.read_text().strip() == said[-1]


def test_a_log_has_no_colours_and_the_terminal_keeps_them() -> None:
    log, terminal = io.StringIO(), io.StringIO()
    Both(log, terminal).write("\x1b[1;31mmnist/cnn seed 0 failed\x1b[0m\n")
    assert log.getvalue() == "mnist/cnn seed 0 failed\n"
    assert terminal.getvalue() == "\x1b[1;31mmnist/cnn seed 0 failed\x1b[0m\n"
