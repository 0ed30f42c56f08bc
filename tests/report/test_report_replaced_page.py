"""What docs/two-digits.md says of replaced logits with other seeds follows from results/two-digit-replaced."""

from __future__ import annotations

import json

import pytest
from pages import BESIDE, RESULTS, SINGLE, STACKED, TWO_DIGITS, numbers, of_seeds, rows_of, said, words_of

from capsbench.plan import House, config_folder

REPLACED = RESULTS / "two-digit-replaced"
RUNS = REPLACED / "runs" / "two_digit" / "two-digit-replace"
SECTION = "Replaced logits, ten more seeds"
WORDS = {1: "One", 2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight", 9: "Nine"}


def test_every_run_there_is_has_its_line() -> None:
    seeds = list(of_seeds(RUNS, *STACKED).index)
    planned = House.load(config_folder() / "two-digit-replaced.yaml").cells[0].seeds
    assert set(seeds) < set(planned)
    assert f"{WORDS[len(seeds)]} of its ten runs are there" in words_of(TWO_DIGITS)
    rows = rows_of(TWO_DIGITS, [str(seed) for seed in seeds], columns=4, section=SECTION)
    for seed, cells in zip(seeds, rows.values(), strict=True):
        told = [value for cell in cells for value in numbers(cell)]
        expected = [of_seeds(RUNS, *what)[seed] for what in (STACKED, BESIDE, SINGLE)]
        assert told == [pytest.approx(expected[0], abs=0.0501), pytest.approx(expected[1], abs=0.0501),
                        pytest.approx(expected[2], abs=0.00501)]  # fmt: skip


def test_no_claim_has_a_verdict_before_all_ten_runs_are_there() -> None:
    claims = json.loads((REPLACED / "claims.json").read_text())["claims"]
    over = [claim for claim in claims if claim["id"].startswith("two-digit-replace-over-90")]
    assert [claim["verdict"] for claim in over] == ["undecided", "undecided"]
    assert "no claim gets a verdict before all are" in words_of(TWO_DIGITS)


def test_the_runs_took_the_minutes_that_the_page_says() -> None:
    files = sorted(RUNS.glob("seed-*/manifest.json"), key=lambda path: int(path.parent.name.removeprefix("seed-")))
    manifests = [json.loads(path.read_text()) for path in files]
    minutes = [manifest["seconds"] / 60 for manifest in manifests]
    assert len(minutes) == 7
    told = said(r"These seven took (\d+), (\d+), (\d+), (\d+), (\d+), (\d+) and (\d+) minutes", words_of(TWO_DIGITS))
    assert told == pytest.approx(minutes, abs=0.501)
    assert {(manifest["resolved"]["threads"], manifest["git"]["dirty"]) for manifest in manifests} == {(1, False)}
