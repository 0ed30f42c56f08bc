"""What findings.md and mnist.md say of Table 1's CNN follows from its runs of results/paper."""

from __future__ import annotations

import json
import re

import pytest
from mnist_page import FINDINGS, LINES, PAPER, PUBLISHED, ROWS, RUNS, of_every_seed, said
from pages import TO

from capsbench.report.collect import collect
from capsbench.report.tables import long_table


def test_what_is_said_of_the_cnn_s_two_runs() -> None:
    results = collect(PAPER)
    claims = {claim["id"]: claim for claim in json.loads((PAPER / "claims.json").read_text())["claims"]}
    assert len(list(RUNS.glob("cnn/seed-*"))) == 2
    cnn, attacked = (of_every_seed(condition, "cnn", seeds=2) for condition in ("test", "attacked"))
    told = re.findall(r"^\| CNN \| \| (\d) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", LINES, re.MULTILINE)
    assert [int(seed) for seed, *_ in told] == [0, 1]
    mistakes = [10_000 - count for count in cnn["correct"]]
    assert [int(count) for _, count, *_ in told] == mistakes
    for metric, words in zip(("error", "train_error", "ece"), list(zip(*told, strict=True))[2:], strict=True):
        assert [float(word) for word in words] == pytest.approx(cnn[metric].tolist(), abs=0.00501)
    (row,) = (
        row.summary
        for row in long_table(results, "mnist")
        if (row.cell.variant, row.cell.condition, row.cell.metric) == ("cnn", "test", "error")
    )
    words = said(r"\| CNN \| ([\d.]+) \| 0\.39 \| ([\d.]+) to ([\d.]+) \| 2 \|", FINDINGS)
    assert words == pytest.approx([row.mean, row.low, row.high], abs=0.00501)
    wrong = [10_000 - count for name in ROWS for count in of_every_seed("test", name)["correct"]]
    told = said(
        r"have (\d+) and (\d+) digits wrong, each more than any of CapsNet's twenty, which have (\d+) to (\d+)\."
    )
    assert told == [*mistakes, min(wrong), max(wrong)]
    assert min(mistakes) > max(wrong)
    told = said(r"20 runs have (\d+) to (\d+) of 10,000 digits wrong, the CNN's two runs (\d+) and (\d+)", FINDINGS)
    assert told == [min(wrong), max(wrong), *mistakes]
    above = said(r"0\.39 % too, by ([\d.]+) points, as CapsNet lies ([\d.]+) to ([\d.]+) above")
    means = [of_every_seed("test", name)["error"].mean() for name in ROWS]
    gaps = [mean - paper for mean, paper in zip(means, PUBLISHED.values(), strict=True)]
    assert above == pytest.approx([row.mean - 0.39, min(gaps), max(gaps)], abs=0.00501)
    each = said(
        r"its own figure too, by ([\d.]+) and ([\d.]+) points, .*? interval \(([\d.]+) to ([\d.]+)\) contains it"
    )
    assert each == pytest.approx([*(cnn["error"] - 0.39), row.low, row.high], abs=0.00501)
    assert row.low < 0.39 < row.high
    three = of_every_seed("attacked").mean()
    told = said(
        r"of the CNN's two runs ([\d.]+) and ([\d.]+)\. By FGSM of 0\.1 these lose ([\d.]+) and ([\d.]+) %, "
        r"where three passes with reconstruction lose ([\d.]+); by FGSM of 0\.2 and 0\.3 they lose more than any row "
        r"of CapsNet \(([\d.]+) and ([\d.]+) % in the mean, three passes with reconstruction ([\d.]+) and ([\d.]+)\)"
    )
    larger = ["fgsm_error_e20", "fgsm_error_e30"]
    of_each = [*attacked["pgd_error_e10"], *attacked["fgsm_error_e10"], three["fgsm_error_e10"]]
    assert told == pytest.approx([*of_each, *attacked[larger].mean(), *three[larger]], abs=0.0501)
    for row in ROWS:
        assert (attacked[larger].mean() > of_every_seed("attacked", row)[larger].mean()).all()
    (over,) = said(r"the CNN's highest score ([\d.]+) above in both runs")
    assert cnn["overconfidence"].tolist() == pytest.approx([over, over], abs=0.0501)
    beats = claims["mnist-capsnet-beats-cnn"]
    apart = said(rf"CapsNet's error is ([\d.]+) points lower, .*? \({TO} points, Holm-adjusted {TO}\)")
    ends = [beats[end] for end in ("ci_low", "ci_high", "adjusted_low", "adjusted_high")]
    assert apart == pytest.approx([-beats["effect"], *ends], abs=0.00501)
    of_it = [
        claims[f"mnist-{name}"]["verdict"] for name in ("cnn-value", "capsnet-beats-cnn", "plain-capsnet-beats-cnn")
    ]
    assert of_it == ["undecided"] * 3
