"""What README and docs/two-digits.md say of the two digits' ladder follows from the runs of results/ladder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
LADDER = REPOSITORY / "results" / "ladder"
LINES = (REPOSITORY / "docs" / "two-digits.md").read_text()
PAGE, README = (" ".join(text.split()) for text in (LINES, (REPOSITORY / "README.md").read_text()))
RUNGS = {
    "CNN, average pooling, MLP, cross entropy": "two-digit-cross-entropy",
    "margin loss: Su's CNN": "two-digit-average-mlp",
    "no dense layer": "two-digit-average-linear",
    "sums in the place of averages": "two-digit-sum-linear",
    "**scores are lengths of 16-dimensional vectors**": "two-digit-sum-vectors",
    "capsules, uniform couplings, squash 1": "two-digit-uniform",
    "dynamic routing": "two-digit-dynamic",
}
CONDITIONS = ("56x28", "28x56")  # the table's columns, two each


def table() -> pd.DataFrame:
    frame = pd.read_csv(LADDER / "tables" / "ladder.csv")
    frame = frame[(frame["task"] == "two_digit") & (frame["metric"] == "top2_accuracy")]
    return frame.set_index(["variant", "condition"])


def of_seeds(variant: str, condition: str, metric: str = "top2_accuracy") -> list[float]:
    files = sorted((LADDER / "runs" / "two_digit" / variant).glob(f"seed-*/{condition}/metrics.json"))
    return [json.loads(path.read_text())["metrics"][metric]["value"] for path in files]


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.\d+", text)]


def test_every_rung_has_its_seeds_their_mean_and_its_gain() -> None:
    rows = table()
    told = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in LINES.splitlines() if line[:2] == "| "]
    told = [row for row in told if len(row) == 5 and row[0] in RUNGS]
    assert [row[0] for row in told] == list(RUNGS)
    for first, *cells in told:
        for condition, values, gain in zip(CONDITIONS, cells[::2], cells[1::2], strict=True):
            row, seeds = rows.loc[(RUNGS[first], condition)], of_seeds(RUNGS[first], condition)
            assert numbers(values) == pytest.approx([row["mean"], *seeds], abs=0.0501)
            expected = [] if pd.isna(row["difference"]) else [row["difference"], row["ci_low"], row["ci_high"]]
            assert numbers(gain) == pytest.approx(expected, abs=0.0501)
            assert len(seeds) == 3
    assert set(rows["test"].dropna()) == {"crossed"}  # "seeds and test pairs"


def test_the_words_have_the_table_s_numbers() -> None:
    means = table()["mean"].xs("56x28", level="condition")
    plain, vectors = means["two-digit-sum-linear"], means["two-digit-sum-vectors"]
    above = {
        name: pd.Series(of_seeds(name, "56x28", "both_above_half_accuracy")).mean()
        for name in ("two-digit-sum-vectors", "two-digit-sum-linear")
    }
    page = r"names both digits in ([\d.]+) % of the pairs, with ten plain scores it names them in ([\d.]+)\."
    readme = r"both digits in ([\d.]+) % of the pairs with ten plain scores, in ([\d.]+) with the lengths"
    for pattern, text, expected in (
        (page, PAGE, [vectors, plain]),
        (r"above one half in ([\d.]+) % \(with plain scores in ([\d.]+)\)", PAGE, list(above.values())),
        (readme, README, [plain, vectors]),
    ):
        found = re.search(pattern, text)
        assert found is not None, f"it no longer says what this test reads with {pattern!r}; mend either"
        assert [float(word) for word in found.groups()] == pytest.approx(expected, abs=0.0501)
