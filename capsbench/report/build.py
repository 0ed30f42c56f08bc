"""From a results folder to tables, figures and report.html."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capsbench.files import write_json
from capsbench.plan.claims import load_claims
from capsbench.report.claims_file import ClaimsFile
from capsbench.report.collect import collect
from capsbench.report.extras import EXTRAS, extra_tables
from capsbench.report.figures import DrawnFigure, draw_figures
from capsbench.report.formats import ENDINGS, to_terminal, write_table
from capsbench.report.html import write_html
from capsbench.report.results import Problem
from capsbench.report.tables import SPECS, csv_frame, long_table
from capsbench.report.verdicts import judge
from capsbench.report.verdicts.tables import write_tables as write_claims_tables
from capsbench.report.wide import wide_table


@dataclass(frozen=True)
class Report:
    """What was written; which figures were not drawn, and why, stands on the page."""

    html: Path
    claims: Path  # claims.json
    tables: list[Path]
    figures: list[DrawnFigure]
    problems: list[Problem]


def build_report(results: Path) -> Report:
    """Write tables/, figures/ and report.html of the folder `results` from whatever runs are finished.

    Args:
        results: a plan's folder, with plan.json (docs/results-format.md).

    Raises:
        ResultsError: plan.json is missing or broken. PlanError: config/published.yaml or the claims are. Anything wrong
            with a run is a problem in the Report instead.
    """
    found = collect(results)
    found.judged = judge(found, load_claims())
    folder, extras = results / "tables", extra_tables(found)
    tables = []
    for task in found.plan.tasks:
        table, rows = wide_table(found, task), long_table(found, task)
        tables += write_table(folder, task, csv_frame(rows), table)
    for extra in extras:
        tables += write_table(folder, extra.name, extra.frame, extra.table)
    written = {*found.plan.tasks, *(extra.name for extra in extras)}
    for name in {*SPECS, *EXTRAS} - written:  # of an earlier report, with nothing to show any more
        for ending in ENDINGS:
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
    tables += write_claims_tables(folder, found.judged, found)
    figures, not_drawn = draw_figures(found, results / "figures")
    verdicts = results / "claims.json"
    said = found.judged.as_json(found, {figure.name for figure in figures})
    write_json(verdicts, said)
    html = results / "report.html"
    write_html(html, found, figures, not_drawn, extras, ClaimsFile.model_validate(said))
    return Report(html, verdicts, tables, figures, found.problems)


def format_tables_for_terminal(results: Path, width: int = 100) -> tuple[str, int]:
    """Every table of the folder `results` as plain text with its caption, and how many runs failed.

    Raises ResultsError and PlanError as build_report does.
    """
    found = collect(results)
    tables = [to_terminal(wide_table(found, task), width) for task in found.plan.tasks]
    tables += [to_terminal(extra.table, width) for extra in extra_tables(found)]
    return "\n".join(tables), found.failed
