"""A run by an earlier source counts where that source was shown to give the same bits, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from scripts import script

from capsbench.cli.again import what_changed
from capsbench.cli.second_making import circumstances, decided_otherwise
from capsbench.errors import PlanError
from capsbench.evaluation import done
from capsbench.files import read_json, write_json
from capsbench.plan import House
from capsbench.plan import same_bits as shown
from capsbench.plan.done import DECIDE, is_done, run_digests
from capsbench.provenance import digest_of
from capsbench.report.contract import Manifest

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = {
    "variant": {"model": "cnn", "channels": [256]}, "task": {"image": [28, 28], "last_epochs": 5}, "dataset": "mnist",
    "training": {"batch": 128, "rate": 0.001}, "steps": 100,
}  # fmt: skip
ON_A_CPU = {
    "resolved": {"device": "cpu", "precision": "float32"},
    "run": {"task": "mnist", "variant": "cnn", "seed": 0},
    "config": CONFIG,
}


def change(*training: str, task: str = "mnist", config: dict[str, Any] = CONFIG, device: str = "cpu") -> dict[str, Any]:
    return {
        "device": device,
        "runs": [{"task": task, "what_trains": shown.what_trains(task, config), "training": training}],
    }


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def write(*changes: dict[str, Any]) -> Path:
        path = tmp_path / "same-bits.json"
        write_json(path, {"schema": 1, "changes": changes})
        shown._shown.cache_clear()
        return path

    monkeypatch.setattr(shown, "same_bits_file", lambda: tmp_path / "same-bits.json")
    yield write
    shown._shown.cache_clear()


def test_sources_are_followed_from_change_to_change(written) -> None:
    written(change("a", "b"), change("b", "c"), change("x", "c"), change("y", "z"))
    for one in "abcx":
        assert shown.same_sources(one, ON_A_CPU) == set("abcx")
    assert shown.same_sources("y", ON_A_CPU) == {"y", "z"}
    assert shown.same_sources("new", ON_A_CPU) == {"new"}


@pytest.mark.parametrize(
    "other",
    [
        {"config": {**CONFIG, "variant": {"model": "cnn", "channels": [16]}}},  # a narrower one of the same name
        {"config": {**CONFIG, "training": {"batch": 32, "rate": 0.001}}},
        {"config": {**CONFIG, "task": {"image": [40, 40]}}},
        {"config": {**CONFIG, "task": {"image": [28, 28], "squeezed": True}}},  # what is shown goes another way
        {"config": {**CONFIG, "task": {"image": [28, 28], "placement": "official"}}},
        {"config": {**CONFIG, "task": {"image": [28, 28], "train_per_class": 10}}},
        {"config": {**CONFIG, "dataset": "kmnist"}},
        {"config": None},
        {"config": {**CONFIG, "training": [None]}},  # a damaged manifest
        {"config": {**CONFIG, "task": "mnist"}},
        {"run": {"task": "affnist", "variant": "cnn"}},
        {"run": None},
    ],
)
def test_what_was_shown_of_one_row_says_nothing_of_another_by_the_same_source(written, other: dict[str, Any]) -> None:
    written(change("a", "b"))
    assert shown.same_sources("b", {**ON_A_CPU, **other}) == {"b"}


def test_it_holds_for_another_length_rate_and_seed(written) -> None:
    written(change("a", "b"))
    longer = {**CONFIG, "training": {"batch": 128, "rate": 0.1}, "steps": 9375, "task": {"image": [28, 28]}}
    run = {"task": "mnist", "variant": "another-name", "seed": 3}
    assert shown.same_sources("b", {**ON_A_CPU, "config": longer, "run": run}) == {"a", "b"}


@pytest.mark.parametrize(
    "resolved",
    [{"device": "cuda:0", "precision": "float32"}, {"device": "cpu", "precision": "bf16"}, {}, None, "cpu"],
)
def test_what_was_shown_on_a_cpu_in_float32_says_nothing_of_others(written, resolved: Any) -> None:
    written(change("a", "b"))
    assert shown.same_sources("b", {**ON_A_CPU, "resolved": resolved}) == {"b"}


def test_what_was_shown_on_a_gpu_holds_for_runs_on_one_and_no_others(written) -> None:
    written(change("a", "b", device="cuda"))
    for device, precision, sources in (
        ("cuda:0", "float32", {"a", "b"}),
        ("cuda:1", "float32", {"a", "b"}),
        ("cuda:0", "bf16", {"b"}),
        ("cpu", "float32", {"b"}),
    ):
        resolved = {"device": device, "precision": precision}
        assert shown.same_sources("b", {**ON_A_CPU, "resolved": resolved}) == sources


def test_the_same_program_has_the_same_bits_in_every_precision(written) -> None:
    written({**change("a", "b"), "shown": "the same program"}, change("b", "c"))
    for device, precision, sources in (
        ("cpu", "float32", {"a", "b", "c"}),
        ("cpu", "bf16", {"a", "b"}),
        ("cpu", None, {"b"}),
        ("cuda:0", "bf16", {"b"}),
    ):
        resolved = {"device": device, "precision": precision}
        assert shown.same_sources("b", {**ON_A_CPU, "resolved": resolved}) == sources


def test_an_evaluation_of_what_a_gpu_trained_must_be_shown_on_both(written) -> None:
    def evaluated(device: str, *sources: str) -> dict[str, Any]:
        one = change("t", "u", device=device)
        one["runs"][0]["evaluation"] = sources
        return one

    on_a_gpu = {**ON_A_CPU, "resolved": {"device": "cuda:0", "precision": "float32"}}
    written(
        evaluated("cuda", "a", "c"), evaluated("cpu", "a", "b"), evaluated("cpu", "b", "c"), evaluated("cpu", "c", "d")
    )
    assert shown.same_sources("c", on_a_gpu, "evaluation") == {"a", "c"}
    assert shown.same_sources("c", ON_A_CPU, "evaluation") == {"a", "b", "c", "d"}
    written(evaluated("cuda", "a", "c"))
    assert shown.same_sources("c", on_a_gpu, "evaluation") == {"c"}


def test_without_the_file_the_digest_alone_decides(written) -> None:
    assert shown.same_sources("b", ON_A_CPU) == {"b"}


def test_a_file_that_is_not_whole_is_named(written) -> None:
    path = written(change("a"))
    with pytest.raises(PlanError, match=r"same-bits\.json is not as"):
        shown.same_sources("b", ON_A_CPU)
    path.write_text("{")
    with pytest.raises(PlanError, match=r"same-bits\.json is not as"):
        shown.same_sources("b", ON_A_CPU)


@pytest.fixture
def house() -> House:
    return House.load(REPOSITORY / "config" / "paper.yaml")


def stored(folder: Path, house: House, **changes: Any) -> dict[str, Any]:
    """The manifest of a run of two-digit-average-mlp, seed 0, by the source called `earlier`."""
    cell = house.cell("two_digit", "two-digit-average-mlp")
    digests = {**run_digests(house, cell, 0, "data"), "training_source": "earlier"}
    manifest = {
        "digest": digest_of({key: digests[key] for key in DECIDE if key in digests}), "digests": digests, **ON_A_CPU,
        "schema": 1, "status": "done", "weights": "w", "dataset": {"name": "mnist", "badge": "MNIST"},
        "run": {"task": cell.task, "variant": cell.variant, "seed": 0}, "config": cell.config(),
    }  # fmt: skip
    write_json(folder / "manifest.json", manifest | changes)
    return manifest | changes


def test_a_run_by_another_source_counts(written, house: House, tmp_path: Path) -> None:
    cell = house.cell("two_digit", "two-digit-average-mlp")
    manifest, now = stored(tmp_path, house), run_digests(house, cell, 0, "data")
    assert is_done(tmp_path, now) is None
    written(change("earlier", now["training_source"], task=cell.task, config=cell.config()))
    assert is_done(tmp_path, now) == manifest
    assert is_done(tmp_path, run_digests(house, cell, 0, "other data")) is None
    assert is_done(tmp_path, run_digests(house, cell, 1, "data")) is None
    stored(tmp_path, house, resolved={"device": "cuda:0", "precision": "float32"})
    assert is_done(tmp_path, now) is None


def test_a_run_that_another_source_evaluated_is_evaluated(written, house: House, tmp_path: Path, monkeypatch) -> None:
    cell = house.cell("two_digit", "two-digit-average-mlp")
    manifest = stored(tmp_path, house)
    monkeypatch.setattr(done, "evaluation_source", lambda _: "before")
    before = done.evaluation_digest(cell, manifest)
    for condition in cell.options.conditions(cell.spec):
        write_json(tmp_path / condition / "metrics.json", {"digest": before})
        (tmp_path / condition / "predictions.npz").touch()
    assert done.is_evaluated(tmp_path, cell, manifest)
    monkeypatch.setattr(done, "evaluation_source", lambda _: "after")
    assert not done.is_evaluated(tmp_path, cell, manifest)
    assert done.stored_digest(tmp_path, cell, manifest) == done.evaluation_digest(cell, manifest) != before
    one = change("a", "b", task=cell.task, config=cell.config())
    written(one)  # shown of what trains it alone
    assert not done.is_evaluated(tmp_path, cell, manifest)
    written({**one, "runs": [{**run, "evaluation": ["before", "after"]} for run in one["runs"]]})
    assert done.is_evaluated(tmp_path, cell, manifest)
    assert done.stored_digest(tmp_path, cell, manifest) == before
    metrics = tmp_path / "56x28" / "metrics.json"
    metrics.rename(tmp_path / "aside.json")  # the other's are of that source all the same, and not outdated
    assert done.stored_digest(tmp_path, cell, manifest) == before
    assert not done.is_evaluated(tmp_path, cell, manifest)
    (tmp_path / "aside.json").rename(metrics)
    assert not done.is_evaluated(tmp_path, cell, {**manifest, "weights": "others"})
    assert not done.is_evaluated(tmp_path, cell, {**manifest, "resolved": {"device": "cuda:0"}})
    write_json(tmp_path / condition / "metrics.json", {"digest": done.evaluation_digest(cell, manifest)})
    assert not done.is_evaluated(tmp_path, cell, manifest)  # one condition by each


def test_such_a_source_is_not_what_changed_but_is_named_where_a_second_making_differs(
    written, house: House, results: Path
) -> None:
    cell = house.cell("two_digit", "two-digit-average-mlp")
    manifest = stored(house.run_folder(cell, 0), house)
    assert what_changed(house, cell, 0, "others") == "training source and data"
    now = run_digests(house, cell, 0, "data")
    written(change("earlier", now["training_source"], task=cell.task, config=cell.config()))
    assert what_changed(house, cell, 0, "others") == "data"
    first = Manifest.model_validate(manifest)
    second = Manifest.model_validate({**manifest, "digests": now})
    assert decided_otherwise(first, second.config, second.digests) == []
    (line,) = circumstances(first, second)
    assert line.startswith("training source: different, but shown to give the same bits")


def a_run(folder: Path) -> None:
    """A run's files, as small as can be."""
    told = {"status": "done", "steps": 3, "parameters": 2, "flops": 4, "final_loss": 0.5}
    write_json(folder / "manifest.json", {**told, "seconds": 1.0})
    (folder / "history.csv").write_text("step,loss,images_per_second\n3,0.5,100.0\n")
    save_file({"w": np.zeros(2, np.float32)}, folder / "weights.safetensors")
    scores = {"status": "done", "images": 2, "metrics": {"error": {"value": 50.0, "unit": "%"}}}
    write_json(folder / "test" / "metrics.json", {**scores, "seconds": 1.0, "digest": "d"})
    np.savez(folder / "test" / "predictions.npz", predicted=np.zeros(2, np.uint8))
    (folder / "test" / "overlap.csv").write_text("overlap,error\n0.5,1.0\n")


