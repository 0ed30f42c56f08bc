"""What findings.md and two-digits-why.md say of the two digits' ladder follows from the runs of results/ladder."""

from __future__ import annotations

import pandas as pd
import pytest
from pages import FINDINGS, RESULTS, WHY, numbers, of_seeds, rows_of, said, words_of

LADDER = RESULTS / "ladder"
RUNS = LADDER / "runs" / "two_digit"
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


def test_every_rung_has_its_seeds_their_mean_and_its_gain() -> None:
    rows = table()
    for first, cells in rows_of(WHY, RUNGS, columns=5).items():
        for condition, values, gain in zip(CONDITIONS, cells[::2], cells[1::2], strict=True):
            row, seeds = rows.loc[(RUNGS[first], condition)], of_seeds(RUNS / RUNGS[first], condition, "top2_accuracy")
            assert numbers(values) == pytest.approx([row["mean"], *seeds], abs=0.0501)
            expected = [] if pd.isna(row["difference"]) else [row["difference"], row["ci_low"], row["ci_high"]]
            assert numbers(gain) == pytest.approx(expected, abs=0.0501)
            assert list(seeds.index) == [0, 1, 2]
    assert set(rows["test"].dropna()) == {"crossed"}  # "seeds and test pairs"


def test_the_words_have_the_table_s_numbers() -> None:
    means = table()["mean"].xs("56x28", level="condition")
    plain, vectors = means["two-digit-sum-linear"], means["two-digit-sum-vectors"]
    above = [
        of_seeds(RUNS / name, "56x28", "both_above_half_accuracy").mean()
        for name in ("two-digit-sum-vectors", "two-digit-sum-linear")
    ]
    page = r"names both digits in ([\d.]+) % of the pairs, with ten plain scores it names them in ([\d.]+)\."
    gain = r"with plain scores it had ([\d.]+) % and has ([\d.]+) with these \(seeds 0 to 2\)"
    row = r"CNN, sum pooling, lengths of vectors \(`results/ladder`\) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| 3 \|"
    everything = pd.read_csv(LADDER / "tables" / "two_digit.csv").set_index(["variant", "condition", "metric"])
    of_row = everything.loc[("two-digit-sum-vectors", "56x28", "top2_accuracy"), ["mean", "ci_low", "ci_high"]]
    for pattern, name, expected in (
        (row, FINDINGS, of_row.tolist()),
        (page, WHY, [vectors, plain]),
        (r"above one half in ([\d.]+) % \(with plain scores in ([\d.]+)\)", WHY, above),
        (gain, FINDINGS, [plain, vectors]),
    ):
        assert said(pattern, words_of(name)) == pytest.approx(expected, abs=0.0501)


def test_what_each_of_the_first_changes_gains_side_by_side_is_the_table_s() -> None:
    rows = table()
    for variant, pattern in (
        ("two-digit-average-mlp", r"margin loss has ([\d.]+) points more \(([\d.]+) to ([\d.]+)\), sums"),
        ("two-digit-sum-linear", r"sums have ([\d.]+) \(([\d.]+) to ([\d.]+)\); corrected"),
    ):
        row = rows.loc[(variant, "28x56")]
        expected = [row["difference"], row["ci_low"], row["ci_high"]]
        assert said(pattern, words_of(WHY)) == pytest.approx(expected, abs=0.0501)
