"""What docs/two-digits-routing.md says of more passes of routing follows from the runs of results/ablation."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from pages import BESIDE, RESULTS, ROUTING, STACKED, TWO_DIGITS, has_its_seeds, of_seeds, said, words_of

ABLATION = RESULTS / "ablation"
RUNS = ABLATION / "runs" / "two_digit"
ROWS = {
    "1 (uniform couplings)": "two-digit-uniform",
    "1, trained on another processor": "two-digit-dynamic+r1",
    "3 (the paper's)": "two-digit-dynamic",
    "5": "two-digit-dynamic+r5",
    "10": "two-digit-dynamic+r10",
}


def test_every_number_of_passes_has_its_seeds_and_their_mean() -> None:
    has_its_seeds(ROUTING, ROWS, RUNS, section="More passes of routing transfer less")


def test_every_seed_loses_as_the_page_says() -> None:
    one, again, three, five, ten = (of_seeds(RUNS / variant, *STACKED) for variant in ROWS.values())
    assert (one > three).all()
    assert (again > three).all()
    assert (three > five).all()
    assert (five > ten).sum() == 2
    beside = [of_seeds(RUNS / variant, *BESIDE) for variant in list(ROWS.values())[2:]]
    assert (beside[0] > beside[2]).all()


def test_the_words_have_the_table_s_numbers() -> None:
    frame = pd.read_csv(ABLATION / "tables" / "ablation.csv")
    frame = frame[(frame["task"] == "two_digit") & (frame["metric"] == "top2_accuracy")]
    rows = frame.set_index(["variant", "condition"])
    five, ten = (f"two-digit-dynamic+r{passes}" for passes in (5, 10))
    for variant, condition, pattern in (
        (five, "56x28", r"Five name both digits in ([\d.]+) points less than three \((-?[\d.]+) to ([\d.]+);"),
        (five, "28x56", r"side by side ([\d.]+) less, which is not shown, (-?[\d.]+) to ([\d.]+)\)"),
        (ten, "56x28", r"Ten have ([\d.]+) less than three .* a loss is not shown \((-?[\d.]+) to ([\d.]+)\)"),
        (ten, "28x56", r"Side by side ten lose ([\d.]+) points \((-?[\d.]+) to ([\d.]+)\)"),
    ):
        row = rows.loc[(variant, condition)]
        expected = [-row["difference"], -row["ci_high"], -row["ci_low"]]
        assert said(pattern, words_of(ROUTING)) == pytest.approx(expected, abs=0.0501)
    means = [of_seeds(RUNS / name, *STACKED).mean() for name in ROWS.values() if name != "two-digit-dynamic+r1"]
    assert said(r"Ten have ([\d.]+) less than three", words_of(ROUTING)) == (
        pytest.approx([means[1] - means[3]], abs=0.0501)
    )


def test_one_pass_trained_twice_ends_as_far_apart_as_the_page_says() -> None:
    first, again = ("two-digit-uniform", "two-digit-dynamic+r1")
    begun = [
        pd.concat([pd.read_csv(path)["loss"].head(1) for path in sorted((RUNS / name).glob("seed-*/history.csv"))])
        for name in (first, again)
    ]
    (within,) = said(r"losses over the first 47 steps agree to ([\d.]+)", words_of(ROUTING))
    assert len(begun[0]) == 3
    assert (begun[0] - begun[1]).abs().max() <= within
    patterns = {
        BESIDE: r"side by side they end {} points apart",
        STACKED: r"One above the other it is {}\. Differences",
    }
    for what, pattern in patterns.items():
        apart = (of_seeds(RUNS / first, *what) - of_seeds(RUNS / again, *what)).abs()
        told = said(pattern.format(r"([\d.]+), ([\d.]+) and (\d+\.\d+)"), words_of(ROUTING))
        assert told == pytest.approx([*apart], abs=0.0501)


def test_the_runs_of_one_pass_took_the_minutes_that_the_page_says() -> None:
    files = sorted((RUNS / "two-digit-dynamic+r1").glob("seed-*/manifest.json"))
    minutes = [json.loads(path.read_text())["seconds"] / 60 for path in files]
    told = said(r"\(one pass: (\d+) to (\d+)\)", words_of(ROUTING))
    assert told == pytest.approx([min(minutes), max(minutes)], abs=0.501)


def test_the_pages_count_the_ablation_s_own_runs() -> None:
    """On two digits: those whose row the paper's plan has not."""
    theirs = {path.name for path in (RESULTS / "paper" / "runs" / "two_digit").iterdir()}
    own = [path for path in RUNS.glob("*/seed-*") if path.parent.name not in theirs]
    assert len(own) == 18
    assert "as are eighteen of `config/ablation.yaml`" in words_of(TWO_DIGITS)
    assert "eighteen of the ablation" in words_of("docs/reproduction.md")
