"""What no file's time tells: a report of an edit that was taken back, and files that are dated ahead of the clock."""

from __future__ import annotations

import os
import time
from pathlib import Path

from places import Place

from capsbench.files import read_json

DRAW = "Draw tables, figures and the report"
ABOUT = "A few steps"
DAY = 86_400


def edit(place: Place, words: str) -> None:
    plan = place.folder / "tiny.yaml"
    text = plan.read_text()
    assert ABOUT in text
    plan.write_text(text.replace(ABOUT, words))


def dated_ahead(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (time.time() + DAY, time.time() + DAY))


def test_the_report_by_hand_of_an_edit_that_is_taken_back_is_drawn_again(done) -> None:
    plan, page = (done.folder / "tiny.yaml").read_text(), (done.results / "report.html").read_bytes()
    edit(done, "Edited")
    assert done.capsbench("report", "tiny.yaml").code == 0
    assert b"Edited" in (done.results / "report.html").read_bytes()
    (done.folder / "tiny.yaml").write_text(plan)
    said = done.snakemake("--configfile", "tiny.yaml")
    assert (said.code, said.jobs) == (0, {DRAW}), said.text
    assert (done.results / "report.html").read_bytes() == page
    assert done.capsbench("report", "tiny.yaml").code == 0  # the same once more
    assert done.would_run() == set()


def test_a_plan_json_of_another_version_of_the_plan_is_written_again(done) -> None:
    """As `bring` and `work` write it, which draw nothing."""
    plan = done.results / "plan.json"
    plan.write_text(plan.read_text().replace(ABOUT, "Edited"))
    assert done.would_run() == {DRAW}


def test_a_promise_from_the_future_stops_no_report(done) -> None:
    cells = done.results / "cells"
    promises = [*cells.rglob("evaluated.json"), cells / "data.json", cells / "report.json"]
    assert len(promises) == 5
    dated_ahead(*promises)
    edit(done, "Edited")
    said = done.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert b"Edited" in (done.results / "report.html").read_bytes()
    assert max(path.stat().st_mtime for path in cells.rglob("*.json")) <= time.time()
    assert done.would_run() == set()


def test_a_report_from_the_future_hides_no_edit(done) -> None:
    drawn = [done.results / name for name in ("report.html", "tables", "figures", "cells/reported.json")]
    dated_ahead(*drawn, *(path for folder in drawn[1:3] for path in folder.rglob("*")))
    edit(done, "Edited")
    assert done.would_run() == {DRAW}


def test_an_account_without_a_home_runs_too(done) -> None:
    """Snakemake keeps copies of sources below it; as root no folder is closed, but a file is no folder."""
    home = done.folder / "home"
    home.write_text("no folder")
    edit(done, "Edited")
    surroundings = {"HOME": str(home), "XDG_CACHE_HOME": "", "CAPSBENCH_FORKS": "off"}
    said = done.capsbench("run", "tiny.yaml", **surroundings)
    assert (said.code, said.jobs) == (3, {DRAW}), said.text  # one of its runs diverges
    assert "Edited" in str(read_json(done.results / "plan.json")["about"])
    assert (done.folder / ".snakemake" / "cache").is_dir()
