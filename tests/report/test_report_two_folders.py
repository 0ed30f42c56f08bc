"""Two results folders told apart: identical, moved within noise or beyond it, and what else differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import toy
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.plan import same_bits
from capsbench.report.collect import collect
from capsbench.report.two_folders import Change, compare


@pytest.fixture
def other(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(healthy, tmp_path / "other"))


def score(folder: Path, variant: str, values: list[float], **metrics: Any) -> None:
    for seed, value in enumerate(values):
        path = toy.run_folder(folder, "mnist", variant, seed) / "test" / "metrics.json"
        toy.change_json(path, metrics={"error": {"value": value, "unit": "%"}}, **metrics)


def of(a: Path, b: Path, variant: str) -> Change:
    changes = compare(collect(a), collect(b)).changes
    return next(c for c in changes if (c.task, c.variant, c.metric) == ("mnist", variant, "error"))


def test_a_copy_is_identical(healthy: Path, other: Path) -> None:
    found = compare(collect(healthy), collect(other))
    assert {(change.found, change.difference) for change in found.changes} == {("identical", 0.0)}
    assert found.differences == []
    assert {change.metric for change in found.changes if change.task == "mnist"} == {"error"}
    assert len(compare(collect(healthy), collect(other), every_metric=True).changes) > len(found.changes)


def test_a_change_is_within_or_beyond_noise_and_signed_from_a_to_b(folder: Path, other: Path) -> None:
    score(folder, "cnn", [2.0, 2.1, 2.2])
    score(other, "cnn", [3.0, 3.1, 3.2])
    score(folder, "capsnet-r3", [1.0, 2.0, 3.0])
    score(other, "capsnet-r3", [1.5, 2.0, 3.1])
    far, near = of(folder, other, "cnn"), of(folder, other, "capsnet-r3")
    assert (far.found, round(far.difference or 0, 9)) == ("beyond noise", 1.0)
    assert far.low is not None
    assert far.p is not None
    assert far.low > 0.7
    assert far.p_holm == pytest.approx(2 * far.p)  # two were tested
    assert near.found == "within noise"
    assert near.difference == pytest.approx(0.2)


def test_beyond_noise_is_under_five_in_a_hundred(folder: Path, other: Path) -> None:
    """Two seeds' deviations apart: Student's t of 6 ** 0.5 at 4 degrees of freedom, whose p is 0.0705."""
    score(folder, "cnn", [2.0, 2.1, 2.2])
    score(other, "cnn", [2.2, 2.3, 2.4])
    change = of(folder, other, "cnn")
    assert change.p_holm == change.p == pytest.approx(0.0705, abs=5e-5)
    assert change.found == "within noise"


def test_noise_is_corrected_for_how_much_was_tested(folder: Path, other: Path) -> None:
    for variant in toy.TASKS["mnist"]:
        score(folder, variant, [2.0, 2.1, 2.2])
        score(other, variant, [2.27, 2.37, 2.48])
    change = of(folder, other, "cnn")
    assert change.p is not None
    assert change.p < 0.05
    assert change.found == "within noise"


def test_diagnostics_are_compared_where_every_metric_is(folder: Path, other: Path) -> None:
    """They have no rows in the readable tables, and a condition that one side alone has is named in any case."""
    for path in other.glob("runs/mnist/capsnet-r3/*/routing/metrics.json"):
        stored = json.loads(path.read_text())["metrics"]
        toy.change_json(path, metrics={name: {**of, "value": of["value"] / 2} for name, of in stored.items()})
    found = compare(collect(folder), collect(other), every_metric=True)
    moved = {(c.variant, c.condition, c.metric) for c in found.changes if c.found != "identical"}
    assert ("capsnet-r3", "routing", "mutual_information") in moved
    assert {(variant, condition) for variant, condition, _ in moved} == {("capsnet-r3", "routing")}
    for path in other.glob("runs/mnist/capsnet-r3/*/routing"):
        shutil.rmtree(path)
    found = compare(collect(folder), collect(other), every_metric=True)
    assert {c.found for c in found.changes if (c.variant, c.condition) == ("capsnet-r3", "routing")} == {"only in A"}
    words = ["scored for 3 seeds", "not scored"]
    assert told_apart(folder, other) == {"mnist/capsnet-r3: condition routing": words}
    assert told_apart(other, folder) == {"mnist/capsnet-r3: condition routing": words[::-1]}


def test_one_seed_decides_nothing(folder: Path, other: Path) -> None:
    for seed in (1, 2):
        shutil.rmtree(toy.run_folder(other, "mnist", "cnn", seed))
    score(other, "cnn", [])
    toy.change_json(
        toy.run_folder(other, "mnist", "cnn", 0) / "test" / "metrics.json", metrics={"error": {"value": 9, "unit": "%"}}
    )
    change = of(folder, other, "cnn")
    assert (change.found, change.p, change.b.n) == ("too few seeds", None, 1)
    assert change.difference is not None


def test_seeds_that_agree_decide_nothing(folder: Path, other: Path) -> None:
    score(folder, "cnn", [2.0, 2.0, 2.0])
    score(other, "cnn", [2.1, 2.1, 2.1])
    change = of(folder, other, "cnn")
    assert (change.found, change.p, change.b.n) == ("too few seeds", None, 3)
    assert "no spread to judge by" in change.why


def test_other_data_are_not_compared(folder: Path, other: Path) -> None:
    score(other, "cnn", [2.0, 2.0, 2.0], images=500)
    change = of(folder, other, "cnn")
    assert (change.found, change.difference) == ("not comparable", None)
    assert "10,000 images of mnist" in change.why
    assert "500 images of mnist" in change.why


def test_a_cell_of_one_side_is_named(folder: Path, other: Path) -> None:
    shutil.rmtree(folder / "runs" / "mnist" / "cnn")
    assert (of(folder, other, "cnn").found, of(folder, other, "cnn").unit) == ("only in B", "%")
    assert (of(other, folder, "cnn").found, of(other, folder, "cnn").unit) == ("only in A", "%")


def test_config_versions_device_and_budget_are_told_apart(folder: Path, other: Path) -> None:
    toy.change_json(other / "plan.json", budget="short", reductions={"mnist": []})
    for path in other.glob("runs/mnist/cnn/*/manifest.json"):
        stored = json.loads(path.read_text())
        stored["config"]["training"]["batch"] = 64
        stored["digests"]["training_source"] = "d" * 64
        stored["resolved"]["device"] = "cuda:0"
        stored["versions"]["torch"] = "2.12.0"
        toy.write_json(path, stored)
    found = {where: sides for where, *sides in compare(collect(folder), collect(other)).differences}
    assert found["budget"] == ["reduced", "short"]
    assert found["mnist: reductions"] == ["width 1/8; 3 of 5 seeds", "none"]
    assert found["mnist/cnn: training.batch"] == ["128", "64"]
    assert found["mnist/cnn: training source"] == ["c" * 12, "d" * 12]
    assert found["device"] == ["cpu", "cpu, cuda:0"]
    assert found["torch"] == ["2.11.0", "2.11.0, 2.12.0"]
    assert "python" not in found


def edit_manifest(folder: Path, seed: int, key: str, value: Any, of: str = "digests") -> None:
    path = toy.run_folder(folder, "mnist", "cnn", seed) / "manifest.json"
    toy.change_json(path, **{of: json.loads(path.read_text())[of] | {key: value}})


def told_apart(folder: Path, other: Path) -> dict[str, list[str]]:
    return {where: sides for where, *sides in compare(collect(folder), collect(other)).differences}


def test_sources_that_were_shown_to_give_the_same_bits_are_not_told_apart(
    folder: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (0, 1, 2):
        edit_manifest(other, seed, "training_source", "d" * 64)
    assert list(told_apart(folder, other)) == ["mnist/cnn: training source"]
    stored = json.loads((toy.run_folder(folder, "mnist", "cnn", 0) / "manifest.json").read_text())
    row = {"what_trains": same_bits.what_trains("mnist", stored["config"]), "training": ["c" * 64, "d" * 64]}
    toy.write_json(tmp_path / "same-bits.json", {"changes": [{"device": "cpu", "runs": [row]}]})
    monkeypatch.setattr(same_bits, "same_bits_file", lambda: tmp_path / "same-bits.json")
    assert told_apart(folder, other) == {}
    for seed in (0, 1, 2):
        edit_manifest(other, seed, "device", "cuda:0", of="resolved")
    assert "mnist/cnn: training source" in told_apart(folder, other)


def test_the_source_of_every_seed_is_compared(folder: Path, other: Path) -> None:
    edit_manifest(other, 2, "training_source", "d" * 64)
    words = f"{'c' * 12} (seeds 0, 1), {'d' * 12} (seed 2)"
    assert told_apart(folder, other) == {"mnist/cnn: training source": ["c" * 12, words]}
    edit_manifest(folder, 1, "training_source", "d" * 64)  # the same two sources, of other seeds
    found = told_apart(folder, other)["mnist/cnn: training source"]
    assert found == [f"{'c' * 12} (seeds 0, 2), {'d' * 12} (seed 1)", words]
    shutil.rmtree(toy.run_folder(other, "mnist", "cnn", 2))
    edit_manifest(folder, 1, "training_source", "c" * 64)
    assert told_apart(folder, other) == {}  # a seed fewer is no other source


def test_machines_that_are_swapped_between_runs_are_told(folder: Path, other: Path) -> None:
    edit_manifest(folder, 0, "device", "cuda:0", of="resolved")
    edit_manifest(other, 1, "device", "cuda:0", of="resolved")
    assert told_apart(folder, other) == {"device": ["cpu, cuda:0", "cpu, cuda:0, but a different one for 2 runs"]}


def test_a_commit_whose_files_may_have_been_changed_is_not_the_commit(folder: Path, other: Path) -> None:
    edit_manifest(other, 1, "dirty", None, of="git")
    assert told_apart(folder, other) == {"commit": ["0123456789", "0123456789, 0123456789 (perhaps changed)"]}


def test_the_test_set_looked_at_is_compared(folder: Path, other: Path) -> None:
    edit_manifest(other, 1, "test_set", "e" * 64)
    assert list(told_apart(folder, other)) == ["mnist/cnn: test set"]


def test_evaluations_of_the_same_weights_are_compared(folder: Path, other: Path) -> None:
    metrics = toy.run_folder(other, "mnist", "cnn", 1) / "test" / "metrics.json"
    toy.change_json(metrics, digest="f" * 64)
    words = f"{'e' * 12} (seeds 0, 2), {'f' * 12} (seed 1)"
    assert told_apart(folder, other) == {"mnist/cnn: evaluation of test": ["e" * 12, words]}
    manifests = [toy.run_folder(side, "mnist", "cnn", 1) / "manifest.json" for side in (folder, other)]
    for manifest in manifests:
        toy.change_json(manifest, weights=None)
    assert told_apart(folder, other) == {}  # the digest covers the weights, which may be others here
    toy.change_json(manifests[1], weights="9" * 64)
    toy.change_json(metrics, weights="9" * 64)
    assert told_apart(folder, other) == {}  # and are others here
    said = CliRunner().invoke(app, ["compare", str(folder), str(other)])
    assert "same data, budget, config, training source, versions" in " ".join(said.output.split())
    assert "cannot be told for 1 run, whose weights differ" in " ".join(said.output.split())


def test_transforms_of_test_images_are_compared_whatever_the_weights(folder: Path, other: Path) -> None:
    run = toy.run_folder(other, "affnist", "cnn-pool", 1)
    made = {"name": "affnist-synth", "badge": "affnist-synth", "digest": "9" * 64}
    toy.change_json(run / "converged" / "metrics.json", dataset=made)
    words = f"none (seeds 0, 2), {'9' * 12} (seed 1)"
    assert told_apart(folder, other) == {"affnist/cnn-pool: data digest of converged": ["none", words]}


def test_a_failed_run_has_no_evaluation_that_differs(folder: Path, other: Path) -> None:
    toy.fail(other, "mnist", "cnn", 1)
    assert told_apart(folder, other) == {}


def test_the_terminal_says_it(folder: Path, other: Path, tmp_path: Path) -> None:
    score(folder, "cnn", [2.0, 2.1, 2.2])
    score(other, "cnn", [3.0, 3.1, 3.2])
    toy.fail(other, "mnist", "capsnet-r1", 1)
    said = CliRunner().invoke(app, ["compare", str(folder), str(other)])
    assert said.exit_code == 0
    assert "mnist/cnn test error, %: A 2.10 ± 0.25 (n=3), B 3.10 ± 0.25 (n=3): +1.00" in said.output
    assert "beyond noise" in said.output
    assert "B: mnist/capsnet-r1/seed-1: failed" in said.output
    toy.truncate(toy.run_folder(folder, "mnist", "cnn", 0) / "manifest.json")
    damaged = CliRunner().invoke(app, ["compare", str(folder), str(other)])
    assert "A: mnist/cnn/seed-0: unreadable" in damaged.output
    assert "1 file of these results cannot be read or cannot be believed" in str(damaged.exception)
    nothing = CliRunner().invoke(app, ["compare", str(folder), str(tmp_path)])
    assert nothing.exit_code != 0
    assert "plan.json is not there" in str(nothing.exception)


def test_other_units_are_not_compared(folder: Path, other: Path) -> None:
    for seed in (0, 1, 2):
        path = toy.run_folder(other, "mnist", "cnn", seed) / "test" / "metrics.json"
        toy.change_json(path, metrics={"error": {"value": 0.02, "unit": ""}})
    change = of(folder, other, "cnn")
    assert (change.found, change.difference) == ("not comparable", None)
    assert change.why == "A: 10,000 images of mnist, in %; B: 10,000 images of mnist, in no unit"


def test_an_interval_lies_around_its_difference(folder: Path, other: Path) -> None:
    score(folder, "cnn", [2.0, 2.1, 2.2])
    score(other, "cnn", [3.0, 3.1, 3.2])
    change = of(folder, other, "cnn")
    assert (change.low, change.high) == pytest.approx((0.7733, 1.2267), abs=1e-4)  # 1 ± 2.776 * 0.1 * (2 / 3) ** 0.5


def test_plans_of_other_seeds_are_told_apart(folder: Path, other: Path) -> None:
    toy.change_json(other / "plan.json", seeds=[0, 1])
    assert told_apart(folder, other) == {"seeds": ["0, 1, 2", "0, 1"]}


def test_a_commit_with_changed_files_is_not_the_commit(folder: Path, other: Path) -> None:
    edit_manifest(other, 1, "dirty", True, of="git")
    assert told_apart(folder, other) == {"commit": ["0123456789", "0123456789, 0123456789 (changed)"]}


def test_one_file_that_is_damaged_on_both_sides_is_two(folder: Path, other: Path) -> None:
    for where in (folder, other):
        (toy.run_folder(where, "mnist", "cnn", 0) / "test" / "metrics.json").write_text("{")
    done = CliRunner().invoke(app, ["compare", str(folder), str(other)])
    assert done.exit_code != 0
    assert str(done.exception).startswith("2 files of these results cannot be read")


def test_a_p_under_five_in_a_hundred_is_beyond_noise(folder: Path, other: Path) -> None:
    """2.8 deviations apart: Student's t of 3.43 at 4 degrees of freedom."""
    score(folder, "cnn", [2.0, 2.1, 2.2])
    score(other, "cnn", [2.28, 2.38, 2.48])
    change = of(folder, other, "cnn")
    assert change.p_holm == change.p == pytest.approx(0.0266, abs=5e-5)
    assert change.found == "beyond noise"


