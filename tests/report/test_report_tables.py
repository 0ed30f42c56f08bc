"""The CSV of a task: its columns, its rows, its numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import toy
from scipy import stats

from capsbench.report import Report, build_report
from capsbench.report.captions import budget_words, data_words, is_comparable
from capsbench.report.collect import collect
from capsbench.report.tables import SPECS, csv_frame, long_table
from capsbench.report.wide import left_out, wide_table

COLUMNS = "task,dataset,variant,condition,metric,unit,n,n_failed,mean,sd,ci_low,ci_high,paper"


def row(frame: pd.DataFrame, **where: str) -> pd.Series:
    found = frame.loc[(frame[list(where)] == pd.Series(where)).all(axis=1)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.parametrize("task", toy.TASKS)
def test_columns_are_exactly_these(spoiled: tuple[Path, Report], task: str) -> None:
    text = (spoiled[0] / "tables" / f"{task}.csv").read_text()
    assert text.splitlines()[0] == COLUMNS
    assert set(pd.read_csv(spoiled[0] / "tables" / f"{task}.csv")["task"]) == {task}


def test_numbers_are_those_of_the_runs(spoiled: tuple[Path, Report]) -> None:
    folder = spoiled[0]
    found = row(pd.read_csv(folder / "tables" / "mnist.csv"), variant="cnn", metric="error")
    paths = [toy.run_folder(folder, "mnist", "cnn", seed) / "test" / "metrics.json" for seed in (0, 1, 2)]
    values = [json.loads(path.read_text())["metrics"]["error"]["value"] for path in paths]
    assert (found["n"], found["n_failed"], found["unit"], found["dataset"]) == (3, 0, "%", "mnist")
    assert found["mean"] == pytest.approx(sum(values) / 3, rel=1e-9)
    assert found["sd"] == pytest.approx(stats.tstd(values), rel=1e-9)
    expected = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(expected, rel=1e-8)
    assert found["paper"] == 0.39


def test_one_seed_leaves_spread_and_interval_empty(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(4,), tasks={"mnist": ["cnn"]})
    build_report(folder)
    line = (folder / "tables" / "mnist.csv").read_text().splitlines()[1].split(",")
    fields = dict(zip(COLUMNS.split(","), line, strict=True))
    assert fields["n"] == "1"
    assert float(fields["mean"]) > 0
    assert fields["sd"] == fields["ci_low"] == fields["ci_high"] == ""


def test_failed_and_unmatched_runs_are_counted_and_out_of_the_mean(spoiled: tuple[Path, Report]) -> None:
    tables = spoiled[0] / "tables"
    failed = row(pd.read_csv(tables / "mnist.csv"), variant="capsnet-r3", metric="error")
    assert (failed["n"], failed["n_failed"]) == (2, 1)
    affnist = pd.read_csv(tables / "affnist.csv")
    matched = row(affnist, variant="cnn-valid", condition="matched", metric="accuracy")
    converged = row(affnist, variant="cnn-valid", condition="converged", metric="accuracy")
    assert (matched["n"], matched["n_failed"]) == (2, 1)
    assert (converged["n"], converged["n_failed"]) == (3, 0)
    assert matched["dataset"] == "affnist-synth"


def test_truncated_and_missing_runs_are_not_called_failed(spoiled: tuple[Path, Report]) -> None:
    tables = spoiled[0] / "tables"
    truncated = row(pd.read_csv(tables / "mnist.csv"), variant="capsnet-r1", metric="error")
    missing = row(pd.read_csv(tables / "multimnist.csv"), variant="capsnet-r1-recon", metric="error")
    assert (truncated["n"], truncated["n_failed"]) == (2, 0)
    assert (missing["n"], missing["n_failed"]) == (2, 0)
    assert "1 failed, 1 unreadable and 1 foreign" in (tables / "mnist.md").read_text()


def test_a_variant_whose_runs_all_failed_keeps_its_rows(spoiled: tuple[Path, Report]) -> None:
    frame = pd.read_csv(spoiled[0] / "tables" / "two_digit.csv")
    rows = frame[frame["variant"] == "two-digit-uniform"]
    assert list(rows["condition"]) == ["56x28"] * 4 + ["28x56"] * 4
    assert set(rows["metric"]) == {metric.name for metric in SPECS["two_digit"].main}
    assert set(rows["n"]) == {0}
    assert set(rows["n_failed"]) == {3}
    assert rows[["mean", "sd", "ci_low", "ci_high"]].isna().all(axis=None)


def test_a_row_without_a_run_is_named_under_the_table_and_has_no_line_of_dashes(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "some", tasks={"mnist": ["cnn", "capsnet-r1", "capsnet-r3", "capsnet-r3-recon"]})
    for path in (folder / "runs" / "mnist" / "capsnet-r3-recon").glob("seed-*/test"):
        shutil.rmtree(path)  # trained, and not evaluated yet
    for variant in ("cnn", "capsnet-r3"):
        shutil.rmtree(folder / "runs" / "mnist" / variant)
    toy.fail(folder, "mnist", "capsnet-r1", 0)
    build_report(folder)
    text = (folder / "tables" / "mnist.md").read_text()
    assert "2 rows without a run yet: CNN (Table 1); CapsNet r=3." in text
    assert "finished: 2 to 3 per row, in 2 of 4 rows." in text
    assert [line.split(" ·")[0] for line in text.splitlines() if line.startswith("| C")] == [
        "| CapsNet r=1", "| CapsNet r=3, reconstruction",
    ]  # fmt: skip
    assert len(set(pd.read_csv(folder / "tables" / "mnist.csv")["variant"])) == 4
    shutil.rmtree(folder / "runs")
    build_report(folder)
    assert (folder / "tables" / "mnist.md").read_text().count("| – |") == 4  # nothing is known of any: all are shown


def test_rows_are_in_the_plans_order(tmp_path: Path) -> None:
    variants = ["capsnet-r3-recon", "cnn", "capsnet-r1"]
    folder = toy.write_toy(tmp_path / "order", seeds=(0,), tasks={"mnist": variants})
    build_report(folder)
    errors = pd.read_csv(folder / "tables" / "mnist.csv").query("metric == 'error'")
    assert list(errors["variant"]) == variants


def test_conditions_and_metrics_are_in_the_tasks_order(healthy: Path) -> None:
    frame = csv_frame(long_table(collect(healthy), "multimnist"))
    names = list(frame.loc[frame["variant"] == "capsnet-r3-recon", "metric"])
    assert names[:3] == ["error", "half_credit_error", "ssim_true"]
    assert "baseline_mse" in names
    frame = csv_frame(long_table(collect(healthy), "affnist"))
    assert list(frame["condition"].unique()) == ["matched", "converged"]


def test_the_papers_figures_stand_beside_their_own_cells_only(healthy: Path) -> None:
    results = collect(healthy)
    frames = {task: csv_frame(long_table(results, task)).dropna(subset="paper") for task in toy.TASKS}
    shown = {(r.variant, r.condition, r.metric): r.paper for frame in frames.values() for r in frame.itertuples()}
    assert shown == {
        ("cnn", "test", "error"): 0.39,
        ("capsnet-r1", "test", "error"): 0.34,
        ("capsnet-r1-recon", "test", "error"): 7.5,  # of multimnist, which comes last
        ("capsnet-r3", "test", "error"): 0.35,
        ("capsnet-r3-recon", "test", "error"): 5.2,
        ("cnn-valid", "matched", "accuracy"): 66,
        ("cnn-pool", "matched", "accuracy"): 66,
        ("capsnet-r3-recon", "matched", "accuracy"): 79,
        ("multimnist-cnn", "test", "error"): 8.1,
    }
    mnist = frames["mnist"].set_index("variant")["paper"]
    assert (mnist["capsnet-r1-recon"], mnist["capsnet-r3-recon"]) == (0.29, 0.25)


def test_the_papers_deviation_stands_beside_its_figure_where_it_gives_one(healthy: Path) -> None:
    """Table 1 gives one over three trials, but for its baseline; all else in the paper is a figure alone."""
    table = wide_table(collect(healthy), "mnist")
    column = [entry.label for entry in table.columns].index("paper")
    told = {row.variant: row.entries[column].text for row in table.rows}
    assert told == {
        "cnn": "0.39",
        "capsnet-r1": "0.34 (sd 0.032)",
        "capsnet-r1-recon": "0.29 (sd 0.011)",
        "capsnet-r3": "0.35 (sd 0.036)",
        "capsnet-r3-recon": "0.25 (sd 0.005)",
    }


def test_which_of_two_values_is_better_follows_from_what_is_measured() -> None:
    for metric in (metric for spec in SPECS.values() for metric in spec.main):
        is_copy = metric.name.startswith("baseline_")  # of the input, which every variant has alike
        less = "error" in metric.name or metric.name == "ece"
        assert metric.better == (None if is_copy else "less" if less else "greater"), metric.name


def test_how_well_a_digit_is_drawn_stands_beside_the_same_measure_of_a_copy() -> None:
    names = [metric.name for metric in SPECS["multimnist"].main if not metric.headline]
    assert names == ["ssim_true", "baseline_ssim", "iou_true", "baseline_iou"]


def test_captions_name_data_budget_reductions_seeds_and_orientation(healthy: Path) -> None:
    results = collect(healthy)
    words = " ".join(wide_table(results, "affnist").caption)
    for part in ("affnist-synth, 320,000 test images", "not the paper's test set", "Budget: reduced", "width 1/8",
                 "Seeds: 0, 1 and 2", "960", "for orientation, not for comparison"):  # fmt: skip
        assert part in words


def test_an_unreduced_plan_on_the_papers_data_is_comparable(tmp_path: Path) -> None:
    tasks = {"mnist": ["cnn"], "affnist": ["cnn-valid"]}
    folder = toy.write_toy(tmp_path / "full", budget="short", reductions={}, tasks=tasks)
    results = collect(folder)
    assert is_comparable(results, "mnist")
    assert not is_comparable(results, "affnist")  # synthetic
    assert "orientation" not in " ".join(wide_table(results, "mnist").caption)
    assert "Reductions: none." in wide_table(results, "mnist").caption


def test_substitute_digits_are_called_so(tmp_path: Path) -> None:
    digits = {"name": "uci-digits", "badge": "UCI digits, not MNIST"}
    folder = toy.write_toy(
        tmp_path / "toy-digits", tasks={"mnist": ["cnn"]}, dataset=digits, budget="short", reductions={}
    )
    for path in folder.rglob("seed-*/**/*.json"):
        toy.change_json(path, dataset=digits)
    build_report(folder)
    frame = pd.read_csv(folder / "tables" / "mnist.csv")
    assert set(frame["dataset"]) == {"uci-digits"}
    for path in [folder / "tables" / "mnist.md", folder / "figures" / "mnist_error.txt", folder / "report.html"]:
        assert "UCI digits, not MNIST" in path.read_text()
    assert "the data are UCI digits, not MNIST" in " ".join(wide_table(collect(folder), "mnist").caption)


def test_no_figure_of_mnist_stands_beside_other_data_that_a_plan_names(tmp_path: Path) -> None:
    fashion = {"name": "fashion-mnist", "badge": "Fashion-MNIST"}
    tasks = {"mnist": ["capsnet-r3-recon"]}
    results = collect(toy.write_toy(tmp_path / "fashion", tasks=tasks, dataset=fashion, budget="short", reductions={}))
    assert csv_frame(long_table(results, "mnist"))["paper"].isna().all()
    caption = " ".join(wide_table(results, "mnist").caption)
    assert "paper" not in caption
    assert set(results.published.notes) == {"multimnist"}
    assert "Fashion-MNIST" in caption


def test_the_paper_is_spoken_of_where_its_column_is(tmp_path: Path) -> None:
    """Of k-means routing the paper has nothing; of CapsNet, which has no run here, its row is not shown."""
    for variants, runs, expected in (
        (["capsnet-kmeans", "capsnet-r3-recon"], ["capsnet-kmeans", "capsnet-r3-recon"], True),
        (["capsnet-kmeans", "capsnet-r3-recon"], ["capsnet-kmeans"], False),
        (["capsnet-kmeans"], ["capsnet-kmeans"], False),
    ):
        folder = toy.write_toy(tmp_path / f"{len(variants)}-{len(runs)}", tasks={"mnist": variants})
        for variant in set(variants) - set(runs):
            shutil.rmtree(folder / "runs" / "mnist" / variant)
        table = wide_table(collect(folder), "mnist")
        assert ("paper" in [column.label for column in table.columns]) == expected
        assert ("Column paper" in " ".join(table.caption)) == expected


def test_a_task_without_a_spec_gets_a_plain_table_and_one_that_left_the_plan_none(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "new", tasks={"mnist": ["cnn"]})
    left = folder / "tables" / "mnist.csv"
    left.parent.mkdir()
    left.write_text("of an earlier report")
    plan = json.loads((folder / "plan.json").read_text())
    runs = [run | {"task": "sweep", "config": toy.config_digest("sweep", "cnn", run["seed"])} for run in plan["runs"]]
    toy.change_json(folder / "plan.json", tasks={"sweep": ["cnn"]}, runs=runs)
    (folder / "runs" / "mnist").rename(folder / "runs" / "sweep")
    for path in folder.rglob("seed-*/**/*.json"):
        stored = json.loads(path.read_text())
        run = stored["run"] | {"task": "sweep"}
        more = {"digests": stored["digests"] | {"config": toy.config_digest(**run)}} if "digests" in stored else {}
        toy.change_json(path, run=run, **more)
    table = wide_table(collect(folder), "sweep")
    assert [column.label for column in table.columns] == ["variant", "error, %", "correct, images", "n", "failed"]
    assert build_report(folder).problems == []
    assert not left.exists()


def test_the_spread_of_a_metric_that_some_runs_lack_says_its_n(folder: Path) -> None:
    path = toy.run_folder(folder, "multimnist", "capsnet-r3-recon", 1) / "test" / "metrics.json"
    metrics = json.loads(path.read_text())["metrics"]
    toy.change_json(path, metrics=metrics | {"ssim_true": {"value": None, "unit": ""}})
    table = wide_table(collect(folder), "multimnist")
    ssim = [column.label for column in table.columns].index("SSIM")
    texts = {wide.variant: wide.entries[ssim].text for wide in table.rows}
    assert texts["capsnet-r3-recon"].endswith("(n = 2)")
    assert "n =" not in texts["capsnet-r1-recon"]
    assert texts["multimnist-cnn"] == "–"


def test_a_condition_of_which_no_file_can_be_read_keeps_its_row(folder: Path) -> None:
    for seed in (0, 1, 2):
        toy.truncate(toy.run_folder(folder, "affnist", "cnn-pool", seed) / "matched" / "metrics.json")
    frame = csv_frame(long_table(collect(folder), "affnist"))
    rows = frame[(frame["variant"] == "cnn-pool") & (frame["metric"] == "accuracy")]
    assert dict(zip(rows["condition"], rows["n"], strict=True)) == {"matched": 0, "converged": 3}


def test_failed_and_unmatched_runs_are_told_apart_and_neither_is_told_twice(folder: Path) -> None:
    toy.fail(folder, "affnist", "cnn-valid", 0)
    toy.unmatch(folder, "cnn-valid", 2)
    results = collect(folder)
    told = {(row.cell.variant, row.cell.condition): left_out(row) for row in long_table(results, "affnist")}
    assert told["cnn-valid", "matched"] == "1 failed, 1 not matched"
    assert told["cnn-valid", "converged"] == "1 failed"
    assert told["cnn-pool", "matched"] == ""
    table = wide_table(results, "affnist")
    assert table.columns[-1].label == "failed or not matched"
    assert "Left out of the means, listed on the report page: 1 failed and 1 not matched." in table.caption


def test_the_images_of_every_condition_are_named_where_they_differ(folder: Path) -> None:
    for path in folder.glob("runs/affnist/*/*/converged/metrics.json"):
        toy.change_json(path, images=4_000)
    assert "4,000 (converged) and 320,000 (matched) test images" in data_words(collect(folder), "affnist")


def test_a_budget_s_epochs_are_mnist_s_alone(tmp_path: Path) -> None:
    results = collect(toy.write_toy(tmp_path / "short", seeds=(0,), budget="short", reductions={}))
    assert budget_words(results, "affnist") == "short"
    assert budget_words(results) == "short (MNIST: 100 epochs, the decay scaled to the length)"
    without = toy.write_toy(tmp_path / "pairs", (0,), budget="short", reductions={}, tasks={"two_digit": ["x"]})
    assert budget_words(collect(without)) == "short"


@pytest.mark.parametrize(
    ("task", "words"), [("two_digit", "test pairs"), ("multimnist", "test pairs"), ("mnist", "test images")]
)
def test_what_is_scored_is_called_what_it_is(folder: Path, task: str, words: str) -> None:
    assert data_words(collect(folder), task).endswith(f" {words}")


@pytest.mark.parametrize(
    ("kind", "comparable"), [("experiment", False), ("training", False), ("measuring", True), ("digits", True)]
)
def test_smaller_models_and_shorter_trainings_are_not_compared_with_the_paper(
    tmp_path: Path, kind: str, comparable: bool
) -> None:
    reduced = {"mnist/cnn": [{"kind": kind, "words": "less"}]}
    folder = toy.write_toy(tmp_path / kind, tasks={"mnist": ["cnn"]}, budget="short", reductions={}, reduced=reduced)
    assert is_comparable(collect(folder), "mnist") == comparable
