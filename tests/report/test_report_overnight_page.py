"""What docs/overnight.md says of affNIST and MultiMNIST at an eighth of the width follows from results/overnight."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from statistics import mean
from typing import Any

import pandas as pd
import pytest
from pages import NUMBER, RESULTS, TO, numbers, rows_of, said, words_of
from sklearn.isotonic import IsotonicRegression

from capsbench.plan import House, config_folder
from capsbench.plan.tasks import AffnistTask

OVERNIGHT = RESULTS / "overnight"
RUNS = OVERNIGHT / "runs" / "affnist"
NAME = "docs/overnight.md"
PAGE = words_of(NAME)
ROWS = {
    "CapsNet r=3, reconstruction": "capsnet-r3-recon",
    "CapsNet r=3, reconstruction, W shared by type": "capsnet-share-type",
    "the same, no routing": "capsnet-shared-uniform",
    "CNN, max-pooling and dropout": "cnn-pool-eighth",
    "CNN of Table 1, without padding": "cnn-valid-eighth",
    "ConvNet-Avg": "convnet-avg",
}
PAIRS = {
    "CNN": "multimnist-cnn-eighth",
    "CapsNet r=1, reconstruction": "capsnet-r1-recon",
    "CapsNet r=3, reconstruction": "capsnet-r3-recon",
}
LAST, HELD_OUT, MATCHED = ("converged", "accuracy"), ("converged", "held_out_accuracy"), ("matched", "accuracy")
COUNTS = {23: "Twenty-three", 24: "Twenty-four", 25: "Twenty-five", 26: "Twenty-six", 27: "All"}
TENS = {14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen"}


@pytest.fixture(scope="module")
def manifests() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(RUNS.parent.glob("*/*/seed-*/manifest.json"))]


def values(variant: str, condition: str, metric: str) -> list[float]:
    """A metric of a row's runs by seed; of those that are not matched none."""
    folders = sorted((RUNS / variant).glob("seed-*"), key=lambda path: int(path.name.removeprefix("seed-")))
    found = [json.loads((folder / condition / "metrics.json").read_text()) for folder in folders]
    return [metrics["metrics"][metric]["value"] for metrics in found if metrics["status"] == "done"]


def test_every_run_there_is_is_in_the_table(manifests) -> None:
    for first, cells in rows_of(NAME, ROWS, columns=4).items():
        for cell, what in zip(cells, (LAST, HELD_OUT, MATCHED), strict=True):
            seeds = values(ROWS[first], *what)
            expected = seeds if len(seeds) < 2 else [sum(seeds) / len(seeds), *seeds]
            assert numbers(cell) == pytest.approx(expected, abs=0.0501), (first, what)
            assert seeds or cell == "not matched"
    assert {of["run"]["variant"] for of in manifests if of["run"]["task"] == "affnist"} == set(ROWS.values())
    planned = House.load(config_folder() / "overnight.yaml").cells
    count, of_task = COUNTS[len(manifests)], Counter(of["run"]["task"] for of in manifests)
    there = f"{of_task['affnist']} on affNIST, {of_task['multimnist']} on MultiMNIST"
    assert f"**{count} of its {sum(len(cell.seeds) for cell in planned)} runs are there: {there}." in PAGE
    assert f"of which {count.lower()} runs are there ([overnight.md](overnight.md))" in words_of("docs/reproduction.md")


def test_the_level_is_the_plan_s() -> None:
    options = House.load(config_folder() / "overnight.yaml").cell("affnist", "capsnet-r3-recon").options
    assert isinstance(options, AffnistTask)
    assert set(re.findall(r"([\d.]+) % of held-out digits", PAGE)) == {f"{100 * options.matched_at:g}"}
    assert f"{4 * 10_000:,} images" in PAGE
    assert options.transforms == 4


def smoothed(variant: str) -> pd.Series:
    """The held-out accuracy of a row's first run, per cent, by step, smoothed to rise only as `matched` has it."""
    curve = pd.read_csv(RUNS / variant / "seed-0" / "curve.csv")
    fitted = IsotonicRegression().fit_transform(range(len(curve)), 100 * curve.held_out_accuracy)
    return pd.Series(fitted, index=curve.step)


