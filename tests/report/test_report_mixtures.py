"""Runs that do not belong together: left out, or warned of, and named in both cases."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import toy
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.errors import DataError
from capsbench.plan import same_bits
from capsbench.report import build_report
from capsbench.report.captions import table_caption
from capsbench.report.collect import collect
from capsbench.report.results import Problem, Results


@pytest.fixture
def folder(mnist_alone: Path, tmp_path: Path) -> Path:
    """A copy of results of MNIST to spoil."""
    return Path(shutil.copytree(mnist_alone, tmp_path / "toy"))


def change(folder: Path, variant: str, seed: int, **changes: Any) -> None:
    """Replace keys inside a manifest's objects."""
    path = toy.run_folder(folder, "mnist", variant, seed) / "manifest.json"
    stored = json.loads(path.read_text())
    for key, value in changes.items():
        stored[key] = stored[key] | value if isinstance(value, dict) else value
    toy.write_json(path, stored)


def seeds(results: Results, variant: str) -> list[int]:
    frame = results.frame
    return sorted(frame.loc[(frame["variant"] == variant) & (frame["metric"] == "error"), "seed"])


def only(results: Results) -> Problem:
    (problem,) = results.problems
    return problem


@pytest.mark.parametrize("seed", [0, 1])
def test_another_budget_than_the_cell_s_other_seeds_is_left_out(folder: Path, seed: int) -> None:
    change(folder, "cnn", seed, config={"training": {"batch": 64}})
    problem = only(results := collect(folder))
    assert (problem.kind, problem.seed) == ("foreign", seed)
    assert "training.batch" in problem.reason
    assert seeds(results, "cnn") == [1 - seed, 2]


@pytest.mark.parametrize("steps", [500, 1_920])
def test_fewer_or_more_steps_than_the_config_says_are_left_out(folder: Path, steps: int) -> None:
    for seed in (0, 1, 2):
        change(folder, "cnn", seed, config={"steps": 960})
    change(folder, "cnn", 0, steps=steps)
    problem = only(results := collect(folder))
    assert (problem.kind, problem.seed) == ("foreign", 0)
    assert f"done after {steps:,} steps, but its config says 960" in problem.reason
    assert seeds(results, "cnn") == [1, 2]


def test_two_budgets_of_which_none_is_the_cell_s_are_not_averaged(folder: Path) -> None:
    for seed in (0, 1, 2):
        change(folder, "cnn", seed, steps=100 * (seed + 1))
    results = collect(folder)
    assert [(p.kind, p.seed) for p in results.problems] == [("foreign", 1), ("foreign", 2)]
    assert seeds(results, "cnn") == [0]


def test_a_copy_that_calls_itself_another_seed_is_known_by_its_weights(folder: Path) -> None:
    toy.copy_run(folder, "mnist", "cnn", 0, 1, claim=True)
    digests = {"config": toy.config_digest("mnist", "cnn", 1)}
    change(folder, "cnn", 1, digests=digests)
    problem = only(results := collect(folder))
    assert (problem.kind, problem.seed) == ("duplicated", 1)
    assert "weights are the same as seed 0's" in problem.reason
    assert seeds(results, "cnn") == [0, 2]


