"""What findings.md and mnist.md say of CapsNet on MNIST follows from results/paper; the weights are its own."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from mnist_page import FINDINGS, LINES, PAGE, PAPER, PUBLISHED, ROWS, RUNS, of_every_seed, said
from pages import TO, words_of
from scipy import stats
from tools import unavailable

from capsbench.data.digits import load_digits
from capsbench.data.source import find_source, source_digest, verify
from capsbench.errors import DataError
from capsbench.evaluation.weights import described, score
from capsbench.plan import config_folder
from capsbench.report.collect import collect
from capsbench.report.tables import long_table

TOLD = {("3", "yes"): "3", ("1", "yes"): "1", ("3", "no"): "plain", ("1", "no"): "neither"}  # of the table of seeds
WEIGHTS = PAPER / "weights" / "mnist-capsnet-r3-recon-seed-0.safetensors"


@pytest.fixture(scope="module")
def results():
    return collect(PAPER)


def test_the_first_epoch_is_compared_with_the_losses_that_are_stored() -> None:
    rows = re.findall(
        r"^\| \d+ to (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) % \| (-?[\d.]+) to (-?[\d.]+) % \|$", LINES, re.MULTILINE
    )
    assert [int(step) for step, *_ in rows] == [235, 470]
    losses = [pd.read_csv(RUNS / ROWS["3"] / f"seed-{n}" / "history.csv").set_index("step")["loss"] for n in range(5)]
    for step, *words in rows:
        stored, again, difference, low, high = map(float, words)
        seed, *others = (loss[int(step)] for loss in losses)
        assert stored == pytest.approx(seed, abs=5.01e-6)
        assert difference == pytest.approx(100 * abs(again / seed - 1), abs=0.0151)  # `again` has five decimals
        assert [low, high] == pytest.approx([100 * (of(others) / seed - 1) for of in (min, max)], abs=0.00501)


def test_the_table_of_seeds() -> None:
    row = r"^\| (\d+) \| (yes|no) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$"
    told = re.findall(row, LINES, re.MULTILINE)
    assert [(passes, decoder, int(seed)) for passes, decoder, seed, *_ in told] == [
        (*kind, seed) for kind in TOLD for seed in range(5)
    ]
    seeds = pd.concat([of_every_seed("test", row) for row in TOLD.values()])
    assert [10_000 - int(wrong) for _, _, _, wrong, *_ in told] == list(seeds["correct"])
    columns = [seeds[metric] for metric in ("error", "train_error", "ece")]
    for words, values in zip(told, zip(*columns, strict=True), strict=True):
        assert [float(word) for word in words[4:]] == pytest.approx(values, abs=0.00501)


@pytest.fixture(scope="module")
def errors(results) -> list[list[float]]:
    """Of each row mean, and lower and upper end of the interval."""
    found = {
        row.cell.variant: row.summary
        for row in long_table(results, "mnist")
        if (row.cell.condition, row.cell.metric) == ("test", "error")
    }
    return [[found[row].mean, found[row].low, found[row].high] for row in ROWS.values()]


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    return {claim["id"]: claim for claim in json.loads((PAPER / "claims.json").read_text())["claims"]}


def test_the_means_and_their_intervals(errors) -> None:
    three, one, plain, neither = errors
    number = r"([\d.]+)"
    found = said(
        rf"mean is {number} % \(95 % interval {number} to {number}"
        rf".*? with one it is {number} % \({number} to {number}\)"
        rf".*? Without reconstruction it is {number} % \({number} to {number}\), (\d+) digits, with three passes, "
        rf"and {number} % \({number} to {number}\), (\d+), with one\."
    )
    wrong = found.pop(), found.pop(-4)
    assert found == pytest.approx([value for row in errors for value in row], abs=0.000501)
    assert list(wrong) == [50_000 - of_every_seed("test", row)["correct"].sum() for row in ("neither", "plain")]
    for pattern, rows in {
        r"We have ([\d.]+) and ([\d.]+); the claim's interval": (three, plain),
        r"With one pass the paper has 0\.29 % with it .*? We have ([\d.]+) and ([\d.]+), an interval": (one, neither),
        r"three passes and 0\.34 with one, we ([\d.]+) and ([\d.]+)\.": (plain, neither),
    }.items():
        assert said(pattern) == pytest.approx([mean for mean, *_ in rows], abs=0.000501)
    (digits,) = said(r"10,000 digits by themselves leave ([\d.]+) points")
    assert digits == pytest.approx(1.96 * math.sqrt(three[0] * (100 - three[0]) / 10_000), abs=0.00501)


def test_every_interval_lies_above_the_paper_s_value(errors) -> None:
    rows = re.findall(r"\| CapsNet ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| 5 \|", FINDINGS)
    assert [name for name, *_ in rows] == list(PUBLISHED)
    for (name, *words), (mean, low, high) in zip(rows, errors, strict=True):
        assert [float(word) for word in words] == pytest.approx([mean, PUBLISHED[name], low, high], abs=0.000501)
        assert low > PUBLISHED[name]
    assert "all four of CapsNet's intervals (over seeds) lie above its figures" in FINDINGS
    above = said(rf"{', '.join([rf'{TO} above ([0-9.]+)'] * 4)}\. Three of the verdicts")
    ends = [end for (_, low, high), paper in zip(errors, PUBLISHED.values(), strict=True) for end in (low, high, paper)]
    assert above == pytest.approx(ends, abs=0.000501)


def test_beside_the_paper_s_own_spread_two_are_shown_to_be_above() -> None:
    told = said(
        rf"are shown to be above with reconstruction, by ([\d.]+) points \({TO}\) with three passes and ([\d.]+) "
        rf"\({TO}\) with one, and not without: ([\d.]+) \({TO}\) and ([\d.]+) \({TO}\)\."
    )
    table = yaml.safe_load((config_folder() / "published.yaml").read_text())["values"]
    spread = {row["variant"]: row["sd"] for row in table if row["task"] == "mnist" and row["metric"] == "error"}
    differences = []
    for name, paper in zip(ROWS.values(), PUBLISHED.values(), strict=True):
        theirs = [paper - spread[name], paper, paper + spread[name]]  # three trials of that mean and standard deviation
        found = stats.ttest_ind(of_every_seed("test", name)["error"], theirs, equal_var=False).confidence_interval()
        differences += [(found.low + found.high) / 2, found.low, found.high]
    assert told == pytest.approx(differences, abs=0.00501)


def test_the_verdicts_and_the_differences(claims) -> None:
    verdicts = {name: claim["verdict"] for name, claim in claims.items()}
    assert verdicts["mnist-r3-recon-value"] == verdicts["mnist-ports-value"] == "not reproduced"
    assert verdicts["mnist-r1-recon-value"] == verdicts["mnist-routing-helps"] == "undecided"
    assert verdicts["mnist-r3-value"] == verdicts["mnist-reconstruction-helps"] == "undecided"
    routing, reconstruction = (claims[f"mnist-{what}-helps"] for what in ("routing", "reconstruction"))
    adjusted = [[claim["adjusted_low"], claim["adjusted_high"]] for claim in (routing, reconstruction)]
    alone = [[claim["ci_low"], claim["ci_high"]] for claim in (routing, reconstruction)]
    apart = said(rf"(-?[\d.]+) points of difference.*? {TO} points \(alone {TO}\)")
    assert apart == pytest.approx([routing["effect"], *adjusted[0], *alone[0]], abs=0.00501)
    apart = said(rf"the claim's interval is {TO} points \(alone {TO}\), and the verdict undecided\. The paper")
    assert apart == pytest.approx([*adjusted[1], *alone[1]], abs=0.00501)
    gains = said(
        rf"instead of one, which is no routing, gain ([\d.]+) points \({TO}\); .*? gains ([\d.]+) \({TO}\)\. The paper",
        FINDINGS,
    )
    ends = [
        [-claim["effect"], -high, -low] for claim, (low, high) in zip((routing, reconstruction), adjusted, strict=True)
    ]
    assert gains == pytest.approx([*ends[0], *ends[1]], abs=0.00501)
    assert said(r"The paper has ([\d.]+) and ([\d.]+)\. Both intervals contain these and zero", FINDINGS) == [
        0.04,
        0.10,
    ]
    assert adjusted[0][0] < -0.04 < 0 < adjusted[0][1]
    assert adjusted[1][0] < -0.10 < alone[1][0] < 0 < adjusted[1][1]
    one, same = claims["mnist-reconstruction-helps-r1"], claims["mnist-routing-alone"]
    assert one["verdict"] == same["verdict"] == verdicts["mnist-r1-value"] == "undecided"
    assert "The paper's 0.25 % is not reproduced in 100 epochs, its 0.29, 0.34 and 0.35 are undecided:" in FINDINGS
    apart = said(rf"an interval of {TO} points \(alone {TO}\), and no verdict")
    ends = [one[end] for end in ("adjusted_low", "adjusted_high", "ci_low", "ci_high")]
    assert apart == pytest.approx(ends, abs=0.00501)
    apart = said(
        rf"difference of ([\d.]+) points has an interval \(of two one-sided tests\) of {TO}, and .*? is ([\d.]+)\."
    )
    ends = [same[end] for end in ("effect", "adjusted_low", "adjusted_high", "delta")]
    assert apart == pytest.approx(ends, abs=0.00501)


def test_how_many_digits_the_seeds_have_wrong_together() -> None:
    wrong = {}
    for name, row in ROWS.items():
        wrong[name] = []
        for seed in range(5):
            with np.load(RUNS / row / f"seed-{seed}" / "test" / "predictions.npz") as stored:
                wrong[name].append(stored["predicted"] != stored["labels"])
    found = said(
        r"(\d+) digits are wrong in all five seeds and (\d+) in at least one, "
        r"with one pass (\d+) and (\d+), without reconstruction (\d+) and (\d+), and (\d+) and (\d+); "
        r"(\d+) are wrong in all twenty runs of CapsNet, of which the CNN's seeds have (\d+) and (\d+) wrong"
    )
    counts = [count(wrong[name], 0).sum() for name in ROWS for count in (np.all, np.any)]
    always = np.all(np.concatenate(list(wrong.values())), 0)
    of_the_cnn = []
    for seed in (0, 1):
        with np.load(RUNS / "cnn" / f"seed-{seed}" / "test" / "predictions.npz") as stored:
            of_the_cnn.append((always & (stored["predicted"] != stored["labels"])).sum())
    assert found == [*counts, always.sum(), *of_the_cnn]
    pairs = [np.sum(one != other) for rows in wrong.values() for one, other in itertools.combinations(rows, 2)]
    told = said(
        r"two seeds of one row of CapsNet differ in whether (\d+) to (\d+) of them are right, (\d+) on average\. So "
        r"chance moves the difference of their errors by some ([\d.]+) \(the root of \d+\), and ours are (\d+) above"
    )
    usual = np.mean(pairs)
    assert told == pytest.approx([min(pairs), max(pairs), usual, math.sqrt(usual), 39 - 25], abs=0.501)
    assert told[3] == pytest.approx(math.sqrt(usual), abs=0.0501)
    assert said(r"have (\d+) digits wrong together, either way") == [np.sum(wrong["3"])] == [np.sum(wrong["1"])]


def test_what_more_and_fewer_passes_do() -> None:
    row = r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$"
    told = re.findall(row, LINES, re.MULTILINE)
    seeds = of_every_seed("routing")
    assert [int(passes) for passes, *_ in told] == [1, 2, 3, 5, 10, 30, 100]
    for passes, *words in told:
        error, flips, entropy = (seeds[f"{name}_r{passes}"] for name in ("error", "flips", "entropy"))
        values = [error.mean(), error.min(), error.max(), flips.mean(), entropy.mean()]
        assert [float(word) for word in words] == pytest.approx(values, abs=0.000501)
    found = said(
        r"instead of one make ([\d.]+) % wrong, five ([\d.]+), ten ([\d.]+), from seed to seed ([\d.]+) to ([\d.]+); "
        r"without reconstruction ([\d.]+), ([\d.]+), ([\d.]+), and ([\d.]+) to ([\d.]+)\."
    )
    expected: list[float] = []
    for row in ("1", "neither"):
        three, five, ten = (of_every_seed("routing", row)[f"error_r{passes}"] for passes in (3, 5, 10))
        expected += [three.mean(), five.mean(), ten.mean(), ten.min(), ten.max()]
    assert found == pytest.approx(expected, abs=0.0501)


def test_what_the_couplings_say() -> None:
    seeds = of_every_seed("routing")
    uniform = seeds["entropy_r3"].mean()
    (entropy,) = said(r"entropy is ([\d.]+) of the greatest possible")
    assert entropy == pytest.approx(uniform, abs=0.0000501)
    ends = said(r"instead of three, ([\d.]+) to ([\d.]+) % of the answers change")
    assert ends == pytest.approx([seeds["flips_r1"].min(), seeds["flips_r1"].max()], abs=1e-9)
    off = 100 * math.sqrt(2 * math.log(10) * (1 - uniform))  # of a share's tenth, to second order
    assert said(r"typically within (\d+) % of a tenth") == pytest.approx([off], abs=0.501)
    bits = [seeds["mutual_information"].mean(), math.log2(10)]
    assert said(r"tells ([\d.]+) of ([\d.]+) bits") == pytest.approx(bits, abs=0.00501)


def test_how_the_change_of_the_logits_grows() -> None:
    def of_every_row(name: str) -> pd.DataFrame:
        files = sorted((RUNS / name).glob("seed-*/routing/logits.csv"))
        return pd.concat([pd.read_csv(path).set_index("iteration")["change"] for path in files], axis=1)

    rows = {name: of_every_row(name) for name in ROWS.values()}
    found = said(
        r"is ([\d.]+) at the second, then ([\d.]+), ([\d.]+) and ([\d.]+) at the fifth, and levels off at ([\d.]+)\."
    )
    mean = rows["capsnet-r3-recon"].mean(axis=1)
    assert found == pytest.approx([mean[passes] for passes in (2, 3, 4, 5, 100)], abs=0.000501)
    assert sum(len(of.columns) for of in rows.values()) == 20  # "in all twenty runs"
    for of in rows.values():
        assert (of.loc[2:5].diff().dropna() > 0).all(axis=None)
    fifth = [of.loc[5].mean() for of in rows.values()]
    assert said(r"([\d.]+) to ([\d.]+) by row at the fifth") == pytest.approx([min(fifth), max(fifth)], abs=0.0000501)


def test_what_attacks_and_lengths_say() -> None:
    attacked = of_every_seed("attacked").mean()
    found = said(r"PGD make ([\d.]+) % of the first 1,000 digits wrong; ([\d.]+) % are wrong without")
    assert found == pytest.approx([attacked["pgd_error_e10"], attacked["error"]], abs=0.0501)
    others = said(r"With one pass it is ([\d.]+) %, without reconstruction ([\d.]+), with neither ([\d.]+);")
    of_others = [of_every_seed("attacked", row)["pgd_error_e10"].mean() for row in ("1", "plain", "neither")]
    assert others == pytest.approx(of_others, abs=0.0501)
    assert "FGSM at all four sizes and by PGD at 0.05, 0.1 and 0.2 (at 0.3 each loses 99 % or more)" in PAGE
    assert min(of_every_seed("attacked", row)["pgd_error_e30"].min() for row in ROWS) >= 99
    for one, three in (("1", "3"), ("neither", "plain")):
        few, many = of_every_seed("attacked", one), of_every_seed("attacked", three)
        sizes = [name for name in few if "_error_" in name]
        assert len(sizes) == 8
        assert {name for name in sizes if few[name].max() >= many[name].min()} <= {"pgd_error_e30"}
    below = said(
        r"length is on average (\d+) points below how often it is right\*\* "
        r"\(with one pass (\d+), without reconstruction (\d+), with neither (\d+)\)"
    )
    assert below == pytest.approx([-of_every_seed("test", row)["overconfidence"].mean() for row in ROWS], abs=0.5)


def test_what_it_took(results) -> None:
    of_row = {
        name: [run.manifest for run in results.runs.values() if (run.key.task, run.key.variant) == ("mnist", row)]
        for name, row in ROWS.items()
    }
    seconds, of_one, of_plain, of_neither = (min(manifest.seconds for manifest in of_row[name]) for name in ROWS)
    (whole,) = said(r"trained the five seeds at once in (\d+) s")
    of_all, each, held = said(
        r"An epoch of all five took ([\d.]+) s, ([\d.]+) s for each one's share, and the five held ([\d.]+) GiB"
    )
    assert whole == pytest.approx(seconds, abs=0.501)
    later = said(
        r"took (\d+) s on another H200 later that day, "
        r"`--variant capsnet-r3` (\d+) s .*?, `--variant capsnet-r1` (\d+) s"
    )
    assert later == pytest.approx([of_one, of_plain, of_neither], abs=0.501)
    of_cnn = {
        run.key.seed: run.manifest
        for run in results.runs.values()
        if (run.key.task, run.key.variant) == ("mnist", "cnn")
    }
    told, epoch = said(
        r"The CNN's seed 0 took (\d+) s \(`--variant cnn --seed 0`\), ([\d.]+) s an epoch, and so did seed 1"
    )
    assert {seed: manifest.git.commit[:7] for seed, manifest in of_cnn.items()} == {0: "0ef0444", 1: "55798ce"}
    for manifest in of_cnn.values():
        assert [told, 100 * epoch] == [
            pytest.approx(manifest.seconds, abs=0.501),
            pytest.approx(manifest.seconds, abs=5),
        ]
    assert of_all == pytest.approx(seconds / 100, abs=0.0501)
    assert each == pytest.approx(seconds / 5 / 100, abs=0.00501)
    assert held == pytest.approx(max(manifest.peak_memory_mb for manifest in of_row["3"]) / 1024, abs=0.0501)
    for name, commit in (("3", "5f8b10d"), ("1", "8268009"), ("plain", "7fa28ef"), ("neither", "0ef0444")):
        assert {manifest.resolved["seeds_at_once"] for manifest in of_row[name]} == {5}
        assert {manifest.git.commit[:7] for manifest in of_row[name]} == {commit}
        assert commit in PAGE
    assert "([five to seven minutes](mnist.md#what-it-took) for CapsNet's five seeds, seven for one seed" in FINDINGS
    rows = [seconds, of_one, of_plain, of_neither]
    assert [round(took / 60) for took in (min(rows), max(rows), of_cnn[1].seconds)] == [5, 7, 7]


def test_the_weights_are_those_of_seed_0_and_give_the_figure_that_readme_says() -> None:
    manifest = json.loads((RUNS / ROWS["3"] / "seed-0" / "manifest.json").read_text())
    about = described(WEIGHTS)
    assert about["run_digest"] == manifest["digest"]
    assert about["run"] == manifest["run"]
    assert (about["images"], about["images"] - about["correct"]) == (10_000, 42)
    assert "0.42 % on MNIST" in words_of("README.md")
    assert WEIGHTS.stat().st_size < 17e6


@pytest.mark.slow
def test_scored_again_on_a_cpu_they_give_it() -> None:
    try:
        source = find_source("mnist")
    except DataError as error:
        unavailable(str(error))
    verify(source)
    assert source_digest(source) == described(WEIGHTS)["data_digest"]
    assert score(WEIGHTS, load_digits(source, torch.device("cpu")), torch.device("cpu")) == (9958, 10_000)
