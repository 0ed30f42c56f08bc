"""Numbers and seeds in the sentences of verdicts."""

from __future__ import annotations

from capsbench.report.statistics.estimate import MOST_SEEDS

ENOUGH = 5  # seeds of the full plan; below, the sentence says so


def number(value: float) -> str:
    """Three significant digits; whole numbers from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def span(low: float, high: float, unit: str) -> str:
    """`-0.09 to -0.01 %`."""
    return f"{number(low)} to {number(high)} {unit}".rstrip()


def few_seeds(n: int) -> str:
    """How many seeds a verdict stands on; fewer than five are marked as few."""
    return f" (on {n} seeds only)" if n < ENOUGH else f" (on {n} seeds)"


def needed(seeds: int | None) -> str:
    """How many seeds would decide it."""
    if seeds is None:
        return f"no number of seeds up to {MOST_SEEDS:,} would decide it, if value and spread stay"
    return f"{seeds:,} seeds a cell would decide it with 80 % chance, if value and spread stay"
