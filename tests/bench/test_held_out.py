"""benchmarks/held_out.py: rows trained and judged on training digits alone, and files of their errors compared."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scripts import BENCHMARKS, script

from capsbench.files import write_json
from capsbench.plan import House
from capsbench.plan.schema import Training
from capsbench.training.schedule import rate_at

PLAN = """
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
variants:
  small: {base: capsnet-r3-recon, title: Small, reconstruction: none}
  smaller: {base: small, title: Smaller, iterations: 1}
  another: {base: cnn, title: Another}
training: {epochs: 100, batch: 256, rate: 1.0e-3, decay: 0.96, decay_period: scaled, precision: float32}
tasks: {mnist: {variants: [smaller, another]}}
"""

EM_ROWS = {cell.variant: cell.spec for cell in House.load(BENCHMARKS / "em-vector.yaml").cells}
ROW = EM_ROWS["capsnet-em-vector"]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_data: dict[str, str]) -> ModuleType:
    tool = script("held_out")
    monkeypatch.setattr(tool, "WORK", tmp_path / "work")
    (tmp_path / "tiny.yaml").write_text(PLAN)
    return tool


def ask(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["held_out.py", *map(str, words)])
    return tool.main()


class Trains(Exception):
    """Instead of a training."""


def trains(*_: object) -> None:
    raise Trains


def record(path: Path, errors: list[float | None]) -> Path:
    runs = {str(seed): {"error": error} for seed, error in enumerate(errors)}
    path.write_text(json.dumps({"runs": runs}))
    return path


def test_seeds_are_judged_on_held_out_digits_at_the_paper_s_rate_and_only_once(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "row.json"
    row = ("capsnet-r3-recon", "--epochs", 1, "--plan", tmp_path / "tiny.yaml", "--threads", 1, "--device", "cpu")
    assert ask(tool, monkeypatch, *row, "--seeds", 1, "--to", to) == 0
    first: dict[str, Any] = json.loads(to.read_text())
    training = first["config"]["training"]
    assert (training["rate"], training["decay"], training["decay_period"]) == (1e-3, 0.96, "scaled")
    assert (training["batch"], training["floor"]) == (256, 1e-6)
    assert first["config"]["held_out"] == first["held_out"] > 0
    assert 0 < first["runs"]["1"]["error"] < 100
    assert not list(tmp_path.rglob("metrics.json"))  # nothing has looked at test digits
    assert ask(tool, monkeypatch, *row, "--seeds", 1, 0, "--to", to) == 0
    both = json.loads(to.read_text())
    assert set(both["runs"]) == {"0", "1"}
    assert both["runs"]["1"] == first["runs"]["1"]  # it was not made again
    assert both["runs"]["0"]["digest"] != both["runs"]["1"]["digest"]
    with pytest.raises(SystemExit, match=r"row\.json is of another epochs: 1; name another file with --to"):
        ask(tool, monkeypatch, *row[:2], 2, *row[3:], "--to", to)

    again = ("--seeds", 1, "--to", tmp_path / "again.json")
    monkeypatch.setattr(tool, "judge", trains)
    assert ask(tool, monkeypatch, *row, *again) == 0  # from the cache, with what is true of the training that made it
    assert json.loads((tmp_path / "again.json").read_text())["runs"] == first["runs"]
    (manifest,) = (tmp_path / "work").glob("cpu-1-threads/*/tuning/mnist/*/*/seed-1/manifest.json")
    told = json.loads(manifest.read_text())
    changes = {"git": {"commit": "c" * 40, "dirty": True}, "machine": {"gpu": "another"}, "versions": {"torch": "2"}}
    write_json(manifest, told | changes | {"seconds": 7.25, "resumed": 3, "finished": "2026-01-02T03:04:05Z"})
    (tmp_path / "again.json").unlink()
    assert ask(tool, monkeypatch, *row, *again) == 0
    made = {"commit": "c" * 40, "dirty": True, "seconds": 7.25, "resumed": 3, "made": "2026-01-02", "threads": 1}
    made |= {"machine": {"gpu": "another"}, "versions": {"torch": "2"}}
    assert json.loads((tmp_path / "again.json").read_text())["runs"]["1"] == first["runs"]["1"] | made

    (tmp_path / "again.json").unlink()
    with pytest.raises(Trains):  # other threads give other bits
        ask(tool, monkeypatch, *row[:-3], 2, *row[-2:], *again)
    write_json(manifest, told | {"digest": "0" * 64})
    with pytest.raises(Trains):  # nobody knows which training made the figure
        ask(tool, monkeypatch, *row, *again)


def test_a_row_of_the_plan_s_own_brings_what_it_is_made_from(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ("smaller", "--epochs", 1, "--plan", tmp_path / "tiny.yaml", "--threads", 1, "--device", "cpu")
    assert ask(tool, monkeypatch, *row, "--to", tmp_path / "row.json") == 0
    spec = json.loads((tmp_path / "row.json").read_text())["config"]["variant"]
    assert (spec["iterations"], spec["reconstruction"]) == (1, "none")


CUSTOM = """
from capsbench.routing import Routed
import beside

