"""What README and docs/two-digits.md say of more passes of routing follows from the runs of results/ablation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ABLATION = REPOSITORY / "results" / "ablation"
LINES = (REPOSITORY / "docs" / "two-digits.md").read_text()
PAGE, README = (" ".join(text.split()) for text in (LINES, (REPOSITORY / "README.md").read_text()))
ROWS = {
    "1 (uniform couplings)": "two-digit-uniform",
    "3 (the paper's)": "two-digit-dynamic",
    "5": "two-digit-dynamic+r5",
    "10": "two-digit-dynamic+r10",
}
COLUMNS = (("56x28", "top2_accuracy"), ("28x56", "top2_accuracy"), ("56x28", "single_error"))


def of_seeds(variant: str, condition: str, metric: str) -> pd.Series:
    files = (ABLATION / "runs" / "two_digit" / variant).glob(f"seed-*/{condition}/metrics.json")
    return pd.Series(
        {
            int(path.parents[1].name.partition("-")[2]): json.loads(path.read_text())["metrics"][metric]["value"]
            for path in files
        }
    ).sort_index()


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.\d+", text)]


def test_every_number_of_passes_has_its_seeds_and_their_mean() -> None:
    told = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in LINES.splitlines() if line[:2] == "| "]
    told = [row for row in told if len(row) == 4 and row[0] in ROWS]
    assert [row[0] for row in told] == list(ROWS)
    for first, *cells in told:
        for cell, (condition, metric) in zip(cells, COLUMNS, strict=True):
            seeds = of_seeds(ROWS[first], condition, metric)
            expected = [*seeds] if len(seeds) == 1 else [seeds.mean(), *seeds]
            step = 0.0501 if metric == "top2_accuracy" else 0.00501
            assert numbers(cell) == pytest.approx(expected, abs=step)


def test_every_seed_falls_with_every_step_as_the_page_says() -> None:
    for one, more in zip(list(ROWS.values())[:-1], list(ROWS.values())[1:], strict=True):
        few, many = (of_seeds(variant, *COLUMNS[0]) for variant in (one, more))
        assert (few.reindex(many.index) > many).all()


def test_the_gains_are_the_table_s() -> None:
    frame = pd.read_csv(ABLATION / "tables" / "ablation.csv")
    frame = frame[(frame["task"] == "two_digit") & (frame["metric"] == "top2_accuracy")]
    row = frame.set_index(["variant", "condition"]).loc[("two-digit-dynamic+r5", "56x28")]
    found = re.search(r"Five passes name both digits in ([\d.]+) points less than three \(([\d.]+) to ([\d.]+)\)", PAGE)
    assert found is not None
    assert [float(word) for word in found.groups()] == pytest.approx(
        [-row["difference"], -row["ci_high"], -row["ci_low"]], abs=0.0501
    )
    found = re.search(
        r"with three passes they name both in ([\d.]+) %, with five in ([\d.]+), with ten in ([\d.]+)", README
    )
    assert found is not None
    means = [of_seeds(variant, *COLUMNS[0]).mean() for variant in list(ROWS.values())[1:]]
    assert [float(word) for word in found.groups()] == pytest.approx(means, abs=0.0501)
