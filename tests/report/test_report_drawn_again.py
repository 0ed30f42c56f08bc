"""What the page has from outside of capsbench/report is in the digest by which it is drawn anew."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from capsbench.files import write_json
from capsbench.pipeline import state
from capsbench.provenance import PACKAGE


def test_the_page_is_drawn_again_where_what_it_has_of_the_plans_changes() -> None:
    """capsbench.plan is not in the source of a stage, so what the report has of it is named by hand."""
    words = [path.read_text() for path in (PACKAGE / "report").rglob("*.py")]
    had = {name for text in words for name in re.findall(r"from capsbench\.plan(?:\.(\w+))? import", text)}
    assert had == set(state.PLAN_OF_REPORT)


@pytest.mark.parametrize(
    "file",
    [
        "capsbench/report/templates/report.css",
        "capsbench/plan/claims.py",
        "config/claims.yaml",
        "config/published.yaml",
    ],
)
def test_the_page_is_drawn_again_where_a_file_that_it_is_made_with_changes(
    tmp_path: Path, monkeypatch, file: str
) -> None:
    for folder in ("capsbench/report/templates", "capsbench/plan", "config"):
        shutil.copytree(PACKAGE.parent / folder, tmp_path / folder)
    monkeypatch.setattr(state, "PACKAGE", tmp_path / "capsbench")
    monkeypatch.setattr(state, "config_folder", lambda: tmp_path / "config")
    before = state.report_source()
    with (tmp_path / file).open("a") as stream:
        stream.write("# edited\n")
    assert state.report_source() != before


def test_the_page_is_drawn_again_where_more_sources_were_shown_to_be_one(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "same-bits.json"
    monkeypatch.setattr(state, "same_bits_file", lambda: path)
    before = state.report_source()
    write_json(path, {"changes": []})
    assert state.report_source() != before
