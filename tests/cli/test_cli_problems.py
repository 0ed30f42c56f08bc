"""What is wrong with results is said once each; of a plan that is only begun, how many runs are missing."""

from __future__ import annotations

from rich.console import Console

from capsbench.cli.folders import say_problems
from capsbench.report.collect import NO_MANIFEST
from capsbench.report.results import Problem


def test_missing_runs_are_counted_and_other_problems_named() -> None:
    problems = [Problem("missing", "mnist", "cnn", seed, None, "manifest.json", NO_MANIFEST) for seed in range(1000)]
    problems.insert(3, Problem("missing", "mnist", "cnn", 5, "test", "metrics.json", "not evaluated yet"))
    problems.append(Problem("foreign", "mnist", "cnn", 6, None, "manifest.json", "of another plan [sic]"))
    console = Console(record=True, width=300)
    say_problems(console, problems)
    first, second, third = console.export_text().splitlines()
    assert first == "mnist/cnn/seed-5/test: missing: not evaluated yet"
    assert second == "mnist/cnn/seed-6: foreign: of another plan [sic]"
    assert third.startswith(f"1,000 runs missing: {NO_MANIFEST} (")


def test_of_two_folders_each_line_says_whose_it_is() -> None:
    problems = [Problem("missing", "mnist", "cnn", seed, None, "manifest.json", NO_MANIFEST) for seed in range(3)]
    problems.append(Problem("foreign", "mnist", "cnn", 6, None, "manifest.json", "of another plan"))
    console = Console(record=True, width=300)
    say_problems(console, problems, "B: ")
    first, second = console.export_text().splitlines()
    assert first == "B: mnist/cnn/seed-6: foreign: of another plan"
    assert second.startswith("B: 3 runs missing: ")


def test_where_nothing_is_wrong_nothing_is_said() -> None:
    console = Console(record=True)
    say_problems(console, [])
    assert console.export_text() == ""
