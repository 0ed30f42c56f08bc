"""What code from outside raised, in one sentence that names the user's line."""

from __future__ import annotations

import traceback
from pathlib import Path

from capsbench.provenance import PACKAGE

WORDS = 400  # of an error's characters: torch's may name every operator that there is


def what_was_raised(error: BaseException, folder: Path) -> str:
    """The error in one sentence, with the last line in the user's folder that it came through."""
    words = " ".join(str(error).split())
    words = words if len(words) <= WORDS else f"{words[:WORDS]} [...]"
    said = f"{type(error).__name__}{f': {words}' if words else ''}".rstrip(".")
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename).resolve()
        # a plan may lie at the root of a clone, with the suite and its .venv inside: their lines are not the user's
        others = path.is_relative_to(PACKAGE) or "site-packages" in path.parts
        if path.is_relative_to(folder.resolve()) and not others:
            lines.append(f"{path.name}, line {frame.lineno}: ")
    return f"{lines[-1] if lines else ''}it raised {said}."
