"""What the pages on two digits call shown, and not shown: corrected for a table's rows, and by five published seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from pages import BESIDE, NUMBER, ON_TWO_DIGITS, RESULTS, STACKED, TO, of_seeds, said, words_of
from scipy import stats

from capsbench.report.statistics import holm

RUNS = RESULTS / "paper" / "runs" / "two_digit"
PAGE = " ".join(words_of(name) for name in ON_TWO_DIGITS)


def corrected(table: Path, condition: str) -> pd.Series:
    """The p of a table's comparisons of top-2 accuracy, by variant, corrected for all of one arrangement of pairs."""
    frame = pd.read_csv(table).dropna(subset=["p"]).set_index("variant")
    frame = frame[(frame.task == "two_digit") & (frame.metric == "top2_accuracy") & (frame.condition == condition)]
    assert holm(list(frame.p)) == pytest.approx(list(frame.p_holm))  # every row has its runs
    return frame.p_holm


def welch(one: str, other: str, condition: str, metric: str) -> list[float]:
    ours, theirs = (of_seeds(RUNS / variant, condition, metric) for variant in (one, other))
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return [ours.mean() - theirs.mean(), interval.low, interval.high]


@pytest.mark.parametrize("condition", [STACKED[0], BESIDE[0]])
def test_what_fourteen_rows_leave_of_the_ablation_s_differences(condition: str) -> None:
    p = corrected(RESULTS / "ablation" / "tables" / "ablation.csv", condition)
    assert len(p) == 14
    assert PAGE.count("for the table's fourteen rows (Holm)") == 3
    assert p["two-digit-dynamic+tuned"] > 0.05
    assert p["two-digit-replace"] > 0.05
    if condition == STACKED[0]:
        assert p["two-digit-kmeans"] < 0.05
        assert p["two-digit-dynamic+r5"] < 0.05
        assert "k-means names both digits more often, one above the other" in PAGE
    five, ten, three = said(
        rf"remains shown \(p {NUMBER}\), ten side by side does not \({NUMBER}\), .*? \({NUMBER} here\)", PAGE
    )
    told = {STACKED[0]: {"r5": five, "r1": three}, BESIDE[0]: {"r10": ten}}[condition]
    for passes, value in told.items():
        assert p[f"two-digit-dynamic+{passes}"] == pytest.approx(value, abs=0.00501 if value > 0.05 else 0.000501)


def test_what_six_rungs_and_five_seeds_leave_of_the_ladder_s_first_gains_side_by_side() -> None:
    p = corrected(RESULTS / "ladder" / "tables" / "ladder.csv", BESIDE[0])
    assert len(p) == 6
    assert p[["two-digit-average-mlp", "two-digit-sum-linear"]].min() > 0.05
    assert "corrected for six rungs (Holm) neither is shown" in PAGE
    told = said(rf"plan sums have {NUMBER} more \(Welch's interval {TO}\)", PAGE)
    assert told == pytest.approx(welch("two-digit-sum-linear", "two-digit-average-linear", *BESIDE), abs=0.0501)


def test_what_three_seeds_a_rung_show_and_what_five_do() -> None:
    ladder = RESULTS / "ladder" / "tables" / "ladder.csv"
    rungs = ["two-digit-sum-vectors", "two-digit-dynamic", "two-digit-average-linear"]
    *above, beside = said(
        rf"p is {NUMBER} for lengths, {NUMBER} for the paper's routing and {NUMBER} for leaving the dense layer out "
        rf"\(side by side, of the first and the last, {NUMBER} each\)",
        PAGE,
    )
    assert above == pytest.approx(list(corrected(ladder, STACKED[0])[rungs]), abs=0.000501)
    assert min(above) > 0.05 > beside
    assert [beside] * 2 == pytest.approx(list(corrected(ladder, BESIDE[0])[[rungs[0], rungs[2]]]), abs=0.000501)
    told = said(rf"lengths have {NUMBER} points more \(Welch's interval {TO}\)", PAGE)
    ours, theirs = (
        of_seeds(folder / name, *STACKED)
        for folder, name in ((RESULTS / "ladder/runs/two_digit", rungs[0]), (RUNS, "two-digit-sum-linear"))
    )
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    assert told == pytest.approx([ours.mean() - theirs.mean(), interval.low, interval.high], abs=0.0501)
    told = said(rf"leaving the dense layer out gains {NUMBER} \({TO}\), and that routing takes", PAGE)
    assert told == pytest.approx(welch(rungs[2], "two-digit-average-mlp", *STACKED), abs=0.0501)


def test_which_routings_are_shown_to_be_below_uniform_couplings() -> None:
    replaced, half, kmeans = "two-digit-replace", "two-digit-uniform-half", "two-digit-kmeans"
    told = said(rf"uniform couplings is not shown \({NUMBER} points, Welch's interval {TO}\)", PAGE)
    assert told == pytest.approx(welch(replaced, half, *BESIDE), abs=0.0501)
    assert told[1] < 0 < told[2]
    above, below = (
        of_seeds(RUNS / replaced, *STACKED),
        [of_seeds(RUNS / row, *STACKED).mean() for row in (half, kmeans)],
    )
    assert above.max() < min(below)
    assert max(welch(replaced, row, *STACKED)[2] for row in (half, kmeans)) < 0
    assert welch(replaced, kmeans, *BESIDE)[2] < 0
    dynamic = {what[0]: welch("two-digit-dynamic", "two-digit-uniform", *what) for what in (STACKED, BESIDE)}
    assert dynamic["56x28"][2] < 0 < dynamic["28x56"][2]
    told = said(
        rf"has {NUMBER}, its best seed {NUMBER}; .*? Side by side it has {NUMBER} and they {NUMBER}, which", PAGE
    )
    seeds = of_seeds(RUNS / "two-digit-dynamic", *STACKED)
    beside = [of_seeds(RUNS / f"two-digit-{row}", *BESIDE).mean() for row in ("dynamic", "uniform")]
    assert told == pytest.approx([seeds.mean(), seeds.max(), *beside], abs=0.0501)


def test_single_digits_against_su_s_bound() -> None:
    claims = {claim["id"]: claim for claim in json.loads((RESULTS / "paper" / "claims.json").read_text())["claims"]}
    cnn, capsules = (claims[f"two-digit-{what}-single-value"] for what in ("cnn", "capsules"))
    told = said(rf"as a bound, the CNN's figure would be undecided \({TO}\)", PAGE)
    assert told == pytest.approx([cnn["ci_low"], cnn["ci_high"]], abs=0.00501)
    assert cnn["ci_low"] < 0.7 < cnn["ci_high"]
    assert capsules["ci_low"] > 0.7
