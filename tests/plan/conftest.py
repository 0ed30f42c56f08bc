"""A plan as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_plan import PLAN


@pytest.fixture
def plan(tmp_path: Path):
    def write(*replacements: tuple[str, str], text: str = PLAN) -> Path:
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return path

    return write
