"""benchmarks/recount.py: every published figure counted again from the answers, by nothing of the package."""

from __future__ import annotations

import ast
import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from published import PUBLISHED
from scripts import BENCHMARKS, script
from tools import mnist_folder

RESULTS = BENCHMARKS.parent / "results"
SMALL = "two-digit-squeezed"  # six runs
FIRST = "runs/two_digit/two-digit-kmeans/seed-0"


@pytest.fixture
def recount(monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Counts a folder again; the exit code and what was said."""
    tool = script("recount")

    def ask(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["recount.py", *map(str, arguments)])
        return tool.main(), capsys.readouterr().out

    return ask


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a published folder, to be changed."""
    return lambda plan: Path(shutil.copytree(RESULTS / plan, tmp_path / plan))


@pytest.mark.parametrize("plan", [*PUBLISHED, "two-digit-decayed", "two-digit-first-weights"])
def test_what_is_published_is_what_the_answers_say(recount, plan: str) -> None:
    code, said = recount(RESULTS / plan)
    assert code == 0, said
    assert said.endswith("Everything that was counted is as published.\n")
    counted = ("mnist", "multimnist", "two_digit")
    tables = [path for path in (RESULTS / plan / "tables").glob("*.csv") if path.stem in counted]
    claims = json.loads((RESULTS / plan / "claims.json").read_text())["claims"]
    judged = [claim["id"] for claim in claims if claim["effect"] is not None and claim["n"] > 1]
    of_numbers = [name for name in judged if "-single-" in name or name.startswith("parameters-")]  # no answers stored
    assert said.count(" as published\n") == len(judged) - len(of_numbers)
    (named,) = re.findall(r"^Verdicts not counted here: (.*)\.$", said, re.MULTILINE)
    has_verdict = [claim["id"] for claim in claims if claim["verdict"] != "not run"]
    assert (set() if named == "none" else set(named.split(", "))) == set(has_verdict) - (set(judged) - set(of_numbers))
    for metric in ("error", "top2_accuracy", "both_above_half_accuracy", "final_top2_accuracy"):
        rows = re.findall(
            rf",(?:test|28x56|56x28),{metric},%,([1-9]\d*),", "".join(path.read_text() for path in tables)
        )
        assert len(re.findall(rf"(?:test|28x56|56x28) {metric} +\d+ runs", said)) == len(rows)


@pytest.mark.parametrize(
    ("p_holm", "low", "high", "verdict"),
    [
        (0.01, -0.02, 0.03, "reproduced"),  # both one-sided tests: within the margin of 0.05
        (0.3, 0.02, 0.08, "undecided"),
        (0.05, -0.02, 0.03, "undecided"),
        (1.0, 0.06, 0.08, "not reproduced"),
        (1.0, -0.08, -0.06, "not reproduced"),
    ],
)
def test_that_there_is_no_difference_can_be_refuted(p_holm: float, low: float, high: float, verdict: str) -> None:
    tool = script("recount")
    claim = {"kind": "no_difference", "p_holm": p_holm, "delta": 0.05, "ci_low": low, "ci_high": high}
    assert tool.verdict_of(claim, tool.Interval(0.07, low, high)) == verdict


def test_a_direction_is_decided_by_its_corrected_p_alone() -> None:
    tool = script("recount")
    claim = {"kind": "direction", "direction": "greater", "ci_low": 1.0, "ci_high": 3.0, "delta": None}
    verdicts = [tool.verdict_of({**claim, "p_holm": p}, tool.Interval(2.0, 1.0, 3.0)) for p in (0.04, 0.05)]
    assert verdicts == ["reproduced", "undecided"]


def test_the_labels_beside_the_answers_are_those_of_the_data_set(recount, copied, tmp_path: Path) -> None:
    data = mnist_folder()
    assert recount(RESULTS / "precision", "--labels", data)[0] == 0
    assert recount(RESULTS / SMALL, "--labels", data)[0] == 0

    labels = np.load(RESULTS / "precision/runs/mnist/capsnet-r3-recon/seed-0/test/predictions.npz")["labels"]
    labels[7] = (labels[7] + 1) % 10
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(bytes(8) + labels.tobytes())
    code, said = recount(RESULTS / "precision", "--labels", tmp_path)
    assert code == 1
    assert said.count("test: 1 labels are not the data set's\n") == 7

    folder = copied(SMALL)
    path = folder / FIRST / "56x28" / "predictions.npz"
    alter(path, "bases", lambda bases: bases[0].fill(bases[0, 0]))  # a pair of a digit with itself
    assert "56x28: 1 labels are not" in recount(folder, "--labels", data)[1]


def labels_in(folder: Path, labels: bytes, name: str = "t10k-labels-idx1-ubyte") -> Path:
    """A file as MNIST's labels lie in one."""
    folder.mkdir(parents=True, exist_ok=True)
    content = bytes(8) + labels
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def test_labels_are_mnist_s_where_torchvision_put_other_data_sets_beside_it(tmp_path: Path) -> None:
    tool = script("recount")
    mnist, fashion = (bytes([digit]) * 10_000 for digit in (1, 2))
    labels_in(tmp_path / "FashionMNIST" / "raw", fashion)
    labels_in(tmp_path / "KMNIST" / "raw", fashion, "t10k-labels-idx1-ubyte.gz")
    first = labels_in(tmp_path / "MNIST" / "raw", mnist)
    labels_in(tmp_path / "MNIST" / "raw", mnist, "t10k-labels-idx1-ubyte.gz")
    (tmp_path / "MNIST" / "raw" / "t10k-labels.idx1-ubyte").mkdir()  # a folder of such a name, as some archives have
    assert tool.mnist_labels(tmp_path).tobytes() == mnist
    assert tool.mnist_labels(tmp_path / "FashionMNIST").tobytes() == fashion  # whoever names it means it
    first.write_bytes(bytes(8) + mnist[1:])  # cut off: the packed one is whole
    assert tool.mnist_labels(tmp_path).tobytes() == mnist


def test_labels_that_may_not_be_mnist_s_are_refused(recount, tmp_path: Path) -> None:
    a, b = (labels_in(tmp_path / name, bytes([digit]) * 10_000) for name, digit in (("a", 1), ("b", 2)))
    with pytest.raises(SystemExit, match=f"{a} and {b} have different labels; name the folder of MNIST's alone"):
        recount(RESULTS / SMALL, "--labels", tmp_path)
    for content in (b"", bytes(8 + 60_000), bytes(8 + 9_999)):
        a.write_bytes(content)
        with pytest.raises(SystemExit, match=f"{a} does not have MNIST's 10,000 labels; name another"):
            recount(RESULTS / SMALL, "--labels", tmp_path / "a")
    a.unlink()
    packed = labels_in(tmp_path / "a", bytes(10_000), "t10k-labels-idx1-ubyte.gz")
    content = bytearray(packed.read_bytes())
    content[10:14] = b"\xff" * 4  # where the packed bytes begin
    packed.write_bytes(content)
    with pytest.raises(SystemExit, match="cannot be counted: error: "):
        recount(RESULTS / SMALL, "--labels", tmp_path / "a")


def test_an_altered_answer_is_found_in_the_metrics_the_table_and_what_follows(recount, copied) -> None:
    folder = copied(SMALL)
    alter(
        folder / FIRST / "28x56" / "predictions.npz", "top2_accuracy", lambda right: np.bitwise_xor(right, 1, out=right)
    )
    code, said = recount(folder)
    assert code == 1
    assert re.search(
        rf"DIFFERS: .*{FIRST}/28x56/metrics.json: final_top2_accuracy is \S+, and \S+ by the answers\n", said
    )
    for name in ("mean", "sd", "ci_low", "ci_high"):
        cell = "two_digit/two-digit-kmeans 28x56 final_top2_accuracy"
        assert f"tables/two_digit.csv: {name} of {cell} is " in said
    assert "56x28" not in "".join(line for line in said.splitlines() if line.startswith("DIFFERS"))


def test_an_altered_epoch_is_found(recount, copied) -> None:
    folder = copied(SMALL)
    lines = (folder / FIRST / "curve.csv").read_text().splitlines()
    (folder / FIRST / "curve.csv").write_text("\n".join(lines[:-1]) + "\n")
    code, said = recount(folder)
    assert code == 1
    assert "metrics.json: top2_accuracy is " in said
    assert "metrics.json: final_top2_accuracy is " not in said


@pytest.mark.parametrize(
    ("claim", "key", "value", "said"),
    [
        ("two-digit-capsules-over-90", "verdict", "undecided", "the verdict is undecided, and reproduced here"),
        ("two-digit-capsules-over-90", "p", 0.049, "p is 0.049, and "),
        ("two-digit-dynamic-harms", "direction", "greater", "the verdict is reproduced, and not reproduced here"),
        ("two-digit-dynamic-harms", "ci_high", -9.9, "its interval is narrower than Welch's over seeds, "),
        ("two-digit-dynamic-harms", "effect", -9.0, "effect is -9.0, and "),
        ("two-digit-dynamic-harms", "welch", {"effect": -9.0}, "effect is -9.0, and "),
        ("two-digit-dynamic-harms", "p", 0.001, "p_holm is "),
        ("two-digit-dynamic-harms", "p_holm", 0.051, "the verdict is reproduced, and undecided here"),
    ],
)
def test_an_altered_claim_is_found(recount, copied, claim: str, key: str, value: object, said: str) -> None:
    folder = copied("two-digit-again")
    judged = json.loads((folder / "claims.json").read_text())
    next(entry for entry in judged["claims"] if entry["id"] == claim)[key] = value
    (folder / "claims.json").write_text(json.dumps(judged))
    code, printed = recount(folder)
    assert code == 1
    assert f"DIFFERS: claims.json: {claim}: {said}" in printed


def test_nothing_is_decided_before_every_planned_seed(recount, copied) -> None:
    folder = copied("two-digit-again")
    shutil.rmtree(folder / "runs/two_digit/two-digit-kmeans/seed-5")
    said = recount(folder)[1]
    assert "two-digit-capsules-over-90: the verdict is reproduced, and undecided here" in said
    assert "tables/two_digit.csv: n of two_digit/two-digit-kmeans 56x28 top2_accuracy is 5, and 4.0 by" in said


def test_a_run_of_another_config_is_not_counted(recount, copied) -> None:
    folder = copied(SMALL)
    manifest = json.loads((folder / FIRST / "manifest.json").read_text())
    manifest["digests"]["config"] = "0" * 64
    (folder / FIRST / "manifest.json").write_text(json.dumps(manifest))
    assert "5 of 6 runs are finished" in recount(folder)[1]


def test_what_cannot_be_counted_is_a_sentence(recount, copied, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"nothing cannot be counted: FileNotFoundError: "):
        recount(tmp_path / "nothing")
    folder = copied(SMALL)
    (folder / FIRST / "28x56" / "predictions.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(SystemExit, match="cannot be counted: "):
        recount(folder)
    shutil.rmtree(folder / "runs")
    with pytest.raises(SystemExit, match="it has no finished run with stored answers"):
        recount(folder)
    with pytest.raises(SystemExit, match="no t10k-labels-idx1-ubyte in "):
        recount(RESULTS / SMALL, "--labels", tmp_path / "no labels")


@pytest.mark.parametrize(
    ("task", "answers", "counted"),
    [
        ("affnist", {"predicted": [1, 2, 3, 4], "labels": [1, 2, 3, 5]}, {"accuracy": 75.0}),
        ("multimnist", {"digits": [[2, 1, 0], [2, 1, 2]]}, {"error": 50.0, "half_credit_error": 37.5}),
    ],
)
def test_tasks_that_have_no_run_yet_are_counted_too(tmp_path: Path, task: str, answers: dict, counted: dict) -> None:
    tool: ModuleType = script("recount")
    (tmp_path / "test").mkdir()
    np.savez(tmp_path / "test" / "predictions.npz", **{name: np.array(each) for name, each in answers.items()})
    assert tool.of_answers(task, tmp_path, "test") == counted
    assert tool.of_answers(task, tmp_path, "matched") == {}


def test_a_task_of_one_s_own_is_named_and_the_others_are_counted(recount, copied) -> None:
    folder = copied(SMALL)
    plan = json.loads((folder / "plan.json").read_text())
    plan["runs"].append({**plan["runs"][0], "task": "mine"})
    (folder / "plan.json").write_text(json.dumps(plan))
    own = folder / "runs" / "mine" / "two-digit-kmeans" / "seed-0"
    shutil.copytree(folder / FIRST, own)
    (own / "curve.csv").unlink()
    code, said = recount(folder)
    assert (code, "7 of 7 runs are finished" in said) == (0, True)
    (line,) = (line for line in said.splitlines() if line.startswith("Metrics not counted here: "))
    assert "mine 28x56 top2_accuracy" in line
    assert "two_digit 28x56 top2_accuracy" not in line


def test_nothing_of_the_package_is_used() -> None:
    tree = ast.parse((BENCHMARKS / "recount.py").read_text())
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in named} - sys.stdlib_module_names == {"numpy", "scipy"}


def alter(path: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    """Change one array of a file."""
    with np.load(path) as stored:
        arrays = {key: stored[key].copy() for key in stored.files}
    change(arrays[name])
    np.savez(path, **arrays)
