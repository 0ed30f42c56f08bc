"""From a results folder to tables, figures and report.html."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capsbench.files import whole_file, write_text
from capsbench.plan import config_folder
from capsbench.plan.claims import load_claims
from capsbench.report.collect import collect
from capsbench.report.extras import EXTRAS, ExtraTable, extra_tables
from capsbench.report.figures import DrawnFigure, draw_figures
from capsbench.report.formats import to_latex, to_markdown, to_terminal
from capsbench.report.html import write_html
from capsbench.report.published import Published, read_published
from capsbench.report.results import Problem, Results
from capsbench.report.tables import long_table, write_csv
from capsbench.report.verdicts import judge, write_claims
from capsbench.report.verdicts.tables import write_tables as write_claims_tables
from capsbench.report.wide import wide_table


@dataclass(frozen=True)
class Report:
    """What was written. `not_drawn` names each figure whose data are not there, with the reason."""

    html: Path
    claims: Path  # claims.json
    tables: list[Path]
    figures: list[DrawnFigure]
    not_drawn: dict[str, str]
    problems: list[Problem]
    failed: int  # runs whose loss was not finite


def build_report(results: Path, published: Path | None = None, claims: Path | None = None) -> Report:
    """Write tables/, figures/ and report.html of the folder `results` from whatever runs are finished.

    Args:
        results: a plan's folder, with plan.json (docs/results-format.md).
        published: the published figures; config/published.yaml when not given.
        claims: what is judged; config/claims.yaml when not given.

    Raises:
        ResultsError: plan.json or the published figures are missing or broken. PlanError: the claims are. Anything
            wrong with a run is a problem in the Report instead.
    """
    found = collect(results)
    figures_of_papers = read_published(published or config_folder() / "published.yaml")
    found.judged = judge(found, load_claims(claims))
    tables = [path for task in found.plan.tasks for path in _write_tables(found, task, figures_of_papers)]
    tables += _write_extras(found, extra_tables(found))
    tables += write_claims_tables(results / "tables", found.judged, found)
    figures, not_drawn = draw_figures(found, figures_of_papers, results / "figures")
    verdicts = results / "claims.json"
    write_claims(verdicts, found.judged, found, {figure.name for figure in figures})
    html = results / "report.html"
    write_html(html, found, figures_of_papers, figures, not_drawn)
    return Report(html, verdicts, tables, figures, not_drawn, found.problems, found.failed)


def _write_tables(results: Results, task: str, published: Published) -> list[Path]:
    """The table of a task as CSV, Markdown and LaTeX."""
    stem = results.folder / "tables" / task
    table = wide_table(results, task, published)
    paths = [stem.with_name(f"{task}.{ending}") for ending in ("csv", "md", "tex")]
    write_csv(paths[0], long_table(results, task, published))
    write_text(paths[1], to_markdown(table))
    write_text(paths[2], to_latex(table))
    return paths


def _write_extras(results: Results, extras: list[ExtraTable]) -> list[Path]:
    """The tables that are of no task; one of an earlier report that has nothing to show any more is removed."""
    folder, paths = results.folder / "tables", []
    for extra in extras:
        csv, markdown, latex = (folder / f"{extra.name}.{ending}" for ending in ("csv", "md", "tex"))
        with whole_file(csv) as temporary:
            extra.frame.to_csv(temporary, index=False, float_format="%.10g", lineterminator="\n")
        write_text(markdown, to_markdown(extra.table))
        write_text(latex, to_latex(extra.table))
        paths += [csv, markdown, latex]
    for name in EXTRAS.keys() - {extra.name for extra in extras}:
        for ending in ("csv", "md", "tex"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
    return paths


def format_tables_for_terminal(results: Path, published: Path | None = None, width: int = 100) -> str:
    """Every table of the folder `results` as plain text with its caption. Raises ResultsError as build_report does."""
    found = collect(results)
    figures_of_papers = read_published(published or config_folder() / "published.yaml")
    tables = [to_terminal(wide_table(found, task, figures_of_papers), width) for task in found.plan.tasks]
    tables += [to_terminal(extra.table, width) for extra in extra_tables(found)]
    return "\n".join(tables)


def failed_runs(results: Path) -> int:
    """How many runs of the folder `results` failed (a loss not finite). Raises ResultsError as build_report does."""
    return collect(results).failed
