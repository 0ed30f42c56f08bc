"""What docs/two-digits.md says of Su's CNN with other seeds follows from results/two-digit-average."""

from __future__ import annotations

import json
import re

import pytest
from pages import BESIDE, RESULTS, SINGLE, STACKED, TWO_DIGITS, numbers, of_seeds, rows_of, words_of

from capsbench.plan import House, config_folder

AVERAGE = RESULTS / "two-digit-average"
RUNS = AVERAGE / "runs" / "two_digit" / "two-digit-average-mlp"
SECTION = "Su's CNN, fifteen more seeds"
COUNTS = ("no", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")


def test_every_run_there_is_has_its_line_and_is_counted() -> None:
    seeds = list(of_seeds(RUNS, *STACKED).index)
    planned = House.load(config_folder() / "two-digit-average.yaml").cells[0].seeds
    assert seeds == list(planned)[: len(seeds)]
    rows = rows_of(TWO_DIGITS, [str(seed) for seed in seeds], columns=4, section=SECTION)
    for seed, cells in zip(seeds, rows.values(), strict=True):
        told = [value for cell in cells for value in numbers(cell)]
        expected = [of_seeds(RUNS, *what)[seed] for what in (STACKED, BESIDE, SINGLE)]
        assert told == [pytest.approx(expected[0], abs=0.0501), pytest.approx(expected[1], abs=0.0501),
                        pytest.approx(expected[2], abs=0.00501)]  # fmt: skip
    count = COUNTS[len(seeds)]
    assert f"**{count} of the fifteen are there**" in words_of(TWO_DIGITS)
    assert f"{count.lower()} of the fifteen of `config/two-digit-average.yaml`" in words_of(TWO_DIGITS)
    assert f"{count.lower()} of fifteen more (`config/two-digit-average.yaml`)" in words_of("docs/reproduction.md")


def test_no_claim_is_judged_before_all_are_there() -> None:
    claims = json.loads((AVERAGE / "claims.json").read_text())["claims"]
    of_row = [c for c in claims if c["id"] in ("two-digit-cnn-value", "two-digit-cnn-both-value")]
    assert [claim["verdict"] for claim in of_row] == ["undecided", "undecided"]


def test_the_runs_took_the_minutes_that_the_page_says() -> None:
    files = sorted(RUNS.glob("seed-*/manifest.json"), key=lambda path: int(path.parent.name.removeprefix("seed-")))
    manifests = [json.loads(path.read_text()) for path in files]
    pattern = r"`capsbench train config/two-digit-average.yaml .*?They took ([\d, and]+) minutes"
    (told,) = re.findall(pattern, words_of(TWO_DIGITS))
    minutes = [manifest["seconds"] / 60 for manifest in manifests]
    assert [float(word) for word in re.findall(r"\d+", told)] == pytest.approx(minutes, abs=0.501)
    assert {(manifest["resolved"]["threads"], manifest["git"]["dirty"]) for manifest in manifests} == {(1, False)}
