"""What README and docs/two-digits.md say of two digits' other seeds follows from results/two-digit-again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pages import RESULTS, has_its_seeds, of_seeds, said, words_of

from capsbench.report.collect import collect
from capsbench.report.tables import long_table

AGAIN = RESULTS / "two-digit-again"
RUNS = AGAIN / "runs" / "two_digit"
PAGE = "docs/two-digits.md"
ROWS = {
    "Capsules, k-means routing, squash 0.5": "two-digit-kmeans",
    "Capsules, uniform couplings, squash 0.5": "two-digit-uniform-half",
    "Capsules, dynamic routing, squash 1": "two-digit-dynamic",
    "Capsules, uniform couplings, squash 1": "two-digit-uniform",
}
STACKED, BESIDE = ("56x28", "top2_accuracy"), ("28x56", "top2_accuracy")
COLUMNS = (STACKED, BESIDE, ("56x28", "single_error"))
NUMBER, TO = r"(-?[\d.]+)", r"(-?[\d.]+) to (-?[\d.]+)"


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    return {claim["id"]: claim for claim in json.loads((AGAIN / "claims.json").read_text())["claims"]}


def adjusted(claim: dict[str, Any]) -> list[float]:
    return [claim[end] for end in ("effect", "adjusted_low", "adjusted_high")]


def test_every_row_has_its_seeds_and_their_mean() -> None:
    has_its_seeds(PAGE, ROWS, RUNS, COLUMNS, section="The same rows with other seeds")
    for variant in ROWS.values():
        assert sorted(of_seeds(RUNS / variant, *STACKED).index) == [5, 6, 7, 8, 9]


def test_the_verdicts_are_told_with_their_intervals(claims) -> None:
    helps, harms, over = (
        claims[f"two-digit-{name}"] for name in ("routing-helps-beside", "dynamic-harms", "kmeans-over-95-again")
    )
    assert {claim["verdict"] for claim in (helps, harms, over)} == {"reproduced"}
    page, readme = words_of(PAGE), words_of("README.md")
    for pattern, claim in {
        rf"reproduced\*\*, by {NUMBER} points \(Holm-adjusted {TO}\)\. The worst seed of k-means": helps,
        rf"\(the difference is {NUMBER}, Holm-adjusted {TO}\)\. The best seed of the paper's": harms,
        rf"%, {NUMBER} points above, Holm-adjusted {TO}\), this time": over,
    }.items():
        assert said(pattern, page) == pytest.approx(adjusted(claim), abs=0.0501)
    means = [
        [of_seeds(RUNS / variant, *condition).mean() for variant in ROWS.values()] for condition in (STACKED, BESIDE)
    ]
    told = said(
        rf"k-means has {NUMBER} % and uniform couplings {NUMBER}, a difference of {NUMBER} points "
        rf"\(Holm-adjusted {TO}\); the paper's routing has {NUMBER} % and uniform couplings {NUMBER}, "
        rf"one of {NUMBER} \(Holm-adjusted {TO}\)\.",
        readme,
    )
    assert told == pytest.approx([*means[1][:2], *adjusted(helps), *means[0][2:], *adjusted(harms)], abs=0.0501)
    assert "Of other plans three, written before their runs, are reproduced" in readme


def test_the_seeds_do_not_overlap_where_the_page_says_so() -> None:
    kmeans, half, dynamic, uniform = (of_seeds(RUNS / variant, *BESIDE) for variant in ROWS.values())
    assert kmeans.min() > half.max()
    kmeans, half, dynamic, uniform = (of_seeds(RUNS / variant, *STACKED) for variant in ROWS.values())
    assert dynamic.max() < uniform.min()
    kmeans, half, dynamic, uniform = (of_seeds(RUNS / variant, *COLUMNS[2]) for variant in ROWS.values())
    assert kmeans.min() > half.max()


def test_what_is_said_beside_the_claims(claims) -> None:
    page = words_of(PAGE)
    alone = claims["two-digit-routing-helps"]
    told = said(rf"does not beat uniform couplings \({NUMBER} points, 95 % interval {TO}\), of single", page)
    assert told == pytest.approx([alone[end] for end in ("effect", "ci_low", "ci_high")], abs=0.0501)
    wrong = claims["two-digit-capsules-single-value"]
    assert (alone["verdict"], wrong["verdict"]) == ("undecided", "undecided")
    told = said(rf"are undecided by these seeds \({TO}\)", page)
    assert told == pytest.approx([wrong["ci_low"], wrong["ci_high"]], abs=0.00501)
    (final,) = (
        row.summary
        for row in long_table(collect(AGAIN), "two_digit")
        if (row.cell.variant, row.cell.condition, row.cell.metric)
        == ("two-digit-kmeans", "56x28", "final_top2_accuracy")
    )
    assert said(rf"by the final weights too \({TO}\)", page) == pytest.approx([final.low, final.high], abs=0.0501)
    singles = [of_seeds(RUNS / variant, *COLUMNS[2]).mean() for variant in list(ROWS.values())[:2]]
    told = said(rf"it gets more wrong \({NUMBER} against {NUMBER} %", page)
    assert told == pytest.approx(singles, abs=0.00501)
    beside = [of_seeds(RUNS / variant, *BESIDE).mean() for variant in list(ROWS.values())[2:]]
    told = said(rf"the paper's routing has {NUMBER} % where uniform couplings have {NUMBER}\. The 0", page)
    assert told == pytest.approx(beside, abs=0.0501)


def test_it_took_an_h200_so_long() -> None:
    seconds = []
    for variant in ROWS.values():
        manifests = [json.loads(path.read_text()) for path in (RUNS / variant).glob("seed-*/manifest.json")]
        assert {manifest["machine"]["gpu"] for manifest in manifests} == {"NVIDIA H200"}
        assert {manifest["resolved"]["seeds_at_once"] for manifest in manifests} == {5}
        assert all(manifest["resolved"]["captured"] for manifest in manifests)
        seconds.append(min(manifest["seconds"] for manifest in manifests))
    told = said(
        r"the five seeds of a row at once in (\d+), (\d+), (\d+) and (\d+) s, in the table's order", words_of(PAGE)
    )
    assert told == pytest.approx(seconds, abs=0.501)
