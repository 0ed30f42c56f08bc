"""Slow tests that a slow machine has no time for: not begun after a moment that .ci/run says, and named at the end."""

from __future__ import annotations

import time
from typing import Any

import pytest

OPTION = "--slow-until"
REASON = "no time left for a slow test"


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=float, metavar="SECONDS", help="begin no slow test after this moment, as `date +%%s`")


def pass_over(item: pytest.Item) -> None:
    """Skip a slow test once its time has come; one that has begun is left to end."""
    until = item.config.getoption(OPTION)
    if until is not None and "slow" in item.keywords and time.time() >= until:
        pytest.skip(REASON)


def summary(skipped: list[Any]) -> list[str]:
    """What to say of these reports of skipped tests: nothing where none was for want of time."""
    left_out = [report.nodeid for report in skipped if REASON in str(report.longrepr)]
    if not left_out:
        return []
    return [f"NOT RUN, for want of time: {len(left_out)} slow tests. `make test-slow` runs them all.", *left_out]
