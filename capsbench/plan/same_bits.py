"""Training sources that were shown to give the same bits: what was trained by one need not be trained again by another.

The digest of a run's source changes with any of its code, also with what makes another precision or another device
faster. `benchmarks/same_bits.py` trains and evaluates a row with the source of two commits and compares every bit; what
was equal is written down in config/same-bits.json. It is shown row by row, on a CPU and in float32, and nothing else is
believed: of another row, of a run in bf16 or on a GPU the digest alone decides.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capsbench.errors import PlanError
from capsbench.files import read_json
from capsbench.plan.load import config_folder

Row = tuple[str, str]  # task, folder name of the variant


def same_bits_file() -> Path:
    """Where it is written down which sources gave the same bits."""
    return config_folder() / "same-bits.json"


def same_sources(digest: str, manifest: Mapping[str, Any]) -> set[str]:
    """Digests of the sources that give this manifest's run the bits that the source of `digest` gives it; it is one.

    A run that is not float32 on a CPU has no others. Raises PlanError: the file is damaged.
    """
    resolved, run = manifest.get("resolved"), manifest.get("run")
    found, waiting = {digest}, [digest]
    if not (isinstance(resolved, dict) and isinstance(run, dict)):
        return found
    if (resolved.get("device"), resolved.get("precision")) != ("cpu", "float32"):
        return found
    pairs = _shown(same_bits_file()).get((str(run.get("task")), str(run.get("variant"))), {})
    while waiting:
        new = pairs.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


@functools.cache
def _shown(path: Path) -> dict[Row, dict[str, set[str]]]:
    """For each row the sources that one source was compared with and found equal to. Raises PlanError."""
    shown: dict[Row, dict[str, set[str]]] = {}
    try:
        for change in read_json(path)["changes"]:
            for run in change["runs"]:
                before, after = run["training"]
                pairs = shown.setdefault((run["task"], run["variant"]), {})
                pairs.setdefault(before, set()).add(after)
                pairs.setdefault(after, set()).add(before)
    except FileNotFoundError:
        return shown
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{path} is not as `benchmarks/same_bits.py` writes it ({type(error).__name__}: {error}); take it from the "
            "repository again."
        ) from None
    return shown
