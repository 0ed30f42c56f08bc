"""What scripts of benchmarks/ do alike: numbers that make no sense are refused, the commit is read before the work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import script


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("held_out cnn --threads 0", "--threads: 0 is not a whole number of at least 1."),
        ("held_out cnn --epochs 0", "--epochs: 0 is not a whole number of at least 1."),
        ("same_curve run --threads 0", "--threads: 0 is not a whole number of at least 1."),
        ("same_curve run --rows 0", "--rows: 0 is not a whole number of at least 1."),
        ("two_from_one run --threads 0", "--threads: 0 is not a whole number of at least 1."),
        ("same_bits HEAD --threads -1", "--threads: -1 is not a whole number of at least 1."),
        ("same_bits HEAD --steps 0", "--steps: 0 is not a whole number of at least 1."),
        ("same_bits HEAD --steps few", "--steps: few is not a whole number of at least 1."),
        ("large_plan --runs 250 5", "--runs: 5 is not a whole number of at least 10."),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(words: str, sentence: str, monkeypatch, capsys) -> None:
    name, *given = words.split()
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *given])
    with pytest.raises(SystemExit) as ended:
        script(name).main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: argument {sentence}\n")


class Works(Exception):
    """Instead of the work."""


@pytest.mark.parametrize(
    ("name", "work", "words"),
    [
        ("held_out", "open_house", ["cnn", "--epochs", "1", "--to", "{}/x.json"]),
        ("plan_shares", "run", ["plan.yaml"]),
        ("two_from_one", "looked_at", ["run"]),
    ],
)
def test_the_commit_is_read_before_the_work(
    name: str, work: str, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be another one by the end, and what ran is the first."""
    tool, asked = script(name), []  # type: ignore[var-annotated]

    def works(*_: object) -> None:
        asked.append("work")
        raise Works

    monkeypatch.setattr(tool, "git_state", lambda: asked.append("commit"))
    monkeypatch.setattr(tool, work, works)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *(word.format(tmp_path) for word in words)])
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path))
    with pytest.raises(Works):
        tool.main()
    assert asked == ["commit", "work"]
