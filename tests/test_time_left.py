"""Slow tests that there is no time for are not begun and are named; others run, whatever the time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONFTEST = """
import pytest
import time_left

pytest_addoption = time_left.add_option

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    time_left.pass_over(item)

def pytest_terminal_summary(terminalreporter):
    for line in time_left.summary(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)
"""
TESTS = """
import pytest

@pytest.fixture
def long():
    raise AssertionError("was set up")

@pytest.mark.slow
def test_slow(long): ...

def test_quick(): ...

@pytest.mark.skip(reason="another reason")
def test_other(): ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("time_left.py"), tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return tmp_path


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("until", [None, -60, 600])
def test_after_the_moment_a_slow_test_is_named_and_not_begun(folder: Path, until: int | None, workers: int) -> None:
    words = [] if until is None else [f"--slow-until={time.time() + until}"]
    command = [sys.executable, "-m", "pytest", "-n", str(workers), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    if until == -60:
        assert done.returncode == 0, done.stdout
        assert "1 passed, 2 skipped" in done.stdout
        assert "NOT RUN, for want of time: 1 slow tests." in done.stdout
        assert done.stdout.count("test_some.py::test_slow") == 1
        assert "test_other" not in done.stdout
    else:
        assert done.returncode == 1, done.stdout
        assert "was set up" in done.stdout
        assert "NOT RUN" not in done.stdout


def test_this_run_has_the_option_and_its_hooks(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("--slow-until", default="unknown") != "unknown"
