"""The code that docs/commands.md shows for Python runs, and gives what its comments say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from capsbench.models import count_parameters
from capsbench.routing.registry import ALGORITHMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_the_page_s_code_gives_what_its_comments_say() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)
    routed = made["routed"]
    assert made["votes"].shape == (2, 1152, 10, 16)
    assert routed.poses.shape == (2, 10, 16)
    assert routed.couplings.shape[:3] == (2, 1152, 10)
    assert routed.scores.shape == (2, 10)
    assert f"{count_parameters(made['model']):,} parameters" in code
    assert len(ALGORITHMS) == 12
    assert "twelve algorithms" in code