@pytest.mark.parametrize(
    ("changes", "words", "variant"),
    [
        ({"versions": {"torch": "2.12.0"}}, "torch: 14 runs with 2.11.0; 1 run with 2.12.0 (cnn/seed-1)", None),
        ({"machine": {"processor": "Arm"}}, "processor: 14 runs with AMD EPYC; 1 run with Arm (cnn/seed-1)", None),
        ({"machine": {"environment": "MKL_CBWR=AVX2"}}, "alter bits; 1 run with MKL_CBWR=AVX2 (cnn/seed-1)", None),
        ({"resolved": {"device": "cuda:0"}}, "device: 14 runs with cpu; 1 run with cuda (cnn/seed-1)", None),
        ({"resolved": {"precision": "bf16"}}, "precision: 2 runs with float32; 1 run with bf16 (cnn/seed-1)", "cnn"),
        ({"resolved": {"threads": 8}}, "threads: 2 runs with 1; 1 run with 8 (cnn/seed-1)", "cnn"),
        ({"digests": {"training_source": "0" * 64}}, "source: 2 runs with cccccccccc; 1 run with 0000000000", "cnn"),
    ],
)
def test_other_versions_and_devices_are_averaged_and_warned_of(
    folder: Path, changes: dict[str, Any], words: str, variant: str | None
) -> None:
    change(folder, "cnn", 1, **changes)
    problem = only(results := collect(folder))
    assert (problem.kind, problem.variant) == ("mixed", variant)
    assert words in problem.reason
    assert seeds(results, "cnn") == [0, 1, 2]


