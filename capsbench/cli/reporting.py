"""The command `report`, and what `run` prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from capsbench.files import write_json
from capsbench.locks import writable
from capsbench.pipeline import numbers_digest


def make_report(console: Console, folder: Path, described: dict[str, Any] | None, done: Path | None) -> None:
    """Write plan.json (if there is a plan), tables, figures and report.html of a results folder.

    Raises DataError after that if files are damaged, but in a job of Snakemake's (`done`): a job that fails takes what
    it wrote with it.
    """
    from capsbench.cli.folders import refuse_damaged, say_problems
    from capsbench.report import build_report

    with writable(folder):
        if described is not None:
            write_json(folder / "plan.json", described)
        numbers = numbers_digest(folder)
        made = build_report(folder)
    say_problems(console, made.problems)
    console.print(f"report: {made.html}")
    if done:
        files = [
            made.html,
            made.claims,
            *made.tables,
            *(path for figure in made.figures for path in (figure.png, figure.pdf)),
        ]
        write_json(done, {"numbers": numbers, "files": [path.relative_to(folder).as_posix() for path in files]})
    else:
        refuse_damaged(made.problems)


def print_results(console: Console, folder: Path) -> int:
    """Print the tables of a results folder and the place of its report; returns the number of failed runs."""
    from capsbench.report import format_tables_for_terminal

    if not (folder / "plan.json").exists():
        return 0
    tables, failed = format_tables_for_terminal(folder)
    console.print(tables, markup=False)
    console.print(f"report: {folder / 'report.html'}")
    return failed
