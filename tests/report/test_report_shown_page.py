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
    return pd.Series(holm(list(frame.p)), index=frame.index)


def welch(one: str, other: str, condition: str, metric: str) -> list[float]:
    ours, theirs = (of_seeds(RUNS / variant, condition, metric) for variant in (one, other))
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return [ours.mean() - theirs.mean(), interval.low, interval.high]


@pytest.mark.parametrize("condition", [STACKED[0], BESIDE[0]])
def test_what_fourteen_rows_leave_of_the_ablation_s_differences(condition: str) -> None:
    p = corrected(RESULTS / "ablation" / "tables" / "ablation.csv", condition)
    assert len(p) == 14
    assert PAGE.count("for the table's fourteen rows (Holm)") == 2
    assert p["two-digit-dynamic+tuned"] > 0.05
    assert p["two-digit-replace"] > 0.05
    if condition == STACKED[0]:
        assert p["two-digit-kmeans"] < 0.05
        assert p["two-digit-dynamic+r5"] < 0.05
        assert "k-means names both digits more often, one above the other" in PAGE


def test_what_six_rungs_and_five_seeds_leave_of_the_ladder_s_first_gains_side_by_side() -> None:
    p = corrected(RESULTS / "ladder" / "tables" / "ladder.csv", BESIDE[0])
    assert len(p) == 6
    assert p[["two-digit-average-mlp", "two-digit-sum-linear"]].min() > 0.05
    assert "corrected for six rungs (Holm) neither is shown" in PAGE
    told = said(rf"plan sums have {NUMBER} more \(Welch's interval {TO}\)", PAGE)
    assert told == pytest.approx(welch("two-digit-sum-linear", "two-digit-average-linear", *BESIDE), abs=0.0501)


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
