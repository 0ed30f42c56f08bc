"""What README and docs/mnist.md say of MNIST follows from the runs of results/paper, and the weights are theirs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from capsbench.data.source import find_source, source_digest, verify
from capsbench.errors import DataError
from capsbench.evaluation.weights import described, score
from capsbench.report.collect import collect
from capsbench.report.tables import long_table

REPOSITORY = Path(__file__).resolve().parents[2]
PAPER = REPOSITORY / "results" / "paper"
PAGE = (REPOSITORY / "docs" / "mnist.md").read_text()
README = " ".join((REPOSITORY / "README.md").read_text().split())
WEIGHTS = PAPER / "weights" / "mnist-capsnet-r3-recon-seed-0.safetensors"


@pytest.fixture(scope="module")
def results():
    return collect(PAPER)


@pytest.fixture(scope="module")
def frame(results) -> pd.DataFrame:
    return results.frame[(results.frame.task == "mnist") & (results.frame.variant == "capsnet-r3-recon")]


def means_of(condition: str) -> pd.Series:
    """Of every metric of a condition, the mean over the seeds."""
    files = sorted((PAPER / "runs" / "mnist" / "capsnet-r3-recon").glob(f"seed-*/{condition}/metrics.json"))
    assert len(files) == 5
    found = [{name: of["value"] for name, of in json.loads(path.read_text())["metrics"].items()} for path in files]
    return pd.DataFrame(found).mean()


def of_seeds(frame: pd.DataFrame, condition: str, metric: str) -> list[float]:
    rows = frame[(frame.condition == condition) & (frame.metric == metric)]
    return list(rows.sort_values("seed").value)


def test_the_table_of_seeds(frame: pd.DataFrame) -> None:
    told = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    correct = of_seeds(frame, "test", "correct")
    columns = [of_seeds(frame, "test", metric) for metric in ("error", "train_error", "ece")]
    assert [(int(seed), int(wrong)) for seed, wrong, *_ in told] == [(n, 10_000 - c) for n, c in enumerate(correct)]
    for row, values in zip(told, zip(*columns, strict=True), strict=True):
        assert [float(word) for word in row[2:]] == pytest.approx(values, abs=0.00501)


def test_the_mean_its_interval_and_the_verdicts(results) -> None:
    (row,) = (
        row.summary
        for row in long_table(results, "mnist")
        if (row.cell.variant, row.cell.condition, row.cell.metric) == ("capsnet-r3-recon", "test", "error")
    )
    shown = re.search(r"The mean is ([\d.]+) % \(95 % interval ([\d.]+) to ([\d.]+)", PAGE)
    assert shown is not None
    assert [float(word) for word in shown.groups()] == pytest.approx([row.mean, row.low, row.high], abs=0.000501)
    short = re.search(
        r"test error of ([\d.]+) %, not 0\.25\*\* \(95 % interval ([\d.]+) to ([\d.]+); five seeds", README
    )
    assert short is not None
    assert [float(word) for word in short.groups()] == pytest.approx([row.mean, row.low, row.high], abs=0.00501)
    claims = {claim["id"]: claim["verdict"] for claim in json.loads((PAPER / "claims.json").read_text())["claims"]}
    assert claims["mnist-r3-recon-value"] == claims["mnist-ports-value"] == "not reproduced"


def test_what_more_and_fewer_passes_do() -> None:
    told = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    means = means_of("routing")
    assert [int(passes) for passes, *_ in told] == [1, 2, 3, 5, 10, 30, 100]
    for passes, *words in told:
        values = [means[f"{name}_r{passes}"] for name in ("error", "flips", "entropy")]
        assert [float(word) for word in words] == pytest.approx(values, abs=0.000501)
    short = re.search(
        r"entropy is ([\d.]+) of .* instead of three ([\d.]+) % of .* 100 passes the error is ([\d.]+)", README
    )
    assert short is not None
    entropy, flips, error = map(float, short.groups())
    assert entropy == pytest.approx(means["entropy_r3"], abs=0.0000501)
    assert (flips, error) == pytest.approx((means["flips_r1"], means["error_r100"]), abs=0.0501)


def test_what_attacks_and_lengths_say() -> None:
    shown = re.search(r"PGD makes ([\d.]+) % of the first 1,000 digits wrong", PAGE)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(means_of("attacked")["pgd_error_e10"], abs=0.0501)
    shown = re.search(r"length is on average (\d+) points below", " ".join(PAGE.split()))
    assert shown is not None
    assert float(shown[1]) == pytest.approx(-means_of("test")["overconfidence"], abs=0.5)


def test_what_it_took(results) -> None:
    manifests = [run.manifest for run in results.runs.values() if run.key.task == "mnist"]
    seconds = min(manifest.seconds for manifest in manifests)
    shown = re.search(r"at once in (\d+) s, or ([\d.]+) s an epoch for each, with ([\d.]+) GB", " ".join(PAGE.split()))
    assert shown is not None
    assert float(shown[1]) == pytest.approx(seconds, abs=0.501)
    assert float(shown[2]) == pytest.approx(seconds / 5 / 100, abs=0.00501)
    assert {manifest.resolved["seeds_at_once"] for manifest in manifests} == {5}
    assert f"({shown[1]} s for the five)" in README


def test_the_weights_are_those_of_seed_0_and_give_the_figure_that_readme_says() -> None:
    manifest = json.loads((PAPER / "runs" / "mnist" / "capsnet-r3-recon" / "seed-0" / "manifest.json").read_text())
    said = described(WEIGHTS)
    assert said["run_digest"] == manifest["digest"]
    assert said["run"] == manifest["run"]
    assert (said["images"], said["images"] - said["correct"]) == (10_000, 42)
    assert "0.42 % on MNIST" in README
    assert WEIGHTS.stat().st_size < 17e6


@pytest.mark.slow
def test_scored_again_on_a_cpu_they_give_it() -> None:
    import torch

    from capsbench.data.digits import load_digits

    try:
        source = find_source("mnist")
        verify(source)
    except DataError as error:
        pytest.skip(str(error))
    assert source_digest(source) == described(WEIGHTS)["data_digest"]
    assert score(WEIGHTS, load_digits(source, torch.device("cpu")), torch.device("cpu")) == (9958, 10_000)
