"""benchmarks/held_out.py: rows trained and judged on training digits alone, and files of their errors compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scipy import stats
from scripts import script

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


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_data: dict[str, str]) -> ModuleType:
    tool = script("held_out")
    monkeypatch.setattr(tool, "WORK", tmp_path / "work")
    (tmp_path / "tiny.yaml").write_text(PLAN)
    return tool


def ask(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["held_out.py", *map(str, words)])
    return tool.main()


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


def test_a_row_of_the_plan_s_own_brings_what_it_is_made_from(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ("smaller", "--epochs", 1, "--plan", tmp_path / "tiny.yaml", "--threads", 1, "--device", "cpu")
    assert ask(tool, monkeypatch, *row, "--to", tmp_path / "row.json") == 0
    spec = json.loads((tmp_path / "row.json").read_text())["config"]["variant"]
    assert (spec["iterations"], spec["reconstruction"]) == (1, "none")


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
        (["capsnet-r4", "--epochs", "1", "--to", "{}/x.json"], "capsnet-r4"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    record(tmp_path / "failed.json", [0.5, None])
    with pytest.raises(SystemExit, match=reason) as ended:
        ask(tool, monkeypatch, *(word.format(tmp_path) for word in words), "--plan", tmp_path / "tiny.yaml")
    assert ended.value.code != 0
