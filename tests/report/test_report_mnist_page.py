"""What README and docs/mnist.md say of MNIST follows from the runs of results/paper, and the weights are theirs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tools import unavailable

from capsbench.data.digits import load_digits
from capsbench.data.source import find_source, source_digest, verify
from capsbench.errors import DataError
from capsbench.evaluation.weights import described, score
from capsbench.report.collect import collect
from capsbench.report.tables import long_table

REPOSITORY = Path(__file__).resolve().parents[2]
PAPER = REPOSITORY / "results" / "paper"
RUNS = PAPER / "runs" / "mnist" / "capsnet-r3-recon"
LINES = (REPOSITORY / "docs" / "mnist.md").read_text()
PAGE, README = (" ".join(text.split()) for text in (LINES, (REPOSITORY / "README.md").read_text()))
WEIGHTS = PAPER / "weights" / "mnist-capsnet-r3-recon-seed-0.safetensors"


@pytest.fixture(scope="module")
def results():
    return collect(PAPER)


def of_every_seed(condition: str) -> pd.DataFrame:
    """A condition's metrics, a row a seed."""
    files = [RUNS / f"seed-{seed}" / condition / "metrics.json" for seed in range(5)]
    return pd.DataFrame(
        {name: of["value"] for name, of in json.loads(path.read_text())["metrics"].items()} for path in files
    )


def said(pattern: str, text: str = PAGE) -> list[float]:
    """The numbers that a text has in the place of the groups of `pattern`."""
    found = re.search(pattern, text)
    assert found is not None, f"it no longer says what this test reads with {pattern!r}; mend either"
    return [float(word) for word in found.groups()]


def test_the_table_of_seeds() -> None:
    told = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", LINES, re.MULTILINE)
    seeds = of_every_seed("test")
    assert [(int(seed), 10_000 - int(wrong)) for seed, wrong, *_ in told] == list(enumerate(seeds["correct"]))
    columns = [seeds[metric] for metric in ("error", "train_error", "ece")]
    for row, values in zip(told, zip(*columns, strict=True), strict=True):
        assert [float(word) for word in row[2:]] == pytest.approx(values, abs=0.00501)


def test_the_mean_its_interval_and_the_verdicts(results) -> None:
    (row,) = (
        row.summary
        for row in long_table(results, "mnist")
        if (row.cell.variant, row.cell.condition, row.cell.metric) == ("capsnet-r3-recon", "test", "error")
    )
    of_seeds = [row.mean, row.low, row.high]
    found = said(r"The mean is ([\d.]+) % \(95 % interval ([\d.]+) to ([\d.]+)")
    assert found == pytest.approx(of_seeds, abs=0.000501)
    pattern = r"CapsNet gets ([\d.]+) % of the test digits wrong; .* interval over seeds is ([\d.]+) to ([\d.]+)\."
    assert said(pattern, README) == pytest.approx(of_seeds, abs=0.00501)
    claims = {claim["id"]: claim["verdict"] for claim in json.loads((PAPER / "claims.json").read_text())["claims"]}
    assert claims["mnist-r3-recon-value"] == claims["mnist-ports-value"] == "not reproduced"
    (digits,) = said(r"10,000 digits by themselves leave ([\d.]+) points")
    assert digits == pytest.approx(1.96 * math.sqrt(row.mean * (100 - row.mean) / 10_000), abs=0.00501)
    (apart,) = said(r"are ([\d.]+) standard deviations apart")
    assert apart == pytest.approx((39 - 25) / math.sqrt(39 + 25), abs=0.00501)


def test_how_many_digits_the_seeds_have_wrong_together() -> None:
    wrong = []
    for seed in range(5):
        with np.load(RUNS / f"seed-{seed}" / "test" / "predictions.npz") as stored:
            wrong.append(stored["predicted"] != stored["labels"])
    found = said(r"(\d+) digits are wrong in all five seeds, (\d+) in at least one")
    assert found == [np.all(wrong, 0).sum(), np.any(wrong, 0).sum()]


def test_what_more_and_fewer_passes_do() -> None:
    row = r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$"
    told = re.findall(row, LINES, re.MULTILINE)
    seeds = of_every_seed("routing")
    assert [int(passes) for passes, *_ in told] == [1, 2, 3, 5, 10, 30, 100]
    for passes, *words in told:
        error, flips, entropy = (seeds[f"{name}_r{passes}"] for name in ("error", "flips", "entropy"))
        values = [error.mean(), error.min(), error.max(), flips.mean(), entropy.mean()]
        assert [float(word) for word in words] == pytest.approx(values, abs=0.000501)


def test_what_the_couplings_say() -> None:
    seeds = of_every_seed("routing")
    uniform = seeds["entropy_r3"].mean()
    for text in (README, PAGE):
        (entropy,) = said(r"entropy is ([\d.]+) of the greatest possible", text)
        assert entropy == pytest.approx(uniform, abs=0.0000501)
        ends = said(r"instead of three, ([\d.]+) to ([\d.]+) % of the answers change", text)
        assert ends == pytest.approx([seeds["flips_r1"].min(), seeds["flips_r1"].max()], abs=1e-9)
    off = 100 * math.sqrt(2 * math.log(10) * (1 - uniform))  # of a share's tenth, to second order
    assert said(r"typically within (\d+) % of a tenth") == pytest.approx([off], abs=0.501)
    bits = [seeds["mutual_information"].mean(), math.log2(10)]
    assert said(r"tells ([\d.]+) of ([\d.]+) bits") == pytest.approx(bits, abs=0.00501)


def test_what_attacks_and_lengths_say() -> None:
    attacked = of_every_seed("attacked").mean()
    found = said(r"PGD make ([\d.]+) % of the first 1,000 digits wrong; ([\d.]+) % are wrong without")
    assert found == pytest.approx([attacked["pgd_error_e10"], attacked["error"]], abs=0.0501)
    (below,) = said(r"length is on average (\d+) points below")
    assert below == pytest.approx(-of_every_seed("test")["overconfidence"].mean(), abs=0.5)


def test_what_it_took(results) -> None:
    manifests = [run.manifest for run in results.runs.values() if run.key.task == "mnist"]
    seconds = min(manifest.seconds for manifest in manifests)
    (whole,) = said(r"trained the five seeds at once in (\d+) s")
    of_all, each, held = said(
        r"An epoch of all five took ([\d.]+) s, ([\d.]+) s for each one's share, and the five held ([\d.]+) GiB"
    )
    assert whole == pytest.approx(seconds, abs=0.501)
    assert of_all == pytest.approx(seconds / 100, abs=0.0501)
    assert each == pytest.approx(seconds / 5 / 100, abs=0.00501)
    assert held == pytest.approx(max(manifest.peak_memory_mb for manifest in manifests) / 1024, abs=0.0501)
    assert {manifest.resolved["seeds_at_once"] for manifest in manifests} == {5}
    assert {manifest.git.commit[:7] for manifest in manifests} == {"5f8b10d"}
    assert said(r"\((\d+) s for the five\)", README) == [whole]


def test_the_weights_are_those_of_seed_0_and_give_the_figure_that_readme_says() -> None:
    manifest = json.loads((RUNS / "seed-0" / "manifest.json").read_text())
    about = described(WEIGHTS)
    assert about["run_digest"] == manifest["digest"]
    assert about["run"] == manifest["run"]
    assert (about["images"], about["images"] - about["correct"]) == (10_000, 42)
    assert "0.42 % on MNIST" in README
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