def test_the_level_is_what_page_and_plan_say_it_is_set_by() -> None:
    began_later = "cnn-valid-eighth"
    first = {row: smoothed(row) for row in ROWS.values() if row != began_later}
    by_then = {row: of[of.index <= 0.75 * of.index[-1]].iloc[-1] for row, of in first.items() if row != "convnet-avg"}
    assert math.floor(2 * min(by_then.values())) / 2 == 95.5
    assert first["capsnet-r3-recon"].iloc[-1] < 98
    assert first["convnet-avg"][2800] == pytest.approx(first["capsnet-r3-recon"][200], abs=0.1)


def test_a_difference_that_is_told_is_the_table_s() -> None:
    frame = pd.read_csv(OVERNIGHT / "tables" / "ablation.csv")
    rows = frame[frame.task == "affnist"].set_index(["variant", "condition", "metric"])
    for variant, signs, *words in (
        ("cnn-pool-eighth", (1, 1), "with the last weights by {} points", "at equal accuracy by {}"),
        ("cnn-valid-eighth", (1, -1), "it gains {} points with the last weights", "loses {} at equal accuracy"),
        ("capsnet-share-type", (1, 1), "by {} points with the last weights", "by {} at equal accuracy"),
        ("convnet-avg", (-1,), "With the last weights it has {} points less than CapsNet"),
        (
            "capsnet-shared-uniform",
            (-1, -1),
            "type has {} points less with the last weights",
            "{} less at equal accuracy",
        ),
    ):
        for of, what, sign in zip(words, (LAST, MATCHED)[: len(words)], signs, strict=True):
            row = rows.loc[(variant, *what)]
            told = said(rf"{of.format(NUMBER)} \({TO}, Holm's p {NUMBER}", PAGE)
            expected = [sign * row["difference"], row["ci_low"], row["ci_high"]]
            assert told[:3] == pytest.approx(expected, abs=0.0501), (variant, what)
            assert told[3] == pytest.approx(row["p_holm"], rel=0.1), (variant, what)
    ours, shared, cnn = (values(row, *MATCHED) for row in ("capsnet-r3-recon", "capsnet-share-type", "cnn-pool-eighth"))
    assert max(ours) < min(cnn) <= max(cnn) < min(shared), "the page says which has more at equal accuracy"
    assert sum(values("capsnet-share-type", *LAST)) < sum(values("cnn-pool-eighth", *LAST))
    for variant, words in (
        ("cnn-pool-eighth", "more robust than CapsNet, by {} points"),
        ("capsnet-share-type", "shared by all places CapsNet gains {}"),
    ):
        row = rows.loc[(variant, *LAST), ["difference", "ci_low", "ci_high"]].tolist()
        told = said(rf"{words.format(NUMBER)} \({TO}\)", words_of("README.md"))
        assert told == pytest.approx(row, abs=0.0501), variant


def pairs(variant: str, metric: str) -> list[float]:
    """A metric of a row's runs on MultiMNIST by seed; none where the row has no decoder."""
    files = sorted((RUNS.parent / "multimnist" / variant).glob("seed-*/test/metrics.json"))
    found = [json.loads(file.read_text()) for file in files]
    assert {metrics["images"] for metrics in found} == {100_000}
    return [metrics["metrics"][metric]["value"] for metrics in found if metric in metrics["metrics"]]