def test_sources_that_were_shown_to_give_the_same_bits_are_no_mixture(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, between, after = "0" * 64, "1" * 64, "c" * 64
    stored = json.loads((toy.run_folder(folder, "mnist", "cnn", 0) / "manifest.json").read_text())
    row = {"task": "mnist", "what_trains": same_bits.what_trains("mnist", stored["config"])}
    runs = [{**row, "training": pair} for pair in ([before, between], [after, between])]
    toy.write_json(tmp_path / "same-bits.json", {"changes": [{"device": "cpu", "runs": runs}]})
    monkeypatch.setattr(same_bits, "same_bits_file", lambda: tmp_path / "same-bits.json")
    change(folder, "cnn", 0, digests={"training_source": before})
    change(folder, "cnn", 1, digests={"training_source": between})
    assert collect(folder).problems == []
    change(folder, "cnn", 1, digests={"training_source": "2" * 64})
    assert only(collect(folder)).reason.endswith("2 runs with 0000000000; 1 run with 2222222222 (cnn/seed-1)")


def test_two_gpus_of_one_machine_and_two_precisions_of_two_cells_are_no_mixture(folder: Path) -> None:
    for variant in toy.TASKS["mnist"]:
        for seed in (0, 1, 2):
            precision = "bf16" if variant == "cnn" else "float32"
            change(folder, variant, seed, resolved={"device": f"cuda:{seed}", "precision": precision})
    assert collect(folder).problems == []


def test_every_kind_of_bad_run_is_named_on_the_page_under_the_table_and_on_the_terminal(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "bad", seeds=(0, 1, 2, 3, 4), tasks={"mnist": ["cnn"]})
    change(folder, "cnn", 0, versions={"torch": "2.12.0"})
    change(folder, "cnn", 1, digests={"config": "another"})
    toy.copy_run(folder, "mnist", "cnn", 0, 2, claim=False)
    toy.truncate(toy.run_folder(folder, "mnist", "cnn", 3) / "manifest.json")
    toy.run_folder(folder, "mnist", "cnn", 4).rename(tmp_path / "elsewhere")
    said = CliRunner().invoke(app, ["report", str(folder)])
    assert isinstance(said.exception, DataError)
    assert str(said.exception).startswith("2 files of these results cannot be read or cannot be believed,")
    assert CliRunner().invoke(app, ["report", str(folder), "--done", str(tmp_path / "done.json")]).exit_code == 0
    results = collect(folder)
    assert {p.kind for p in results.problems} == {"foreign", "duplicated", "unreadable", "missing"}
    page = html.unescape((folder / "report.html").read_text())
    for problem in results.problems:
        assert problem.reason in page
        assert problem.reason in said.output
    assert seeds(results, "cnn") == [0]
    caption = (folder / "tables" / "mnist.md").read_text()
    assert "1 unreadable, 1 duplicated and 1 foreign." in caption
    assert "Still missing: 1 planned result." in caption


@pytest.mark.slow
def test_a_mixture_is_named_on_the_page_and_counts_as_no_run_left_out(folder: Path) -> None:
    change(folder, "cnn", 1, versions={"torch": "2.12.0"})
    report = build_report(folder)
    page = html.unescape(report.html.read_text())
    assert report.problems[0].reason in page
    said = "Not all runs compared here were made alike: 1 difference of machine, version or setting, listed on the"
    assert f"{said} report page." in page
    assert "<span>mixed</span>1<" in page
    assert "<span>missing or left out</span>" not in page


def test_runs_of_a_cell_that_are_missing_are_one_line_of_the_page(folder: Path) -> None:
    for seed in (0, 2):
        shutil.rmtree(toy.run_folder(folder, "mnist", "cnn", seed))
    page = build_report(folder).html.read_text()
    assert page.count("<td><code>mnist/cnn") == page.count("<code>mnist/cnn (seeds 0, 2)</code>") == 1


def test_metrics_of_another_evaluation_than_the_plan_s_are_named(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    path = toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json"
    stored = json.loads(path.read_text())
    toy.write_json(
        folder / "plan.json", plan | {"runs": [run | {"evaluation": stored["digest"]} for run in plan["runs"]]}
    )
    assert collect(folder).problems == []
    toy.write_json(path, stored | {"digest": "f" * 64})
    problem = only(results := collect(folder))
    assert (problem.kind, problem.variant, problem.seed, problem.condition) == ("outdated", "cnn", 1, "test")
    assert problem.reason.startswith("scored with options or source code other than")
    caption = " ".join(table_caption(results, "mnist", with_paper=False))
    assert "or scored with options, other than today's: 1 result, listed on the report page." in caption
    assert "Not all runs compared" not in caption  # that is of machines, versions and settings
    assert seeds(results, "cnn") == [0, 1, 2]


def test_a_run_that_other_source_trained_is_named(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    runs = [run | ({"outdated": True} if run["variant"] == "cnn" and run["seed"] == 1 else {}) for run in plan["runs"]]
    toy.write_json(folder / "plan.json", plan | {"runs": runs})
    problem = only(results := collect(folder))
    assert (problem.kind, problem.variant, problem.seed, problem.condition) == ("outdated", "cnn", 1, None)
    assert problem.reason == "trained by source code other than today's; `capsbench run` or `train` makes it again"
    assert seeds(results, "cnn") == [0, 1, 2]


def test_a_run_that_other_source_trained_is_missing_too_where_it_is_not_evaluated(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    runs = [run | ({"outdated": True} if run["variant"] == "cnn" else {}) for run in plan["runs"]]
    toy.write_json(folder / "plan.json", plan | {"runs": runs})
    for seed in (0, 1, 2):
        for path in toy.run_folder(folder, "mnist", "cnn", seed).glob("*/metrics.json"):
            path.unlink()
    found = [problem for problem in collect(folder).problems if problem.variant == "cnn" and problem.task == "mnist"]
    assert [problem.kind for problem in found if problem.seed == 1] == ["outdated", "missing"]
    assert {problem.reason for problem in found if problem.kind == "missing"} == {"trained, but not evaluated yet"}


def test_the_most_frequent_value_of_a_mixture_is_named_first(folder: Path) -> None:
    change(folder, "cnn", 0, versions={"torch": "2.12.0"})
    reason = only(collect(folder)).reason
    assert reason.endswith("torch: 14 runs with 2.11.0; 1 run with 2.12.0 (cnn/seed-0)")


def test_of_many_runs_that_are_made_otherwise_four_are_named_and_the_others_counted(folder: Path) -> None:
    for variant in ("cnn", "capsnet-r1"):
        for seed in (0, 1, 2):
            change(folder, variant, seed, versions={"torch": "2.12.0"})
    reason = only(collect(folder)).reason
    names = "cnn/seed-0, cnn/seed-1, cnn/seed-2, capsnet-r1/seed-0 and 2 more"
    assert reason.endswith(f"9 runs with 2.11.0; 6 runs with 2.12.0 ({names})")
