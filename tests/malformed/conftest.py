"""One folder for the examples of a file, and the count at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from malformed import COUNTS, SEED


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples: hypothesis takes no fixture of a single test."""
    return tmp_path_factory.mktemp("malformed")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if COUNTS:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(COUNTS.items()))
        terminalreporter.write_line(f"malformed inputs: {COUNTS.total():,} with seed {SEED} ({kinds})")