def mine(votes, bias=None):
    return beside.routed(votes)

def wrong(votes, bias=None):
    return votes.nothing
"""
BESIDE = "from capsbench.routing import route\n\ndef routed(votes):\n    return route('uniform', votes)\n"


def test_a_routing_beside_the_plan_is_tried_before_it_trains(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = PLAN.replace("[smaller, another]", "[smaller, another, 'my_own:mine', 'my_own:wrong']")
    (tmp_path / "tiny.yaml").write_text(plan)
    (tmp_path / "my_own.py").write_text(CUSTOM)
    (tmp_path / "beside.py").write_text(BESIDE)
    row = ("--epochs", 1, "--plan", tmp_path / "tiny.yaml", "--threads", 1, "--device", "cpu", "--to")
    monkeypatch.setattr(tool, "judge", trains)
    with pytest.raises(Trains):
        ask(tool, monkeypatch, "my_own:mine", *row, tmp_path / "row.json")
    assert "routing 'my_own:mine' is tried on a few images" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"my_own:wrong(?s:.*)has no attribute 'nothing'"):
        ask(tool, monkeypatch, "my_own:wrong", *row, tmp_path / "wrong.json")


def test_files_are_compared_with_the_first_one(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = [0.6, 0.5, 0.7], [0.4, 0.45, 0.5]
    paths = [record(tmp_path / f"{name}.json", errors) for name, errors in (("a", a), ("b", b), ("one", [0.3]))]
    assert ask(tool, monkeypatch, "--compare", *paths) == 0
    _, first, second, one = capsys.readouterr().out.splitlines()
    low, high = stats.t.interval(0.95, 2, loc=0.6, scale=stats.sem(a))
    assert first.split() == ["a", "3", "0.600", f"{low:.3f}", "to", f"{high:.3f}"]
    low, high = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert second.split()[6:] == ["-0.150", f"{low:+.3f}", "to", f"{high:+.3f}"]
    assert one.split() == ["one", "1", "0.300", "-", "-0.300", "-"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--compare", "{}/none.json"], r"none\.json is no file that this script has written"),
        (["--compare", "{}/failed.json"], r"failed\.json has no seed, or one whose loss was not finite"),
        (["capsnet-r4", "--epochs", "1", "--to", "{}/x.json"], "no variant 'capsnet-r4'; did you mean 'capsnet-r3'"),
        (["cnn", "--epochs", "1", "--to", "{}/x.json", "--plan", "{}/none.yaml"], r"none\.yaml"),
        (["cnn", "--epochs", "1", "--to", "{}"], r"--to is .*, a folder; name the file, such as .*/held-out\.json"),
        (
            ["cnn", "--epochs", "1", "--to", "{}/tiny.yaml"],
            r"tiny\.yaml, a file of another kind that would be replaced",
        ),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    record(tmp_path / "failed.json", [0.5, None])
    with pytest.raises(SystemExit, match=reason) as ended:
        ask(tool, monkeypatch, "--plan", tmp_path / "tiny.yaml", *(word.format(tmp_path) for word in words))
    assert isinstance(ended.value.code, str)  # which Python prints, and ends with 1


def test_the_page_has_the_errors_that_are_stored() -> None:
    """docs/mnist.md's table, each file's command, and in how many minutes it ran."""
    stored = {path.stem: json.loads(path.read_text()) for path in (BENCHMARKS / "results" / "held-out").glob("*.json")}
    page = (BENCHMARKS.parent / "docs" / "mnist.md").read_text()
    _, part = page.split("## A short trial of the authors' choices\n")
    part = " ".join(part.split("\n## ")[0].split())
    told = {
        (int(n), int(seed)): (a, b) for n, seed, a, b in re.findall(r"\| (\d+) \| (\d+) \| (\S+) \| (\S+) \|", part)
    }
    names = [f"{variant}-{{}}-epochs" for variant in ("capsnet-r3-recon", "capsnet-official")]
    lengths = sorted({epochs for epochs, _ in told})
    assert set(stored) == {name.format(epochs) for name in names for epochs in lengths}
    found = {}
    for epochs in lengths:
        both = [stored[name.format(epochs)] for name in names]
        assert [(row["variant"], row["epochs"]) for row in both] == [
            (name.removesuffix("-{}-epochs"), epochs) for name in names
        ]
        assert all(row["precision"] == "bf16" and row["held_out"] == 10_000 for row in both)
        assert both[0]["runs"].keys() == both[1]["runs"].keys()
        for seed in both[0]["runs"]:
            found[epochs, int(seed)] = tuple(f"{row['runs'][seed]['error']:.2f}" for row in both)
    assert told == found
    paper, authors = ([float(found[10, seed][side]) for seed in (0, 1)] for side in (0, 1))
    low, high = stats.ttest_ind(authors, paper, equal_var=False).confidence_interval()
    less = np.mean(authors) - np.mean(paper)
    twice = [float(words) for words in found[20, 0]]
    interval = f"({low:.2f} to {high:.2f}, Welch's t, two seeds each)"
    assert f"{less:.2f} points more in ten epochs {interval}, {twice[1] - twice[0]:.2f}" in part
    assert max(twice[0] / paper[0], twice[1] / authors[0]) <= 0.75
    runs = [run for row in stored.values() for run in row["runs"].values()]
    assert {run["commit"][:7] for run in runs} == set(re.findall(r"at (\w{7}) on one thread", part))
    assert {(run["threads"], run["dirty"]) for run in runs} == {(1, False)}
    minutes = re.search(r"in (\d+) to (\d+) minutes for a seed of ten epochs and (\d+) to (\d+) of twenty", part)
    assert minutes is not None
    for epochs, low, high in ((10, *minutes.groups()[:2]), (20, *minutes.groups()[2:])):
        took = [
            run["seconds"] / 60 for row in stored.values() if row["epochs"] == epochs for run in row["runs"].values()
        ]
        assert [float(low), float(high)] == pytest.approx([min(took), max(took)], abs=0.501)


def test_the_page_has_what_em_routing_s_first_beta_a_gave() -> None:
    page = " ".join((BENCHMARKS.parent / "docs" / "reproduction.md").read_text().split())
    stored = [json.loads(path.read_text()) for path in (BENCHMARKS / "results" / "em-vector").glob("*.json")]
    told = re.search(r"are wrong from 0, ([\d.]+) from -300, ([\d.]+) from -1000 and ([\d.]+) from -3000", page)
    of_zero = re.search(r"391 steps, seed 0, float32\) ([\d.]+) % of the other 10,000", page)
    minutes = re.search(r"at a7a5d38 in (\d+) to (\d+) minutes each on one thread", page)
    assert told is not None
    assert of_zero is not None
    assert minutes is not None
    runs = {row["config"]["variant"]["routing_options"]["beta_a"]: row["runs"]["0"] for row in stored}
    errors = {beta: run["error"] for beta, run in runs.items()}
    assert errors == dict(zip((0, -300, -1000, -3000), map(float, (of_zero[1], *told.groups())), strict=True))
    assert min(errors, key=errors.__getitem__) == -1000 == ROW.routing_options["beta_a"]
    for row in stored:
        assert (row["epochs"], row["precision"], row["held_out"], list(row["runs"])) == (1, "float32", 10_000, ["0"])
    for run in runs.values():
        assert (run["steps"], run["threads"], run["commit"][:7], run["dirty"]) == (391, 1, "a7a5d38", False)
    took = [run["seconds"] / 60 for run in runs.values()]
    assert [float(word) for word in minutes.groups()] == pytest.approx([min(took), max(took)], abs=0.501)


def test_the_plan_of_em_routing_s_trial_changes_nothing_else() -> None:
    others = {name: spec for name, spec in EM_ROWS.items() if spec is not ROW}
    assert len(others) == 3
    for spec in others.values():
        alike = {key: getattr(ROW, key) for key in ("routing_options", "title", "source")}
        assert spec.model_copy(update=alike) == ROW


def test_the_rates_of_a_training_add_up_to_what_the_page_says() -> None:
    page = " ".join((BENCHMARKS.parent / "docs" / "mnist.md").read_text().split())
    words = (
        r"our 100 epochs have in sum the rates of (\d+) epochs at the first one, and the authors' 640 those of (\d+);"
    )
    told = re.findall(words, page)
    assert told == [("16", "104")]
    training = Training(epochs=100, batch=128)
    share = sum(rate_at(step, 46_875, training) for step in range(46_875)) / 46_875 / training.rate
    assert [100 * share, 640 * share] == pytest.approx([16, 104], abs=0.5)