def test_what_is_said_of_multimnist(manifests) -> None:
    names = "error", "half_credit_error", "assignment_accuracy_true", "iou_true"
    for first, cells in rows_of(NAME, PAIRS, columns=5, section="MultiMNIST").items():
        for cell, metric, digit in zip(cells, names, (0.1, 0.1, 0.1, 0.01), strict=True):
            seeds = pairs(PAIRS[first], metric)
            assert numbers(cell) == pytest.approx([mean(seeds), *seeds] if seeds else [], abs=0.501 * digit), first
    (copied,) = rows_of(NAME, ["the merged image itself"], columns=5, section="MultiMNIST").values()
    baseline = [mean(pairs("capsnet-r3-recon", f"baseline_{of}")) for of in ("assignment_accuracy", "iou")]
    assert numbers(" ".join(copied)) == pytest.approx(baseline, abs=0.00501)
    told = said(rf"The CNN, with {NUMBER} times the parameters \({NUMBER} million\)", PAGE)
    size = {of["run"]["variant"]: of["parameters"] for of in manifests if of["run"]["task"] == "multimnist"}
    expected = [size[PAIRS["CNN"]] / size["capsnet-r3-recon"], size[PAIRS["CNN"]] / 1e6]
    assert told == pytest.approx(expected, abs=0.0501)
    frame = pd.read_csv(OVERNIGHT / "tables" / "ablation.csv")
    rows = frame[(frame.task == "multimnist") & (frame.metric == "error")].set_index("variant")
    for variant, sign, words in (
        ("multimnist-cnn-eighth", -1, r"has {} points fewer pairs wrong than CapsNet"),
        ("capsnet-r1-recon", 1, r"CapsNet has {} fewer with three passes than with one"),
    ):
        row = rows.loc[variant]
        told = said(rf"{words.format(NUMBER)} \({TO}, Holm's p {NUMBER}", PAGE)
        ends = sorted(sign * row[end] for end in ("ci_low", "ci_high"))
        assert told[:3] == pytest.approx([sign * row["difference"], *ends], abs=0.0501), variant
        assert told[3] == pytest.approx(row["p_holm"], rel=0.05), variant
        assert row["p_holm"] > 0.05, "the page says that neither is shown"
    spec = House.load(config_folder() / "overnight.yaml").cell("multimnist", "capsnet-r3-recon").spec
    assert "the decoder's hidden layers have {} and {} numbers".format(*spec.model_dump()["decoder"]) in PAGE


def test_how_they_were_made(manifests) -> None:
    minutes = [of["seconds"] / 60 for of in manifests]
    told = said(r"took (\d+) to (\d+) minutes each on one thread, two beside", PAGE)
    assert told == pytest.approx([min(minutes), max(minutes)], abs=0.501)
    for of in manifests:
        assert (of["status"], of["git"]["dirty"], of["resolved"]["threads"]) == ("done", False, 1)
    processors = Counter(of["machine"]["processor"].partition(" (family")[0] for of in manifests)
    assert processors == {"AMD EPYC": 9, "Intel(R) Xeon(R) Processor @ 2.80GHz": len(manifests) - 9}
    assert f"{TENS[len(manifests) - 9]} on an Intel Xeon" in PAGE
    resumed = {(of["run"]["variant"], of["run"]["seed"]) for of in manifests if of["resumed"]}
    assert resumed == {("convnet-avg", 1), ("convnet-avg", 2)}, "the page names them"
    of_amd = Counter(of["run"]["variant"] for of in manifests if "AMD" in of["machine"]["processor"])
    assert of_amd == {"capsnet-r3-recon": 3, "cnn-pool-eighth": 3} | dict.fromkeys(
        ("convnet-avg", "capsnet-share-type", "capsnet-shared-uniform"), 1
    )


def right(variant: str, factor: str, value: float) -> float:
    """Per cent right of the first test digits under one factor alone, the mean over a row's seeds."""
    files = sorted((RUNS / variant).glob("seed-*/converged/factors.csv"))
    frame = pd.concat(pd.read_csv(file) for file in files)
    of = frame[(frame.factor == factor) & (frame.value == value)]
    assert len(of) == len(files) > 0
    assert set(of.images) == {1_000}
    return 100 * float(of.accuracy.mean())


def test_what_is_said_of_single_factors() -> None:
    own, shared, cnn = "capsnet-r3-recon", "capsnet-share-type", "cnn-pool-eighth"
    moved = [right(row, "translation", by) for row in (own, shared) for by in (-8.0, 8.0)]
    told = said(
        r"are right in (\d+) and (\d+) % \(up and left, down and right\) by CapsNet, which has a W for each place, "
        r"with W shared by type in (\d+) and (\d+)\.",
        PAGE,
    )
    assert told == pytest.approx(moved, abs=0.501)
    told = said(
        r"times as large are right in (\d+) % by the CNN with max-pooling, (\d+) by CapsNet and (\d+) with shared W",
        PAGE,
    )
    assert told == pytest.approx([right(row, "scale", 1.4) for row in (cnn, own, shared)], abs=0.501)