def edited(path: Path, **changes: Any) -> None:
    write_json(path, {**read_json(path), **changes})


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("weights", lambda run: save_file({"w": np.ones(2, np.float32)}, run / "weights.safetensors")),
        ("manifest.json", lambda run: edited(run / "manifest.json", flops=5)),
        ("history.csv", lambda run: (run / "history.csv").write_text("step,loss,images_per_second\n3,0.6,100.0\n")),
        ("test/metrics.json", lambda run: edited(run / "test" / "metrics.json", images=3)),
        (
            "test/predictions.npz",
            lambda run: np.savez(run / "test" / "predictions.npz", predicted=np.ones(2, np.uint8)),
        ),
        ("test/overlap.csv", lambda run: (run / "test" / "overlap.csv").write_text("overlap,error\n0.5,2.0\n")),
        (None, lambda run: edited(run / "manifest.json", seconds=2.0)),
        (None, lambda run: edited(run / "test" / "metrics.json", seconds=2.0, digest="e")),
        (None, lambda run: (run / "history.csv").write_text("step,loss,images_per_second\n3,0.5,200.0\n")),
    ],
)
def test_each_file_is_compared_but_for_times_and_digests(
    file: str | None, edit: Callable[[Path], object], tmp_path: Path
) -> None:
    tool = script("same_bits")
    a_run(tmp_path)
    before = tool.traces(tmp_path)
    edit(tmp_path)
    after = tool.traces(tmp_path)
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == ([file] if file else [])


