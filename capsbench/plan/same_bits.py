"""Earlier sources that gave the same bits as today's: what was trained by them need not be trained again.

The digest of a run's source changes with any of its code, also with what makes another precision or another device
faster. `benchmarks/same_bits.py` trains and evaluates with the source of two commits and compares every bit; what was
equal is written down in config/same-bits.json. It is shown on a CPU in float32, and nothing else is believed: of a run
in bf16 or on a GPU the digest alone decides.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capsbench.errors import PlanError
from capsbench.files import read_json
from capsbench.plan.load import config_folder

KINDS = ("training", "evaluation")


def same_bits_file() -> Path:
    """Where it is written down which sources gave the same bits."""
    return config_folder() / "same-bits.json"


def earlier_sources(kind: str, digest: str, manifest: Mapping[str, Any]) -> list[str]:
    """Digests of earlier sources that did to this manifest's run what today's source of that `digest` does to it.

    kind: `training` or `evaluation`. A run that is not float32 on a CPU has none.
    """
    resolved = manifest.get("resolved")
    if not isinstance(resolved, dict) or (resolved.get("device"), resolved.get("precision")) != ("cpu", "float32"):
        return []
    shown = _shown(same_bits_file())[kind]
    found, waiting = {digest}, [digest]
    while waiting:
        new = shown.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return sorted(found - {digest})


@functools.cache
def _shown(path: Path) -> dict[str, dict[str, set[str]]]:
    """For each kind the sources before a change, by the digest of the source after it. Raises PlanError."""
    shown: dict[str, dict[str, set[str]]] = {kind: {} for kind in KINDS}
    try:
        for change in read_json(path)["changes"]:
            for run in change["runs"]:
                for kind in KINDS:
                    before, after = run[kind]
                    shown[kind].setdefault(str(after), set()).add(str(before))
    except FileNotFoundError:
        return shown
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{path} is not as `benchmarks/same_bits.py` writes it ({type(error).__name__}: {error}); take it from the "
            "repository again."
        ) from None
    return shown
