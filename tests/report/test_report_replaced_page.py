"""What docs/two-digits-seeds.md says of replaced logits with other seeds follows from results/two-digit-replaced."""

from __future__ import annotations

import json

import pytest
from pages import (
    BESIDE,
    FINDINGS,
    NUMBER,
    OTHER_SEEDS,
    RESULTS,
    STACKED,
    TO,
    lines_of_seeds,
    of_seeds,
    said,
    with_pairs,
    words_of,
)
from scipy import stats

from capsbench.plan import House, config_folder
from capsbench.report.statistics import holm

REPLACED = RESULTS / "two-digit-replaced"
RUNS = REPLACED / "runs" / "two_digit" / "two-digit-replace"
SECTION = "Replaced logits, ten more seeds"
FINAL = ("56x28", "final_top2_accuracy")


def test_every_run_there_is_has_its_line() -> None:
    planned = House.load(config_folder() / "two-digit-replaced.yaml").cells[0].seeds
    assert lines_of_seeds(RUNS, SECTION) == list(planned)


def test_the_verdicts_are_those_that_the_page_and_findings_tell() -> None:
    claims = {claim["id"]: claim for claim in json.loads((REPLACED / "claims.json").read_text())["claims"]}
    one, both = claims["two-digit-replace-over-90"], claims["two-digit-replace-over-90-both"]
    assert [claim["verdict"] for claim in (one, both)] == ["reproduced", "reproduced"]
    page = words_of(OTHER_SEEDS)
    means = said(rf"reproduce it, narrowly:\*\* {NUMBER} % \({TO}\)", page)
    assert means == pytest.approx([90 + one[key] for key in ("effect", "ci_low", "ci_high")], abs=0.0501)
    told = said(rf"narrowly \({NUMBER} %, {NUMBER} points above, Holm-adjusted {TO}\)", words_of(FINDINGS))
    assert told[0] == means[0]
    assert told[1:] == pytest.approx([one[key] for key in ("effect", "adjusted_low", "adjusted_high")], abs=0.00501)
    told = said(rf"{NUMBER} points above 90 \(Holm-adjusted {TO}, p {NUMBER}\), and {NUMBER} \({TO}\)", page)
    keys = ("effect", "adjusted_low", "adjusted_high", "p_holm")
    assert told[:4] == pytest.approx([one[key] for key in keys], abs=0.00501)
    assert told[4:] == pytest.approx([90 + both[key] for key in ("effect", "ci_low", "ci_high")], abs=0.0501)
    adjusted = said(rf"above one half \({NUMBER} points, Holm-adjusted {TO}\)", page)
    assert adjusted == pytest.approx([both[key] for key in keys[:3]], abs=0.00501)
    (p,) = said(rf"that comparisons of rows have\) p would be {NUMBER}\.", page)
    by_pairs = [with_pairs(RUNS, metric, less=90).p() for metric in ("top2_accuracy", "both_above_half_accuracy")]
    by_pairs.append(1.0)  # the third claim has no run here
    assert holm(by_pairs)[:2] == [pytest.approx(p, abs=0.000501)] * 2
    for pattern, what in (("final weights, which Su tests, have", FINAL), ("Side by side they name both in", BESIDE)):
        seeds = of_seeds(RUNS, *what)
        half = stats.t.ppf(0.975, 9) * seeds.sem()
        expected = [seeds.mean(), seeds.mean() - half, seeds.mean() + half]
        assert said(rf"{pattern} {NUMBER} \({TO}\)", page) == pytest.approx(expected, abs=0.0501)
    seeds = of_seeds(RUNS, *STACKED)
    assert said(rf"Single seeds reach from {TO}:", page) == pytest.approx([seeds.min(), seeds.max()], abs=0.0501)


def test_the_runs_took_the_minutes_that_the_page_says() -> None:
    files = sorted(RUNS.glob("seed-*/manifest.json"), key=lambda path: int(path.parent.name.removeprefix("seed-")))
    manifests = [json.loads(path.read_text()) for path in files]
    minutes = [manifest["seconds"] / 60 for manifest in manifests]
    assert len(minutes) == 10
    each = ", ".join([NUMBER] * 9)
    told = said(rf"They took {each} and {NUMBER} minutes", words_of(OTHER_SEEDS))
    assert told == pytest.approx(minutes, abs=0.501)
    assert {(manifest["resolved"]["threads"], manifest["git"]["dirty"]) for manifest in manifests} == {(1, False)}
