"""`capsbench compare` and `capsbench export`: what is done with whole results folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Sized
from pathlib import Path

from rich.console import Console

from capsbench.cli.opening import open_plan
from capsbench.errors import DataError, counted
from capsbench.files import read_record
from capsbench.locks import writable
from capsbench.pipeline import dataset_record, described_now
from capsbench.report.collect import NO_MANIFEST, collect
from capsbench.report.contract import Plan
from capsbench.report.export import export
from capsbench.report.results import DAMAGED, Problem, Results
from capsbench.report.tables import csv_frame, csv_text, long_table
from capsbench.report.two_folders import Change, compare
from capsbench.report.wide import decimals, with_interval


def collected(console: Console, where: Path) -> Results:
    """The results in a folder, or of a plan as it is now: since plan.json was written it may have been edited.

    Raises PlanError or DataError if the plan cannot be read, ResultsError if a folder cannot.
    """
    if where.suffix not in (".yaml", ".yml"):
        return collect(where)
    house, source = open_plan(console, where, data=False)
    if not house.folder.is_dir():  # nothing of it has begun
        return collect(house.folder)
    return collect(house.folder, Plan.model_validate(described_now(house, dataset_record(source))))


def compare_folders(console: Console, a: Path, b: Path, every_metric: bool) -> None:
    """Print which cells changed from `a` to `b` and what else differed.

    Raises ResultsError if a folder cannot be read, DataError after all is said if files in it are damaged.
    """
    sides = [collected(console, where) for where in (a, b)]
    for name, side in zip("AB", sides, strict=True):
        left = f", {counted(len(side.problems), 'problem')}, listed below" if side.problems else ""
        console.print(f"{name}: {side.folder} ({side.plan.name}, {counted(len(side.runs), 'run')}{left})", markup=False)
    found = compare(sides[0], sides[1], every_metric)
    for change in found.changes:
        if change.found != "identical":
            console.print(_line(change), markup=False)
    counts = Counter(change.found for change in found.changes)
    words = "; ".join(f"{count} {said}" for said, count in counts.items())
    console.print(f"Means over seeds: {words}." if words else "Neither folder has a scored run.")
    for where, first, second in found.differences:
        console.print(f"{where}: A {first} | B {second}", markup=False)
    if not found.differences:
        console.print(f"Nothing else differs: same {_same(found.other_weights)}.")
    for name, side in zip("AB", sides, strict=True):
        say_problems(console, side.problems, f"{name}: ")
    refuse_damaged([said for side in sides for said in damaged(side.problems).values()])


def _same(other_weights: int) -> str:
    """What two folders without a difference have in common, as far as their files say."""
    if not other_weights:
        return "data, budget, config, source, versions and machine"
    return (
        "data, budget, config, training source, versions and machine. Whether the same source evaluated them "
        f"cannot be told for {counted(other_weights, 'run')}, whose weights differ: an evaluation's digest covers "
        "the weights"
    )


def _line(change: Change) -> str:
    """`mnist/cnn test error, %: A 0.3 ± 0.1 (n=5), B 0.4 ± 0.1 (n=5): +0.1 (-0.1 to +0.3), p 0.2: within noise`."""
    digits = decimals(change.unit)
    words = f"{change.task}/{change.variant} {change.condition} {change.metric}{change.unit and ', ' + change.unit}:"
    sides = [
        f"{name} {with_interval(side, change.unit)} (n={side.n})" if side.n else f"{name} –"
        for name, side in zip("AB", (change.a, change.b), strict=True)
    ]
    words += f" {', '.join(sides)}:"
    if change.difference is not None:
        words += f" {change.difference:+.{digits}f}"
    if change.low is not None and change.high is not None and change.p_holm is not None:
        words += f" ({change.low:+.{digits}f} to {change.high:+.{digits}f}), p {change.p_holm:.3g}:"
    return f"{words} {change.found}{change.why and f' ({change.why})'}"


def export_folder(console: Console, where: Path, into: Path | None) -> None:
    """Write the metrics of a results folder as CSV and Parquet, and its manifests as an RO-Crate.

    Raises DataError after that if files are damaged, each named: what they hold is left out.
    """
    results = collected(console, where)
    folder = into or results.folder / "export"
    with writable(folder, "name another folder with --to"):
        for path in export(results, folder):
            console.print(f"{path} ({path.stat().st_size:,} bytes)", markup=False)
    if _is_older(results):
        words = f"The crate's plan.json or tables do not match these runs; run `capsbench report {where}` first."
        console.print(words, style="yellow", markup=False)
    say_problems(console, results.problems)
    refuse_damaged(damaged(results.problems))


def say_problems(console: Console, problems: Sequence[Problem], whose: str = "") -> None:
    """Name what is wrong with results, a line each; of a plan that is begun, how many runs there are none of yet.

    whose: what each line begins with.
    """
    for problem in problems:
        if problem.reason != NO_MANIFEST:
            console.print(f"{whose}{problem}", style="yellow", markup=False)
    if waiting := sum(problem.reason == NO_MANIFEST for problem in problems):
        words = (
            f"{whose}{counted(waiting, 'run')} missing: {NO_MANIFEST} (report.html and `capsbench export` name each)"
        )
        console.print(words, style="yellow", markup=False)


def damaged(problems: Sequence[Problem]) -> dict[str, str]:
    """What is said of each damaged file of results, the first time."""
    found: dict[str, str] = {}
    for problem in problems:
        if problem.kind in DAMAGED:
            found.setdefault(f"{problem.task} {problem.file}", str(problem))
    return found


def refuse_damaged(files: Sized) -> None:
    """Raise DataError where files of results are damaged: once all else is done and every one of them is named."""
    if files:
        raise DataError(
            f"{counted(len(files), 'file')} of these results cannot be read or cannot be believed, as said above; "
            "everything else is there."
        )


def _is_older(results: Results) -> bool:
    """Whether a table there has other numbers than the runs that lie there, or plan.json is of another plan."""
    if read_record(results.folder / "plan.json").get("digest") != results.plan.digest:
        return True
    for task in results.plan.tasks:
        stored = results.folder / "tables" / f"{task}.csv"
        rows = long_table(results, task)
        if stored.is_file() and stored.read_bytes() != csv_text(csv_frame(rows)).encode():
            return True
    return False
