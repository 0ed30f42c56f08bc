"""What README and the pages of docs/ say, and what the published runs gave, for tests that hold one to the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capsbench.report.statistics import Estimate, Scored, crossed, digit_effects

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "results"
NUMBER, TO = r"(-?[\d.]+)", r"(-?[\d.]+) to (-?[\d.]+)"
TWO_DIGITS, FINDINGS = "docs/two-digits.md", "docs/findings.md"
OTHER_SEEDS, ROUTING, WHY, EVERY_FIGURE = (f"docs/two-digits-{name}.md" for name in ("seeds", "routing", "why", "runs"))
ON_TWO_DIGITS = (TWO_DIGITS, OTHER_SEEDS, ROUTING, WHY, EVERY_FIGURE)
STACKED, BESIDE, SINGLE = ("56x28", "top2_accuracy"), ("28x56", "top2_accuracy"), ("56x28", "single_error")


def words_of(name: str) -> str:
    """A page of the repository, such as `docs/mnist.md`, as one line."""
    return " ".join((REPOSITORY / name).read_text().split())


def said(pattern: str, text: str) -> list[float]:
    """The numbers that a text has in the place of the groups of `pattern`."""
    found = re.search(pattern, text)
    assert found is not None, f"it no longer says what this test reads with {pattern!r}; mend either"
    return [float(word) for word in found.groups()]


def numbers(cell: str) -> list[float]:
    """Every number with a decimal point in a cell of a page's table."""
    return [float(word) for word in re.findall(r"-?\d+\.\d+", cell)]


def rows_of(name: str, firsts: Iterable[str], columns: int, section: str = "") -> dict[str, list[str]]:
    """The one table of a page, or of what is below one of its headings, with so many columns whose rows begin with
    `firsts`, in that order: their other cells."""
    text = (REPOSITORY / name).read_text()
    if section:
        (_, below) = text.split(f"\n## {section}\n")
        text = below.partition("\n## ")[0]
    lines = (line for line in text.splitlines() if line.startswith("| "))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found = {first: cells for first, *cells in rows if first in firsts and len(cells) == columns - 1}
    assert list(found) == list(firsts)
    return found


def has_its_seeds(page: str, rows: dict[str, str], runs: Path, section: str = "") -> None:
    """Fail unless a table of a page on two digits has of each row (first cell, variant) all seeds, in brackets,
    and their mean: of pairs one above the other and side by side, and of single digits.
    """
    columns = (STACKED, BESIDE, SINGLE)
    for first, cells in rows_of(page, rows, 1 + len(columns), section).items():
        for cell, (condition, metric) in zip(cells, columns, strict=True):
            seeds = of_seeds(runs / rows[first], condition, metric)
            expected = [*seeds] if len(seeds) == 1 else [seeds.mean(), *seeds]
            assert numbers(cell) == pytest.approx(expected, abs=0.0501 if metric == "top2_accuracy" else 0.00501)


def lines_of_seeds(runs: Path, section: str) -> list[int]:
    """The seeds of a row, after each was found on its line of a table of OTHER_SEEDS: pairs one above the other and
    side by side, and single digits.
    """
    columns = {what: of_seeds(runs, *what) for what in (STACKED, BESIDE, SINGLE)}
    seeds = list(columns[STACKED].index)
    rows = rows_of(OTHER_SEEDS, [str(seed) for seed in seeds], columns=1 + len(columns), section=section)
    for seed, cells in zip(seeds, rows.values(), strict=True):
        for cell, (what, values) in zip(cells, columns.items(), strict=True):
            assert numbers(cell) == pytest.approx([values[seed]], abs=0.00501 if what == SINGLE else 0.0501)
    return seeds


def with_pairs(runs: Path, metric: str, less: float = 0.0) -> Estimate:
    """A metric of pairs one above the other, less a constant: its mean over seeds, the pairs' choice counted in."""
    means, effects = [], []
    for run in sorted(runs.glob("seed-*/56x28")):
        means.append(json.loads((run / "metrics.json").read_text())["metrics"][metric]["value"] - less)
        with np.load(run / "predictions.npz") as answers:
            effects.append(digit_effects(100.0 * answers[metric], answers["bases"], 10_000))
    estimate = crossed(Scored(np.array(means), np.stack(effects)))
    assert estimate is not None
    return estimate


def of_seeds(runs: Path, condition: str, metric: str) -> pd.Series:
    """A metric of every seed in a row's folder of runs, by seed."""
    files = {int(path.name.partition("-")[2]): path / condition / "metrics.json" for path in runs.glob("seed-*")}
    found = {seed: json.loads(files[seed].read_text())["metrics"][metric]["value"] for seed in sorted(files)}
    return pd.Series(found, dtype=float)
