"""Tables `ablation` and `ladder`: rows against their references, the differences, what differs, costs, gaps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from judging import answer, results_of
from judging import errors as errors_of
from scipy import stats

from capsbench.report import Report, build_report
from capsbench.report.ablation_table import ablation_table
from capsbench.report.against_reference import factor_words
from capsbench.report.collect import collect
from capsbench.report.contract import Difference
from capsbench.report.extras import ExtraTable
from capsbench.report.figures import NotDrawnError
from capsbench.report.figures.ladder import draw
from capsbench.report.figures.style import house_style
from capsbench.report.formats import to_markdown
from capsbench.report.ladder_table import ladder_table
from capsbench.report.statistics import Scored, crossed, digit_effects


@pytest.fixture
def compared(folder: Path) -> Path:
    """Toy results whose plan compares rows, and whose runs know their gap and their FLOPs."""
    toy.change_json(folder / "plan.json", notes={"mnist": ["Tuned rows were tuned so."]})
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


def ablation(folder: Path) -> ExtraTable:
    table = ablation_table(collect(folder))
    assert table is not None
    return table


def row_of(made: ExtraTable, variant: str, metric: str) -> pd.Series:
    """The one row of a variant and a metric (`.loc` of pandas 2.2 takes one of an index with doubles for several)."""
    (row,) = (row for _, row in made.frame.iterrows() if (row["variant"], row["metric"]) == (variant, metric))
    return row


def ladder(folder: Path) -> ExtraTable:
    table = ladder_table(collect(folder))
    assert table is not None
    return table


def test_a_difference_is_to_the_reference_with_welch_s_interval(compared: Path) -> None:
    table = ablation(compared).frame.set_index(["variant", "condition", "metric"])
    row = table.loc[("capsnet-r3", "test", "error")]
    own, other = errors(compared, "capsnet-r3"), errors(compared, "capsnet-r3-recon")
    expected = stats.ttest_ind(own, other, equal_var=False)
    assert row["difference"] == pytest.approx(sum(own) / 3 - sum(other) / 3)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval()))
    assert row["p"] == pytest.approx(expected.pvalue)
    assert (row["factor"], row["value"], row["reference_value"]) == ("reconstruction", "none", "paper")
    assert (row["reference"], row["n"], row["n_reference"]) == ("capsnet-r3-recon", 3, 3)
    gap = table.loc[("capsnet-r3", "test", "train_test_gap")]
    assert gap["mean"] == pytest.approx(row["mean"] / 2)
    assert {condition for _, condition, _ in table.index} == {"test", "matched", "converged"}


def test_a_difference_is_over_test_digits_too_where_their_answers_are_stored(tmp_path: Path) -> None:
    rows = [
        {"variant": "capsnet-r3", "reference": "capsnet-r3-recon", "differs": []},
        {"variant": "cnn", "reference": "capsnet-r3-recon", "differs": []},
    ]
    folder = results_of(
        tmp_path / "answered",
        {"mnist": ["cnn", "capsnet-r3", "capsnet-r3-recon"]},
        comparisons={"ablation": {"mnist": rows}, "ladder": {"mnist": [rows[0] | {"reference": None}, rows[1]]}},
    )
    wrong = {
        name: errors_of(rate, stream=k) for k, (name, rate) in enumerate({"capsnet-r3": 0.03, "cnn": 0.05}.items())
    }
    wrong["capsnet-r3-recon"] = errors_of(0.02, stream=2)
    for name, of in wrong.items():
        answer(folder, name, of)
    for seed in range(5):  # of other answers than its metrics: Welch's is what can be told
        shutil.copy(
            toy.run_folder(folder, "mnist", "capsnet-r3", seed) / "test" / "predictions.npz",
            toy.run_folder(folder, "mnist", "cnn", seed) / "test" / "predictions.npz",
        )
    results = collect(folder)
    made = ablation_table(results)
    contradicting = [p for p in results.problems if p.kind == "not drawn"]
    assert {(p.variant, p.condition) for p in contradicting} == {("cnn", "test")}
    assert "where metrics.json says" in contradicting[0].reason
    table = made.frame.set_index(["variant", "metric"])
    cells = [
        Scored(100 * of.mean(1), np.stack([digit_effects(100.0 * row, np.arange(len(row)), len(row)) for row in of]))
        for of in (wrong["capsnet-r3"], wrong["capsnet-r3-recon"])
    ]
    expected, row = crossed(*cells), table.loc["capsnet-r3", "error"]
    assert expected is not None
    assert (row["test"], row["p"]) == ("crossed", pytest.approx(expected.p()))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected.interval())
    welch = stats.ttest_ind(cells[0].means, cells[1].means, equal_var=False)
    assert (row["welch_low"], row["welch_high"]) == pytest.approx(tuple(welch.confidence_interval()))
    assert row["ci_high"] - row["ci_low"] > 1.02 * (row["welch_high"] - row["welch_low"])
    other = table.loc["cnn", "error"]
    assert (other["test"], other["ci_low"], other["p"]) == ("welch", other["welch_low"], other["welch_p"])
    text = to_markdown(made.table)
    assert f"({row['ci_low']:+.2f} to {row['ci_high']:+.2f})" in text
    assert f"({other['ci_low']:+.2f} to {other['ci_high']:+.2f} over seeds)" in text
    assert "interval over seeds and test digits" in text
    assert set(ladder(folder).frame["test"].dropna()) == {"welch"}


def test_p_is_corrected_for_the_rows_of_one_task_condition_and_metric_whether_they_can_be_told_or_not(
    compared: Path,
) -> None:
    table = ablation(compared).frame.set_index(["variant", "condition", "metric"])
    of_task = [table.loc[(variant, "test", "error"), ["p", "p_holm"]] for variant in ("capsnet-r3", "cnn")]
    first, second = sorted(of_task, key=lambda row: row["p"])
    assert first["p"] < 0.3  # else both would be 1
    assert first["p_holm"] == pytest.approx(2 * first["p"])
    assert second["p_holm"] == pytest.approx(max(second["p"], first["p_holm"]))
    alone = table.loc[("cnn-pool", "matched", "accuracy")]
    assert alone["p_holm"] == alone["p"]
    toy.truncate(toy.run_folder(compared, "mnist", "cnn", 0) / "test" / "metrics.json")
    toy.truncate(toy.run_folder(compared, "mnist", "cnn", 1) / "test" / "metrics.json")
    left = ablation(compared)
    row = left.frame.set_index(["variant", "condition", "metric"]).loc[("capsnet-r3", "test", "error")]
    assert row["p_holm"] == pytest.approx(min(1.0, 2 * row["p"]))  # the other row has yet to come
    assert f"| {row['p_holm']:.3f} |" in to_markdown(left.table)


def test_where_a_run_was_lost_there_is_no_interval_for_those_left_may_be_the_luckier_ones(compared: Path) -> None:
    toy.unmatch(compared, "capsnet-r3-recon", 1)
    toy.fail(compared, "mnist", "capsnet-r3", 2)
    made = ablation(compared)
    table = made.frame.set_index(["variant", "condition", "metric"])
    for lost in (("cnn-pool", "matched", "accuracy"), ("capsnet-r3", "test", "error")):
        assert pd.notna(table.loc[lost, "difference"])
        assert table.loc[lost, ["test", "ci_low", "ci_high", "p", "p_holm", "welch_low", "welch_p"]].isna().all()
    assert table.loc[("cnn-pool", "converged", "accuracy"), ["p", "p_holm"]].notna().all()
    assert table.loc[("cnn", "test", "error"), ["p", "p_holm"]].notna().all()
    assert to_markdown(made.table).count(" (1 run lost) | – |") == 3  # the gap of the failed run too


def test_the_readable_table_says_when_several_factors_change(compared: Path) -> None:
    text = to_markdown(ablation(compared).table)
    assert "2 factors: model, loss" in text
    assert "model cnn; loss cross-entropy" in text
    assert "not corrected for the number of rows" in text
    assert "Tuned rows were tuned so." in text
    assert "train-test gap (test), %" in text


def test_the_ladder_has_each_rung_s_cost_and_its_gain_over_the_one_before(compared: Path) -> None:
    made = ladder(compared)
    table, text = made.frame, to_markdown(made.table)
    mnist = table[(table["task"] == "mnist") & (table["metric"] == "error")].set_index("variant")
    assert list(mnist.index) == ["cnn", "capsnet-r1", "capsnet-r3"]
    assert pd.isna(mnist.loc["cnn", "difference"])
    assert mnist.loc["capsnet-r3", "reference"] == "capsnet-r1"
    assert mnist.loc["capsnet-r3", "difference"] == pytest.approx(mnist["mean"].diff()["capsnet-r3"])
    assert set(table["parameters"]) == {123456}
    assert set(table["flops"]) == {402_000_000}
    for words in ("kmeans (with its own squash half)", "402.0", "123,456", "one small trunk of their own"):
        assert words in text


def test_the_figure_of_the_ladder_shows_every_task_and_condition(compared: Path) -> None:
    with house_style():
        drawing = draw(collect(compared))
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes] == [
        "mnist",
        "two_digit, 56x28",
        "two_digit, 28x56",
    ]
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert any("n=3\n0.12 M parameters, 402 MFLOPs" in text for text in texts)
    assert all(0 <= axes.get_xlim()[0] < axes.get_xlim()[1] <= 100 for axes in drawing.figure.axes)  # per cent
    assert "routing: kmeans (with its own squash half)" in texts
    names = [tick.get_text() for tick in drawing.figure.axes[0].get_yticklabels()]
    assert names == [collect(compared).plan.title(variant) for variant in ("cnn", "capsnet-r1", "capsnet-r3")]
    assert "CapsNet r=3" in names
    assert "What buys the gain" in drawing.title
    assert "one small trunk of their own" in drawing.caption


def test_rows_that_are_not_there_yet_are_empty_places(compared: Path) -> None:
    for seed in (0, 1, 2):
        (toy.run_folder(compared, "mnist", "capsnet-r3", seed) / "manifest.json").unlink()
    for seed in (1, 2):
        (toy.run_folder(compared, "mnist", "cnn", seed) / "manifest.json").unlink()
    rows = {(row["variant"], row["metric"]): row for row in ablation(compared).frame.to_dict("records")}
    assert rows["capsnet-r3", "error"]["n"] == 0
    assert pd.isna(rows["capsnet-r3", "error"]["difference"])
    one = rows["cnn", "error"]
    expected = errors(compared, "cnn", (0,))[0] - sum(errors(compared, "capsnet-r3-recon")) / 3
    assert one["difference"] == pytest.approx(expected)
    assert pd.isna(one["ci_low"])  # one seed has no interval
    assert pd.isna(one["p"])
    assert pd.isna(ladder(compared).frame.set_index("variant").loc["capsnet-r3", "flops"]).all()


def test_a_plan_without_comparisons_has_neither_table_nor_figure(compared: Path) -> None:
    toy.change_json(compared / "plan.json", comparisons={})
    assert ablation_table(collect(compared)) is None
    assert ladder_table(collect(compared)) is None
    with pytest.raises(NotDrawnError, match="the plan has no ladder"):
        draw(collect(compared))


def test_a_report_has_both_tables_in_every_form(spoiled: tuple[Path, Report]) -> None:
    folder, report = spoiled
    for ending in ("csv", "md", "tex"):
        assert {folder / "tables" / f"{name}.{ending}" for name in ("ablation", "ladder")} <= set(report.tables)
    page = (folder / "report.html").read_text()
    assert "What buys the gain" in page
    assert "One choice changed against a reference row" in page


def test_what_a_table_has_is_the_task_s_measures_of_answers_and_on_mnist_the_gap(compared: Path) -> None:
    frame = ablation(compared).frame
    measured = {task: set(of["metric"]) for task, of in frame.groupby("task")}
    assert measured == {"mnist": {"error", "train_test_gap"}, "affnist": {"accuracy"}}


def test_a_row_of_one_seed_has_no_test(compared: Path) -> None:
    for seed in (1, 2):
        (toy.run_folder(compared, "mnist", "cnn", seed) / "manifest.json").unlink()
    made = ablation(compared)
    assert pd.isna(row_of(made, "cnn", "error")["test"])
    assert row_of(made, "capsnet-r3", "error")["test"] == "welch"


def test_nothing_that_differs_is_a_dash() -> None:
    assert factor_words([]) == ("–", "–", "–")


def test_of_several_factors_each_side_has_its_own_values() -> None:
    differs = [
        Difference(factor=name, value=f"{name} here", reference=f"{name} there", own=name == "squash")
        for name in ("routing", "rate", "squash")
    ]
    words = ("routing routing here; learning rate rate here", "routing routing there; learning rate rate there")
    assert factor_words(differs) == ("2 factors: routing, learning rate", *words)


def test_a_row_and_its_reference_have_each_their_mean_and_number_of_seeds(compared: Path) -> None:
    for seed in (1, 2):
        (toy.run_folder(compared, "mnist", "cnn", seed) / "manifest.json").unlink()
    made = ablation(compared)
    row = row_of(made, "cnn", "error")
    assert (row["n"], row["n_reference"]) == (1, 3)
    assert row["mean"] == pytest.approx(errors(compared, "cnn", (0,))[0])
    assert row["mean_reference"] == pytest.approx(sum(errors(compared, "capsnet-r3-recon")) / 3)
    assert {wide.entries[-1].text for wide in made.table.rows if wide.variant == "cnn"} == {"1, 3"}


def test_on_the_page_an_interval_has_a_line_of_its_own_below_its_difference(compared: Path) -> None:
    build_report(compared)
    page = (compared / "report.html").read_text()
    row = row_of(ablation(compared), "capsnet-r3", "error")
    interval = f"({row['ci_low']:+.2f} to {row['ci_high']:+.2f} over seeds)"
    assert f'{row["difference"]:+.2f} <br><span class="interval">{interval}</span></td>' in page
