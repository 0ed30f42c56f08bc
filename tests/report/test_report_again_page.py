"""What findings.md and two-digits-seeds.md say of two digits' other seeds follows from results/two-digit-again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import (
    BESIDE,
    FINDINGS,
    NUMBER,
    OTHER_SEEDS,
    RESULTS,
    SINGLE,
    STACKED,
    TO,
    has_its_seeds,
    of_seeds,
    said,
    words_of,
)
from scipy import stats

AGAIN = RESULTS / "two-digit-again"
RUNS = AGAIN / "runs" / "two_digit"
ROWS = {
    "Capsules, k-means routing, squash 0.5": "two-digit-kmeans",
    "Capsules, uniform couplings, squash 0.5": "two-digit-uniform-half",
    "Capsules, dynamic routing, squash 1": "two-digit-dynamic",
    "Capsules, uniform couplings, squash 1": "two-digit-uniform",
}


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    return {claim["id"]: claim for claim in json.loads((AGAIN / "claims.json").read_text())["claims"]}


def adjusted(claim: dict[str, Any]) -> list[float]:
    return [claim[end] for end in ("effect", "adjusted_low", "adjusted_high")]


def test_every_row_has_its_seeds_and_their_mean() -> None:
    has_its_seeds(OTHER_SEEDS, ROWS, RUNS, section="The same rows with other seeds")
    for variant in ROWS.values():
        assert sorted(of_seeds(RUNS / variant, *STACKED).index) == [5, 6, 7, 8, 9]


def test_the_verdicts_are_told_with_their_intervals(claims) -> None:
    helps, harms, over = (
        claims[f"two-digit-{name}"] for name in ("routing-helps-beside", "dynamic-harms", "kmeans-over-95-again")
    )
    assert {claim["verdict"] for claim in (helps, harms, over)} == {"reproduced"}
    assert [helps["adjusted_low"], helps["adjusted_high"]] == [helps["ci_low"], helps["ci_high"]]
    page, findings = words_of(OTHER_SEEDS), words_of(FINDINGS)
    for pattern, claim in {
        rf"reproduced\*\*, by {NUMBER} points \(Holm-adjusted {TO}, which for the last of three is the plain": helps,
        rf"\(the difference is {NUMBER}, Holm-adjusted {TO}\)\. The best seed of the paper's": harms,
        rf"%, {NUMBER} points above, Holm-adjusted {TO}\)\. By the final": over,
    }.items():
        assert said(pattern, page) == pytest.approx(adjusted(claim), abs=0.0501)
    means = [
        [of_seeds(RUNS / variant, *condition).mean() for variant in ROWS.values()] for condition in (STACKED, BESIDE)
    ]
    told = said(
        rf"Dynamic routing has {NUMBER} %, uniform couplings with its squash {NUMBER}, a difference of {NUMBER} points "
        rf"\(Holm-adjusted {TO}\); k-means side by side {NUMBER}, uniform couplings with its squash {NUMBER}, {NUMBER} "
        rf"points \(Holm-adjusted {TO}\)\.",
        findings,
    )
    assert told == pytest.approx([*means[0][2:], *adjusted(harms), *means[1][:2], *adjusted(helps)], abs=0.0501)
    assert said(rf"those five of k-means \({NUMBER} %\)", findings) == pytest.approx([means[0][0]], abs=0.0501)
    assert "Of other plans three, written before their runs, are reproduced" in words_of("docs/reproduction.md")


def test_the_seeds_do_not_overlap_where_the_page_says_so() -> None:
    kmeans, half, dynamic, uniform = (of_seeds(RUNS / variant, *BESIDE) for variant in ROWS.values())
    assert kmeans.min() > half.max()
    kmeans, half, dynamic, uniform = (of_seeds(RUNS / variant, *STACKED) for variant in ROWS.values())
    assert dynamic.max() < uniform.min()
    kmeans, half, dynamic, uniform = (of_seeds(RUNS / variant, *SINGLE) for variant in ROWS.values())
    assert kmeans.min() > half.max()


def difference(one: str, other: str, condition: str, metric: str, runs: Path = RUNS) -> list[float]:
    """Of two rows' means, with Welch's 95 % interval over seeds."""
    ours, theirs = (of_seeds(runs / variant, condition, metric) for variant in (one, other))
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return [ours.mean() - theirs.mean(), interval.low, interval.high]


def test_what_the_final_weights_say() -> None:
    kmeans, half, dynamic, uniform = ROWS.values()
    found = said(
        rf"less clearly: {NUMBER} points \({TO}\), {NUMBER} points \({TO}\) and {NUMBER} % \({TO}\), none",
        words_of(OTHER_SEEDS),
    )
    over = of_seeds(RUNS / kmeans, "56x28", "final_top2_accuracy")
    interval = stats.ttest_1samp(over, 95).confidence_interval()
    expected = [
        *difference(kmeans, half, "28x56", "final_top2_accuracy"),
        *difference(dynamic, uniform, "56x28", "final_top2_accuracy"),
        *(over.mean(), interval.low, interval.high),
    ]
    assert found == pytest.approx(expected, abs=0.0501)
    best = of_seeds(RUNS / half, "28x56", "final_top2_accuracy").max()
    assert of_seeds(RUNS / kmeans, "28x56", "final_top2_accuracy").min() < best


def test_what_is_said_beside_the_claims(claims) -> None:
    kmeans, half, dynamic, uniform = ROWS.values()
    page = words_of(OTHER_SEEDS)
    alone = claims["two-digit-routing-helps"]
    told = said(rf"one above the other \({NUMBER} points, 95 % interval {TO}\), and it gets", page)
    assert told == pytest.approx([alone[end] for end in ("effect", "ci_low", "ci_high")], abs=0.0501)
    wrong = claims["two-digit-capsules-single-value"]
    assert (alone["verdict"], wrong["verdict"]) == ("undecided", "undecided")
    told = said(rf"would be undecided by these seeds \({TO}\)", page)
    assert told == pytest.approx([wrong["ci_low"], wrong["ci_high"]], abs=0.00501)
    counts = json.loads((RESULTS / "paper" / "claims.json").read_text())["claims"]
    assert {claim["verdict"] for claim in counts if claim["id"] == wrong["id"]} == {"reproduced"}
    singles = [of_seeds(RUNS / variant, *SINGLE).mean() for variant in (kmeans, half)]
    told = said(rf"gets more single digits wrong \({NUMBER} against {NUMBER} %", page)
    assert told == pytest.approx(singles, abs=0.00501)
    told = said(rf"side by side as well \({NUMBER} points, {TO}, not adjusted; .*? not shown \({NUMBER}, {TO}\)", page)
    first = difference(dynamic, uniform, *BESIDE, RESULTS / "paper" / "runs" / "two_digit")
    assert told == pytest.approx([*difference(dynamic, uniform, *BESIDE), *first], abs=0.0501)
    assert difference(dynamic, uniform, "28x56", "final_top2_accuracy")[2] > 0


def test_they_ran_with_other_versions_than_the_first_seeds() -> None:
    of_torch = [
        {
            json.loads(path.read_text())["versions"]["torch"]
            for variant in ROWS.values()
            for path in (RESULTS / plan / "runs" / "two_digit" / variant).glob("seed-*/manifest.json")
        }
        for plan in ("two-digit-again", "paper")
    ]
    told = re.search(r"with another PyTorch \(([\d.]+) for ([\d.]+)\)", words_of(OTHER_SEEDS))
    assert told is not None
    assert of_torch == [{f"{word}.0"} for word in told.groups()]


def test_it_took_an_h200_so_long() -> None:
    seconds = []
    for variant in ROWS.values():
        manifests = [json.loads(path.read_text()) for path in (RUNS / variant).glob("seed-*/manifest.json")]
        assert {manifest["machine"]["gpu"] for manifest in manifests} == {"NVIDIA H200"}
        assert {manifest["resolved"]["seeds_at_once"] for manifest in manifests} == {5}
        seconds.append(min(manifest["seconds"] for manifest in manifests))
    told = said(
        r"the five seeds of a row at once in (\d+), (\d+), (\d+) and (\d+) s, in the table's order",
        words_of(OTHER_SEEDS),
    )
    assert told == pytest.approx(seconds, abs=0.501)
