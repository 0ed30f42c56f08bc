"""What findings.md and two-digits-seeds.md say of Su's CNN with other seeds follows from results/two-digit-average."""

from __future__ import annotations

import json
import re

import pytest
from pages import (
    BESIDE,
    FINDINGS,
    NUMBER,
    OTHER_SEEDS,
    RESULTS,
    TO,
    lines_of_seeds,
    of_seeds,
    said,
    with_pairs,
    words_of,
)
from scipy import stats

from capsbench.plan import House, config_folder

AVERAGE = RESULTS / "two-digit-average"
RUNS = AVERAGE / "runs" / "two_digit" / "two-digit-average-mlp"
SECTION = "Su's CNN, fifteen more seeds"
FINAL = ("56x28", "final_top2_accuracy")
PAGE = words_of(OTHER_SEEDS)


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, float | str]]:
    return {claim["id"]: claim for claim in json.loads((AVERAGE / "claims.json").read_text())["claims"]}


def ends(what: tuple[str, str]) -> list[float]:
    """The mean over seeds with its 95 % interval."""
    seeds = of_seeds(RUNS, *what)
    half = stats.t.ppf(0.975, len(seeds) - 1) * seeds.sem()
    return [seeds.mean(), seeds.mean() - half, seeds.mean() + half]


def test_every_run_there_is_has_its_line() -> None:
    planned = House.load(config_folder() / "two-digit-average.yaml").cells[0].seeds
    assert lines_of_seeds(RUNS, SECTION) == list(planned)
    assert "fifteen more (`config/two-digit-average.yaml`)" in words_of("docs/reproduction.md")


def test_the_verdicts_are_those_that_the_page_and_findings_tell(claims) -> None:
    judged = {name: claim["verdict"] for name, claim in claims.items() if claim["verdict"] != "not run"}
    errors = [f"two-digit-cnn-{what}value" for what in ("", "both-", "single-")]
    assert judged == dict.fromkeys([*errors, "parameters-two-digit-cnn"], "reproduced")
    found = [[claims[name][end] for end in ("effect", "ci_low", "ci_high")] for name in errors]
    told = said(rf"a tolerance that is ours:\*\* {NUMBER} % \({TO}\), where about 40 means 35 to 45", PAGE)
    assert told == pytest.approx(found[0], abs=0.0501)
    told = said(rf"above one half have {NUMBER} \({TO}\) for his 10 ± 5", PAGE)
    assert told == pytest.approx(found[1], abs=0.0501)
    told = said(rf"of single digits {NUMBER} % are wrong \({TO}\) for 0\.7 ± 0\.2", PAGE)
    assert told == pytest.approx(found[2], abs=0.000501)
    assert found[2][1] > 0.7, "the page says that as a bound it is not reproduced"
    assert found[0][2] < 40, "the page says that the mean lies below 40"
    findings = said(rf"narrowly \({NUMBER} %, {TO}, where 35 to 45 counts as about 40;", words_of(FINDINGS))
    assert findings == pytest.approx(found[0], abs=0.0501)


def test_what_is_said_beside_the_claims() -> None:
    for pattern, what in (
        (rf"The final weights, which he tests, have {NUMBER} \({TO}\)", FINAL),
        (rf"Side by side the CNN names both in {NUMBER} \({TO}\)\. The verdict that counts on each", BESIDE),
    ):
        assert said(pattern, PAGE) == pytest.approx(ends(what), abs=0.0501)
    final = of_seeds(RUNS, *FINAL)
    assert said(rf"one training between {NUMBER} and {NUMBER}\.", PAGE) == pytest.approx(
        [final.min(), final.max()], abs=0.0501
    )


def test_with_the_choice_of_test_pairs_it_would_be_undecided() -> None:
    told = said(rf"that comparisons of rows have\) it would be {TO}, and undecided", PAGE)
    assert told == pytest.approx(with_pairs(RUNS, "top2_accuracy").interval(), abs=0.0501)
    assert told[0] < 35 < told[1]
    assert said(rf"with the choice of pairs counted in {TO}, undecided\)", words_of(FINDINGS)) == told


def test_the_runs_took_the_minutes_that_the_page_says() -> None:
    files = sorted(RUNS.glob("seed-*/manifest.json"), key=lambda path: int(path.parent.name.removeprefix("seed-")))
    manifests = [json.loads(path.read_text()) for path in files]
    pattern = r"`capsbench train config/two-digit-average.yaml .*?They took ([\d, and]+) minutes"
    (told,) = re.findall(pattern, PAGE)
    minutes = [manifest["seconds"] / 60 for manifest in manifests]
    assert [float(word) for word in re.findall(r"\d+", told)] == pytest.approx(minutes, abs=0.501)
    assert {(manifest["resolved"]["threads"], manifest["git"]["dirty"]) for manifest in manifests} == {(1, False)}
