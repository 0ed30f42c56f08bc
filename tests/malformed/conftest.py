"""One folder for the examples of a file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples: hypothesis takes no fixture of a single test."""
    return tmp_path_factory.mktemp("malformed")
