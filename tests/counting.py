"""How many malformed inputs were tried, with which seed: counted where tests run, told where they are reported."""

from __future__ import annotations

from collections import Counter

SEED = 7
COUNTS: Counter[str] = Counter()  # inputs tried, by kind


def count(kind: str) -> None:
    """Called once for each input that was tried."""
    COUNTS[kind] += 1


def summary() -> str:
    """One line on all of them."""
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in sorted(COUNTS.items()))
    return f"malformed inputs: {COUNTS.total():,} with seed {SEED} ({kinds})"
