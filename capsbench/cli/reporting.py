"""The command `report`, and what `run` prints at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from capsbench.files import read_record, write_json
from capsbench.locks import DRAWING, sole, writable
from capsbench.pipeline import numbers_digest, shown_digests
from capsbench.pipeline.state import is_report_kept


def make_report(console: Console, folder: Path, describe: Callable[[], None] | None, done: Path | None) -> None:
    """Make tables, figures and report.html of a results folder, one process at a time.

    `describe` writes plan.json, where there is a plan. Raises DataError after that if files are damaged, but not in a
    job of Snakemake's: one that fails takes what it wrote with it. `done` has what is said of them then, for whoever
    started Snakemake.
    """
    from capsbench.cli.folders import damaged, refuse_damaged, say_problems
    from capsbench.report import build_report
    from capsbench.report.contract import read_plan

    if describe is None:
        read_plan(folder)  # what is no folder of results is refused before a lock is put in it
    with sole(folder, console.print, DRAWING), writable(folder):
        if describe is not None:
            describe()
        numbers = numbers_digest(folder)
        made = build_report(folder)
        shown = shown_digests(folder)
    say_problems(console, made.problems)
    console.print(f"report: {made.html}")
    if done:
        files = [
            made.html,
            made.claims,
            *made.tables,
            *(path for figure in made.figures for path in (figure.png, figure.pdf)),
        ]
        names = [path.relative_to(folder).as_posix() for path in files]
        unfit = [*damaged(made.problems).values()]
        write_json(done, {"numbers": numbers, "shown": shown, "files": names, "damaged": unfit})
    else:
        refuse_damaged(damaged(made.problems))


def print_results(console: Console, folder: Path) -> int:
    """Print the tables of a results folder and the place of its report; returns the number of failed runs.

    Where Snakemake was told to make less than the report (`--until`, `--summary`), it says so instead. Raises DataError
    after the tables if the report was drawn without files that are damaged.
    """
    from capsbench.cli.folders import refuse_damaged
    from capsbench.report import format_tables_for_terminal

    if not is_report_kept(folder):
        console.print(
            "Snakemake ended without making the report, since its options ask for less; so nothing is shown here."
        )
        return 0
    tables, failed = format_tables_for_terminal(folder)
    console.print(tables, markup=False)
    console.print(f"report: {folder / 'report.html'}")
    unfit = read_record(folder / "cells" / "reported.json").get("damaged", [])
    for said in unfit:
        console.print(said, style="yellow", markup=False)
    refuse_damaged(unfit)
    return failed
