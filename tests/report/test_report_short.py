"""What README says in short is what docs/findings.md says in full, which other tests hold to the runs."""

from __future__ import annotations

import json
import re

import pytest
from pages import FINDINGS, NUMBER, REPOSITORY, RESULTS, TO, said, words_of

from capsbench.plan import House, config_folder

README, IN_FULL = words_of("README.md"), words_of(FINDINGS)


def rows(name: str) -> dict[str, list[str]]:
    """The rows of a page's tables with an interval, by their first cell."""
    lines = (line for line in (REPOSITORY / name).read_text().splitlines() if line.startswith("| "))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: others for first, *others in cells if any(re.fullmatch(TO, cell) for cell in others)}


def test_its_rows_are_those_of_the_page() -> None:
    short, full = rows("README.md"), rows(FINDINGS)
    assert len(short) == 12
    assert [name for name in full if name in short] == list(short)
    assert short == {name: full[name] for name in short}
    of_mnist = [name for name, cells in full.items() if len(cells) == 4]
    assert set(of_mnist) <= short.keys(), "README has every row of MNIST"


def test_the_figures_of_its_sentences_are_those_of_the_page() -> None:
    ours, theirs = rf"{NUMBER} points \({TO}\)", r"the paper has ([\d.]+) and ([\d.]+)\."
    short = said(rf"gains {ours}, reconstruction {NUMBER} \({TO}\), where {theirs}", README)
    full = said(rf"gain {ours}; .*? gains {NUMBER} \({TO}\)\. {theirs.capitalize()}", IN_FULL)
    assert short == full
    for name in ("0.25 %", "0.29, 0.34 and 0.35"):
        assert name in IN_FULL
        assert name in README
    plain = said(rf"the same single digits in {NUMBER} % at best\*\* \(side by side in up to {NUMBER} %\)", IN_FULL)
    assert said(rf"do not\*\* \({NUMBER} % at best; side by side {NUMBER}\)", README) == plain
    of_capsnet = said(rf"side by side it does not explain CapsNet's {NUMBER} %", IN_FULL)
    assert said(rf"The paper's CapsNet has {NUMBER} % side by side", README) == of_capsnet


def test_its_counts_are_those_of_the_page_and_of_the_plan() -> None:
    finished, planned = said(r"(\d+) of the (\d+) runs of `config/paper\.yaml` have run:", README)
    assert [finished, planned] == said(r"(\d+) of the (\d+) runs of `config/paper\.yaml` have run:", IN_FULL)
    assert said(r"leaves the (\d+) runs alone", README) == [finished]
    counts = json.loads((RESULTS / "paper" / "claims.json").read_text())["counts"]
    told = said(r"Of \[(\d+) claims\][^ ]* (\d+) are reproduced, (\d+) not, (\d+) undecided and (\d+) not run:", README)
    verdicts = ("reproduced", "not reproduced", "undecided", "not run")
    assert told == [sum(counts.values()), *(counts[verdict] for verdict in verdicts)]
    cells = House.load(config_folder() / "paper.yaml").cells
    (seeds,) = (cell.seeds for cell in cells if (cell.task, cell.variant) == ("mnist", "cnn"))
    there = len(list((RESULTS / "paper" / "runs" / "mnist" / "cnn").glob("seed-*/manifest.json")))
    assert (len(seeds) - there, len(seeds)) == (3, 5)
    assert "**Whether CapsNet beats the CNN is undecided**: three of the CNN's five runs are missing." in README


@pytest.mark.parametrize(
    ("plan", "claim", "verdict"),
    [
        ("two-digit-again", "two-digit-dynamic-harms", "reproduced"),
        ("two-digit-again", "two-digit-routing-helps-beside", "reproduced"),
        ("paper", "two-digit-routing-helps", "undecided"),
        ("paper", "mnist-capsnet-beats-cnn", "undecided"),
        ("paper", "mnist-r3-recon-value", "not reproduced"),
    ],
)
def test_what_it_says_of_routing_and_of_the_cnn_are_verdicts(plan: str, claim: str, verdict: str) -> None:
    claims = json.loads((RESULTS / plan / "claims.json").read_text())["claims"]
    assert [each["verdict"] for each in claims if each["id"] == claim] == [verdict]
