"""What docs/two-digits-seeds.md says of Su's CNN with other seeds follows from results/two-digit-average."""

from __future__ import annotations

import json
import re

import pytest
from pages import OTHER_SEEDS, RESULTS, TWO_DIGITS, lines_of_seeds, words_of

from capsbench.plan import House, config_folder

AVERAGE = RESULTS / "two-digit-average"
RUNS = AVERAGE / "runs" / "two_digit" / "two-digit-average-mlp"
SECTION = "Su's CNN, fifteen more seeds"
COUNTS = (
    *("none", "One", "Two", "Three", "Four", "Five", "Six", "Seven"),
    *("Eight", "Nine", "Ten", "Eleven", "Twelve", "Thirteen", "Fourteen"),
)


def test_every_run_there_is_has_its_line_and_is_counted() -> None:
    planned = House.load(config_folder() / "two-digit-average.yaml").cells[0].seeds
    seeds = lines_of_seeds(RUNS, SECTION)
    assert seeds == list(planned)[: len(seeds)]
    count = COUNTS[len(seeds)]
    assert f"**{count} of the fifteen are there**" in words_of(OTHER_SEEDS)
    assert f"{count.lower()} of the fifteen of `config/two-digit-average.yaml`" in words_of(TWO_DIGITS)
    assert f"{count.lower()} of fifteen more (`config/two-digit-average.yaml`)" in words_of("docs/reproduction.md")


def test_before_all_are_there_only_the_number_of_parameters_is_judged() -> None:
    claims = json.loads((AVERAGE / "claims.json").read_text())["claims"]
    verdicts = {claim["id"]: claim["verdict"] for claim in claims if claim["verdict"] != "not run"}
    errors = [f"two-digit-cnn-{what}value" for what in ("", "both-", "single-")]
    assert verdicts == {**dict.fromkeys(errors, "undecided"), "parameters-two-digit-cnn": "reproduced"}
    assert "before all are, none of their figures is judged" in words_of(OTHER_SEEDS)


def test_the_runs_took_the_minutes_that_the_page_says() -> None:
    files = sorted(RUNS.glob("seed-*/manifest.json"), key=lambda path: int(path.parent.name.removeprefix("seed-")))
    manifests = [json.loads(path.read_text()) for path in files]
    pattern = r"`capsbench train config/two-digit-average.yaml .*?They took ([\d, and]+) minutes"
    (told,) = re.findall(pattern, words_of(OTHER_SEEDS))
    minutes = [manifest["seconds"] / 60 for manifest in manifests]
    assert [float(word) for word in re.findall(r"\d+", told)] == pytest.approx(minutes, abs=0.501)
    assert {(manifest["resolved"]["threads"], manifest["git"]["dirty"]) for manifest in manifests} == {(1, False)}