def test_a_mistake_is_a_sentence_before_anything_is_trained(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    (other := tmp_path / "other.json").write_text("{}")
    for words, sentence in (
        (["no-such-commit"], "no-such-commit is no commit of this repository."),
        (["HEAD", "--after", "HEAD~0", "--task", "three_digit"], "has no task three_digit; it has mnist,"),
        (["HEAD", "--after", "HEAD~0", "--plan", "nothere.yaml"], "nothere.yaml"),
        (["HEAD", "--after", "HEAD~0", "--to", str(damaged)], "damaged.json cannot be read"),
        (["HEAD", "--after", "HEAD~0", "--to", str(other)], "other.json is no file that this script has written"),
        (["HEAD", "--after", "HEAD~0", "--to", str(tmp_path)], f"--to is {tmp_path}, a folder; name the file, such as"),
        (["--trees", str(tmp_path), str(tmp_path)], "is no unpacked `capsbench pack`: it has no PACKED.json"),
        (["--merge", str(damaged)], "damaged.json cannot be read"),
        (["--merge", str(tmp_path / "nowhere.json")], "nowhere.json is not there"),
    ):
        command = [sys.executable, "benchmarks/same_bits.py", *words]
        said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
        assert said.returncode == 1, words
        assert sentence in said.stderr
        assert "Traceback" not in said.stderr


def test_a_period_that_is_a_number_is_code_of_its_own() -> None:
    digests = [
        shown.what_trains("mnist", {"variant": {}, "training": {"batch": 128, "decay_period": period}})
        for period in ("scaled", 2000, 1000.0)
    ]
    assert digests[0] != digests[1] == digests[2]
