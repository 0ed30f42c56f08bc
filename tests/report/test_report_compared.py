"""Tables `ablation` and `ladder`: rows against their references, the differences, what differs, costs, gaps."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import toy
from scipy import stats

from capsbench.report import build_report, format_tables_for_terminal
from capsbench.report.compared import factor_words
from capsbench.report.contract import Difference

RECON = {"factor": "reconstruction", "value": "none", "reference": "paper"}
ROUTING = {"factor": "routing", "value": "kmeans", "reference": "dynamic"}
OWN = {"factor": "squash", "value": "half", "reference": "hinton", "own": True}
MODEL = {"factor": "model", "value": "cnn", "reference": "capsnet"}
LOSS = {"factor": "loss", "value": "cross-entropy", "reference": "margin"}
COMPARISONS = {
    "ablation": {
        "mnist": [
            {"variant": "capsnet-r3", "reference": "capsnet-r3-recon", "differs": [RECON]},
            {"variant": "cnn", "reference": "capsnet-r3-recon", "differs": [MODEL, LOSS]},
        ],
        "affnist": [{"variant": "cnn-pool", "reference": "capsnet-r3-recon", "differs": [MODEL]}],
    },
    "ladder": {
        "mnist": [
            {"variant": "cnn", "reference": None, "differs": []},
            {"variant": "capsnet-r1", "reference": "cnn", "differs": [MODEL]},
            {"variant": "capsnet-r3", "reference": "capsnet-r1", "differs": [ROUTING, OWN]},
        ],
        "two_digit": [
            {"variant": "two-digit-average-mlp", "reference": None, "differs": []},
            {"variant": "two-digit-kmeans", "reference": "two-digit-average-mlp", "differs": [MODEL]},
        ],
    },
}


@pytest.fixture
def compared(folder: Path) -> Path:
    """Toy results whose plan compares rows, and whose runs know their gap and their FLOPs."""
    toy.change_json(folder / "plan.json", comparisons=COMPARISONS, notes={"mnist": ["Tuned rows were tuned so."]})
    for path in (folder / "runs" / "mnist").glob("*/*/test/metrics.json"):
        metrics = json.loads(path.read_text())["metrics"]
        gap = {"value": metrics["error"]["value"] / 2, "unit": "%"}
        toy.change_json(path, metrics=metrics | {"train_test_gap": gap})
    for path in (folder / "runs").glob("*/*/*/manifest.json"):
        toy.change_json(path, flops=402_000_000)
    return folder


def errors(folder: Path, variant: str, seeds: tuple[int, ...] = (0, 1, 2)) -> list[float]:
    paths = [toy.run_folder(folder, "mnist", variant, seed) / "test" / "metrics.json" for seed in seeds]
    return [json.loads(path.read_text())["metrics"]["error"]["value"] for path in paths]


def test_a_difference_is_to_the_reference_with_welch_s_interval(compared: Path) -> None:
    build_report(compared)
    table = pd.read_csv(compared / "tables" / "ablation.csv").set_index(["variant", "condition", "metric"])
    row = table.loc[("capsnet-r3", "test", "error")]
    expected = stats.ttest_ind(errors(compared, "capsnet-r3"), errors(compared, "capsnet-r3-recon"), equal_var=False)
    interval = expected.confidence_interval()
    own, other = errors(compared, "capsnet-r3"), errors(compared, "capsnet-r3-recon")
    assert row["difference"] == pytest.approx(sum(own) / 3 - sum(other) / 3)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(interval))
    assert row["p"] == pytest.approx(expected.pvalue)
    assert (row["factor"], row["value"], row["reference_value"]) == ("reconstruction", "none", "paper")
    assert (row["reference"], row["n"], row["n_reference"]) == ("capsnet-r3-recon", 3, 3)
    gap = table.loc[("capsnet-r3", "test", "train_test_gap")]
    assert gap["mean"] == pytest.approx(row["mean"] / 2)
    assert {condition for _, condition, _ in table.index} == {"test", "matched", "converged"}


def test_the_readable_table_is_in_every_form_and_says_when_several_factors_change(compared: Path) -> None:
    made = build_report(compared)
    text = (compared / "tables" / "ablation.md").read_text()
    assert "2 factors: model, loss" in text
    assert "model cnn; loss cross-entropy" in text
    assert "no correction for the number of rows" in text
    assert "Tuned rows were tuned so." in text
    assert "Tuned rows were tuned so." in (compared / "tables" / "mnist.md").read_text()
    for ending in ("csv", "md", "tex"):
        assert {compared / "tables" / f"{name}.{ending}" for name in ("ablation", "ladder")} <= set(made.tables)
    page = (compared / "report.html").read_text()
    assert "What buys the gain" in page
    assert "One choice changed against a reference row." in format_tables_for_terminal(compared)


def test_the_ladder_has_each_rung_s_cost_and_its_gain_over_the_one_before(compared: Path) -> None:
    build_report(compared)
    table = pd.read_csv(compared / "tables" / "ladder.csv")
    mnist = table[(table["task"] == "mnist") & (table["metric"] == "error")].set_index("variant")
    assert list(mnist.index) == ["cnn", "capsnet-r1", "capsnet-r3"]
    assert pd.isna(mnist.loc["cnn", "difference"])
    assert mnist.loc["capsnet-r3", "reference"] == "capsnet-r1"
    gains = mnist["mean"].diff()
    assert mnist.loc["capsnet-r3", "difference"] == pytest.approx(gains["capsnet-r3"])
    assert set(table["parameters"]) == {123456}
    assert set(table["flops"]) == {402_000_000}
    text = (compared / "tables" / "ladder.md").read_text()
    assert "kmeans (with its own squash half)" in text
    assert "402.0" in text
    assert "123,456" in text
    assert "one small trunk of their own" in text


def test_the_figure_of_the_ladder_shows_every_task_and_condition(compared: Path) -> None:
    made = build_report(compared)
    figure = next(figure for figure in made.figures if figure.name == "ladder")
    assert figure.png.stat().st_size > 10_000
    assert "What buys the gain" in figure.title
    assert "one small trunk of their own" in figure.caption


def test_rows_that_are_not_there_yet_are_empty_places(compared: Path) -> None:
    for seed in (0, 1, 2):
        (toy.run_folder(compared, "mnist", "capsnet-r3", seed) / "manifest.json").unlink()
    for seed in (1, 2):
        (toy.run_folder(compared, "mnist", "cnn", seed) / "manifest.json").unlink()
    build_report(compared)
    table = pd.read_csv(compared / "tables" / "ablation.csv").set_index(["variant", "metric"])
    assert table.loc[("capsnet-r3", "error"), "n"] == 0
    assert pd.isna(table.loc[("capsnet-r3", "error"), "difference"])
    one = table.loc[("cnn", "error")]
    expected = errors(compared, "cnn", (0,))[0] - sum(errors(compared, "capsnet-r3-recon")) / 3
    assert one["difference"] == pytest.approx(expected)
    assert pd.isna(one["ci_low"])  # one seed has no interval
    assert pd.isna(one["p"])


def test_a_plan_without_comparisons_has_neither_table_nor_figure(compared: Path) -> None:
    build_report(compared)
    toy.change_json(compared / "plan.json", comparisons={})
    made = build_report(compared)
    assert not (compared / "tables" / "ablation.csv").exists()  # of the report before
    assert not (compared / "tables" / "ladder.md").exists()
    assert made.not_drawn["ladder"] == "the plan has no ladder"


def test_nothing_that_differs_is_a_dash() -> None:
    assert factor_words([]) == ("–", "–", "–")
    only_own = [Difference(factor="squash", value="half", reference="hinton", own=True)]
    assert factor_words(only_own) == ("–", "–", "–")