def test_values_that_seeds_have_exchanged_are_not_identical(folder: Path, other: Path) -> None:
    score(folder, "cnn", [2.0, 2.1, 2.2])
    score(other, "cnn", [2.1, 2.0, 2.2])
    change = of(folder, other, "cnn")
    assert (change.found, change.p) == ("within noise", pytest.approx(1.0))


def test_the_digests_of_both_sides_data_are_told(folder: Path, other: Path) -> None:
    dataset = json.loads((other / "plan.json").read_text())["dataset"]
    toy.change_json(other / "plan.json", dataset={**dataset, "digest": "e" * 64})
    told = {where: (x, y) for where, x, y in compare(collect(folder), collect(other)).differences}
    assert told["data digest"] == (dataset["digest"][:12], "e" * 12)


def test_runs_that_both_failed_have_no_evaluations_to_tell_apart(folder: Path, other: Path) -> None:
    for side, weights in ((folder, "8" * 64), (other, "9" * 64)):
        toy.fail(side, "mnist", "cnn", 1)
        toy.change_json(toy.run_folder(side, "mnist", "cnn", 1) / "manifest.json", weights=weights)
    assert compare(collect(folder), collect(other)).other_weights == 0


def test_evaluations_of_runs_with_other_digests_are_not_told_apart(folder: Path, other: Path) -> None:
    """An evaluation's digest covers the run's, so it is another one though the evaluation may be the same."""
    run = toy.run_folder(other, "mnist", "cnn", 1)
    toy.change_json(run / "manifest.json", digest="9" * 64)
    toy.change_json(run / "test" / "metrics.json", digest="f" * 64)
    found = compare(collect(folder), collect(other))
    assert (found.differences, found.other_weights) == ([], 1)


def test_two_seeds_that_agree_on_both_sides_are_enough_seeds_without_a_spread(folder: Path, other: Path) -> None:
    for side, value in ((folder, 2.0), (other, 2.1)):
        shutil.rmtree(toy.run_folder(side, "mnist", "cnn", 2))
        score(side, "cnn", [value, value])
    change = of(folder, other, "cnn")
    assert (change.a.n, change.b.n, change.found) == (2, 2, "too few seeds")
    assert "no spread to judge by" in change.why


def test_evaluations_of_routing_are_told_apart_too(folder: Path, other: Path) -> None:
    toy.change_json(toy.run_folder(other, "mnist", "capsnet-r3", 1) / "routing" / "metrics.json", digest="f" * 64)
    assert list(told_apart(folder, other)) == ["mnist/capsnet-r3: evaluation of routing"]
