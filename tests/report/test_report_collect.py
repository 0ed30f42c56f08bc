"""Runs that cannot be counted are named and left out; the rest is read as written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import toy

from capsbench.pipeline import numbers_digest
from capsbench.plan.done import is_done
from capsbench.report.collect import collect
from capsbench.report.contract import ResultsError
from capsbench.report.results import COLUMNS, Results


def kinds(results: Results) -> dict[str, str]:
    return {problem.name: problem.kind for problem in results.problems}


def values(results: Results, variant: str, metric: str = "error") -> list[int]:
    """The seeds that count."""
    frame = results.frame
    return sorted(frame.loc[(frame["variant"] == variant) & (frame["metric"] == metric), "seed"])


def test_a_healthy_folder_is_whole(healthy: Path) -> None:
    results = collect(healthy)
    assert results.problems == []
    assert results.failed == 0
    assert list(results.frame.columns) == COLUMNS
    assert len(results.runs) == 3 * sum(map(len, toy.TASKS.values()))
    stored = json.loads((toy.run_folder(healthy, "mnist", "cnn", 1) / "test" / "metrics.json").read_text())
    row = results.frame.query("task == 'mnist' and variant == 'cnn' and seed == 1 and metric == 'error'").iloc[0]
    assert (row["value"], row["unit"], row["images"]) == (stored["metrics"]["error"]["value"], "%", 10_000)


def test_a_failed_run_is_counted_and_its_old_metrics_are_not(folder: Path) -> None:
    toy.fail(folder, "mnist", "cnn", 1, "not finite at step 40")
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1": "failed"}
    assert results.problems[0].reason == "not finite at step 40"
    assert results.failed == 1
    assert values(results, "cnn") == [0, 2]


def test_a_failed_run_of_these_tests_is_one_that_training_would_leave(folder: Path) -> None:
    """It has weights: a manifest without them is not whole, and its run would be trained again."""
    run = toy.run_folder(folder, "mnist", "cnn", 1)
    scored = json.loads((run / "test" / "metrics.json").read_text())
    toy.fail(folder, "mnist", "cnn", 1)
    stored = json.loads((run / "manifest.json").read_text())
    assert is_done(run, {"run": stored["digest"], **stored["digests"]}) == stored
    assert stored["weights"] != scored["weights"]


def test_a_run_that_was_not_matched_is_counted_under_its_condition_only(folder: Path) -> None:
    toy.unmatch(folder, "cnn-valid", 2)
    results = collect(folder)
    assert kinds(results) == {"affnist/cnn-valid/seed-2/matched": "not matched"}
    assert results.failed == 0
    of = results.frame.query("variant == 'cnn-valid' and metric == 'accuracy'")
    assert sorted(of.loc[of["condition"] == "matched", "seed"]) == [0, 1]
    assert sorted(of.loc[of["condition"] == "converged", "seed"]) == [0, 1, 2]


@pytest.mark.parametrize("name", ["manifest.json", "test/metrics.json"])
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    path = toy.run_folder(folder, "mnist", "cnn", 1) / name
    toy.truncate(path)
    results = collect(folder)
    (problem,) = results.problems
    assert problem.kind == "unreadable"
    assert problem.file == path.relative_to(folder).as_posix()
    assert "truncated" in problem.reason
    assert values(results, "cnn") == [0, 2]


@pytest.mark.parametrize(
    "metrics",
    [
        {"error": {"value": "1.5", "unit": "%"}, "correct": 3},
        {"error": {"value": float("nan"), "unit": "%"}},
        {"error": {"value": float("inf"), "unit": "%"}},
        {"error": {"value": 250.0, "unit": "%"}},
        ["error"],
    ],
)
def test_metrics_of_another_shape_are_unreadable(folder: Path, metrics: object) -> None:
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json", metrics=metrics)
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1/test": "unreadable"}
    assert values(results, "cnn") == [0, 2]


def test_absent_digits_may_have_more_ink_than_one_that_is_there(folder: Path) -> None:
    metrics = {"error": {"value": 1.0, "unit": "%"}, "leakage": {"value": 526.8, "unit": "%"}}
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json", metrics=metrics)
    assert kinds(collect(folder)) == {}


@pytest.mark.parametrize("count", [-1, 2**63, 10**30])
def test_counts_that_no_table_could_hold_are_unreadable(folder: Path, count: int) -> None:
    run = toy.run_folder(folder, "mnist", "cnn", 1)
    toy.change_json(run / "test" / "metrics.json", images=count)
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 2) / "manifest.json", parameters=count)
    assert kinds(collect(folder)) == {"mnist/cnn/seed-1/test": "unreadable", "mnist/cnn/seed-2": "unreadable"}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b"null", b"3"])
def test_a_manifest_that_is_none_is_unreadable(folder: Path, content: bytes) -> None:
    (toy.run_folder(folder, "mnist", "cnn", 1) / "manifest.json").write_bytes(content)
    assert kinds(collect(folder)) == {"mnist/cnn/seed-1": "unreadable"}


def test_missing_runs_and_missing_evaluations_are_told_apart(folder: Path) -> None:
    shutil.rmtree(toy.run_folder(folder, "mnist", "cnn", 0))
    shutil.rmtree(toy.run_folder(folder, "mnist", "cnn", 1) / "test")
    for seed in (0, 1, 2):
        shutil.rmtree(toy.run_folder(folder, "mnist", "capsnet-r1", seed) / "test")
    results = collect(folder)
    reasons = {p.name: p.reason for p in results.problems}
    assert set(kinds(results).values()) == {"missing"}
    assert "no manifest" in reasons["mnist/cnn/seed-0"]
    assert "under this condition" in reasons["mnist/cnn/seed-1/test"]
    assert "not evaluated" in reasons["mnist/capsnet-r1/seed-2"]
    assert len(reasons) == 5


def test_a_run_that_the_plan_does_not_name_is_foreign(folder: Path) -> None:
    toy.copy_run(folder, "mnist", "cnn", 0, 7, claim=True)
    toy.run_folder(folder, "mnist", "cnn", 0).with_name("seed-01").mkdir()
    shutil.copy(
        toy.run_folder(folder, "mnist", "cnn", 0) / "manifest.json",
        toy.run_folder(folder, "mnist", "cnn", 0).with_name("seed-01"),
    )
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-7": "foreign", "mnist/cnn": "foreign"}
    assert values(results, "cnn") == [0, 1, 2]


def test_a_copied_folder_is_a_duplicate(folder: Path) -> None:
    toy.copy_run(folder, "mnist", "cnn", 0, 1, claim=False)
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1": "duplicated"}
    assert values(results, "cnn") == [0, 2]


def test_copied_metrics_are_a_duplicate_under_their_condition(folder: Path) -> None:
    place = [toy.run_folder(folder, "affnist", "cnn-valid", seed) / "matched" / "metrics.json" for seed in (0, 1)]
    shutil.copy(*place)
    results = collect(folder)
    assert kinds(results) == {"affnist/cnn-valid/seed-1/matched": "duplicated"}


def test_a_run_listed_twice_counts_once(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    toy.change_json(folder / "plan.json", runs=[*plan["runs"], plan["runs"][0]])
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-0": "duplicated"}
    assert values(results, "cnn") == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": {"name": "uci-digits", "badge": "UCI digits, not MNIST"}}, "trained on uci-digits"),
        (
            {"digests": {"config": toy.config_digest("mnist", "cnn", 1), "data": "00"}},
            "files of mnist other than the plan's",
        ),
        ({"digests": {"config": "another", "data": toy.DATA_DIGEST}}, "a config other than the plan's"),
        ({"run": {"task": "mnist", "variant": "cnn-valid", "seed": 1}}, "says that it belongs to mnist/cnn-valid"),
    ],
)
def test_a_run_of_other_data_or_config_is_foreign(folder: Path, change: dict[str, object], words: str) -> None:
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "manifest.json", **change)
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1": "foreign"}
    assert words in results.problems[0].reason
    assert values(results, "cnn") == [0, 2]


def test_an_edited_plan_keeps_runs_of_the_same_config(folder: Path) -> None:
    toy.change_json(folder / "plan.json", digest="ff" * 32)
    assert collect(folder).problems == []


def test_without_config_digests_the_plan_s_digest_decides(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    runs = [{key: run[key] for key in ("task", "variant", "seed")} for run in plan["runs"]]
    toy.change_json(folder / "plan.json", runs=runs)
    assert collect(folder).problems == []
    toy.change_json(folder / "plan.json", digest="ff" * 32)
    assert set(kinds(collect(folder)).values()) == {"foreign"}


def test_metrics_of_earlier_weights_are_left_out(folder: Path) -> None:
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "manifest.json", weights="9" * 64)
    results = collect(folder)
    assert kinds(results) == {f"mnist/cnn/seed-1/{condition}": "foreign" for condition in ("test", "attacked")}
    assert values(results, "cnn") == [0, 2]


def test_mixed_test_sets_are_never_averaged(folder: Path) -> None:
    official = {"name": "affnist", "badge": "affNIST"}
    place = toy.run_folder(folder, "affnist", "cnn-valid", 0)
    toy.change_json(place / "matched" / "metrics.json", dataset=official)
    results = collect(folder)
    assert set(results.frame.query("task == 'affnist'")["dataset"]) == {"affnist"}
    assert all(p.kind == "foreign" and "affnist-synth" in p.reason for p in results.problems)
    assert values(results, "cnn-valid", "accuracy") == [0]


def test_runs_on_another_test_set_do_not_outvote_the_number_of_images(folder: Path) -> None:
    """Two seeds on the synthetic set are left out for that; the one on the official files is the only sound one."""
    official = {"name": "affnist", "badge": "affNIST"}
    place = toy.run_folder(folder, "affnist", "cnn-valid", 0)
    toy.change_json(place / "matched" / "metrics.json", dataset=official, images=40_000)
    results = collect(folder)
    assert values(results, "cnn-valid", "accuracy") == [0]
    assert not any("images where" in problem.reason for problem in results.problems)


def test_a_folder_of_any_name_is_foreign(folder: Path) -> None:
    stray = folder / "runs" / "affnist" / "a\\b" / "seed-0"
    shutil.copytree(toy.run_folder(folder, "affnist", "cnn-valid", 0), stray)
    assert list(kinds(collect(folder)).values()) == ["foreign"]


def test_another_number_of_images_is_left_out(folder: Path) -> None:
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json", images=500)
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1/test": "foreign"}
    assert "500" in results.problems[0].reason


def test_the_number_of_images_is_that_of_most_seeds_and_not_the_largest(folder: Path) -> None:
    for seed in (0, 2):
        toy.change_json(toy.run_folder(folder, "mnist", "cnn", seed) / "test" / "metrics.json", images=500)
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1/test": "foreign"}
    assert results.problems[0].reason == "scored on 10,000 images, but other seeds were scored on 500"
    assert values(results, "cnn") == [0, 2]


def test_of_two_numbers_of_images_that_are_as_frequent_the_larger_counts(folder: Path) -> None:
    shutil.rmtree(toy.run_folder(folder, "mnist", "cnn", 2))
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 0) / "test" / "metrics.json", images=500)
    assert values(collect(folder), "cnn") == [1]


def test_a_metric_without_a_value_is_named(folder: Path) -> None:
    metrics = {"error": {"value": None, "unit": "%"}, "correct": {"value": 3, "unit": "images"}}
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json", metrics=metrics)
    results = collect(folder)
    assert kinds(results) == {"mnist/cnn/seed-1/test": "undefined"}
    assert values(results, "cnn") == [0, 2]
    assert values(results, "cnn", "correct") == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema"),
        ({"name": "a\0b"}, "folder"),
        ({"tasks": {"../../outside": ["cnn"]}, "runs": []}, "folder"),
        ({"tasks": {"mnist": ["cnn"]}}, "does not list"),
        ({"runs": [{"task": "mnist", "variant": "cnn", "seed": -1}]}, "seed"),
    ],
)
def test_a_wrong_plan_is_one_sentence(folder: Path, change: dict[str, object], words: str) -> None:
    toy.change_json(folder / "plan.json", **change)
    with pytest.raises(ResultsError, match=words) as caught:
        collect(folder)
    assert "plan.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", [{"training": {"rate": "1e-3"}}, {"training": {"batch": [1]}}, {"task": [1]}])
def test_a_config_that_holds_something_else_is_unreadable_and_ends_no_report(tmp_path: Path, config: dict) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0, 1), tasks={"mnist": ["cnn"]})
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "manifest.json", config=config)
    assert kinds(collect(folder)) == {"mnist/cnn/seed-1": "unreadable"}


def test_no_plan_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"plan.json is not there"):
        collect(tmp_path)


def test_a_manifest_that_cannot_be_read_is_a_problem_and_no_obstacle(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0, 1), tasks={"mnist": ["cnn"]})
    before = numbers_digest(folder)
    manifest = toy.run_folder(folder, "mnist", "cnn", 0) / "manifest.json"
    manifest.unlink()
    manifest.mkdir()  # whoever runs the tests may be root, whom no permission stops
    assert numbers_digest(folder) != before
    results = collect(folder)
    assert len(results.problems) == 1
    assert values(results, "cnn") == [1]
