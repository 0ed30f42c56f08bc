"""What a killed process left of a file is removed once it is old; what another is still writing is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

from capsbench.files import DAY, write_json


def test_what_was_left_half_written_goes_when_it_is_old(tmp_path: Path) -> None:
    old, fresh, other = (tmp_path / f".{name}.abcdefg{k}" for k, name in enumerate(["a.json", "a.json", "b.json"]))
    for path in (old, fresh, other):
        path.touch()
    for path in (old, other):
        os.utime(path, times=(time.time() - 2 * DAY,) * 2)
    write_json(tmp_path / "a.json", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.json.abcdefg1", ".b.json.abcdefg2", "a.json"]
