"""results/<plan>/report.html: one file that opens offline, with every table, figure, problem and origin."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capsbench.files import write_text
from capsbench.report.captions import budget_words, reductions_of
from capsbench.report.claims_file import VERDICTS, ClaimsFile
from capsbench.report.experiments import experiments
from capsbench.report.figures import DrawnFigure
from capsbench.report.origins import environments, origins
from capsbench.report.protocol import ProtocolRow, protocol_rows
from capsbench.report.questions import answers, untested
from capsbench.report.results import IN_THE_MEANS, KINDS, Problem, Results
from capsbench.report.strips import Strip, strips
from capsbench.report.tables import csv_frame, long_table, spec_for
from capsbench.report.wide import ExtraTable, WideTable, wide_table

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Section:
    """A part of the page: anchor, heading and the template <anchor>.html.j2. A new part is a line in SECTIONS."""

    anchor: str
    heading: str


SECTIONS = (
    Section("claims", "Claims"),
    Section("results", "Results"),
    Section("more", "Other tables"),
    Section("figures", "Figures"),
    Section("protocol", "Where this differs from the paper"),
    Section("problems", "Missing or left out"),
    Section("origins", "Where each number comes from"),
    Section("environment", "Environment"),
    Section("again", "Run it again"),
)


@dataclass(frozen=True)
class TaskView:
    """One task on the page."""

    task: str
    title: str
    table: WideTable
    caption: str
    reductions: list[str]
    strips: list[Strip | None]  # one a row of the table
    metrics: list[dict[Hashable, Any]]  # the long table
    protocol: list[ProtocolRow]
    first_value: int  # the column before which the strips stand


def write_html(
    path: Path,
    results: Results,
    figures: list[DrawnFigure],
    not_drawn: dict[str, str],
    extras: list[ExtraTable],
    claims: ClaimsFile,
) -> None:
    """Write the report. Everything that comes from files is escaped; nothing is loaded from anywhere."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"link": link, "number": number}
    cells = origins(results)
    anchors = {(cell.task, cell.variant): cell.anchor for cell in cells}
    page = environment.get_template("report.html.j2").render(
        plan=results.plan,
        sections=SECTIONS,
        budget=budget_words(results),
        counts=_counts(results),
        judged=claims,
        verdicts=VERDICTS,
        answers=answers(claims),
        untested=untested(claims),
        experiments=experiments(results, claims),
        drawn={figure.name for figure in figures},
        seeds=sorted({run.seed for run in results.plan.runs}),
        tasks=[_task_view(results, task) for task in results.plan.tasks],
        extras=extras,
        figures=[(figure, _embedded(figure.png)) for figure in figures],
        not_drawn=not_drawn,
        problems=_by_cell(results.problems),
        kinds=KINDS,
        origins=cells,
        environments=environments(results),
        commits=_commits(results),
        cells=anchors,
        commands=_commands(results),
        copy=_copy(results),
        folder=shlex.quote(results.plan.name),
        css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=Markup((TEMPLATES / "report.js").read_text(encoding="utf-8")),
    )
    write_text(path, page)


def link(*parts: str) -> str:
    """A relative link from the report to a file of the results."""
    return "/".join(quote(part) for part in parts)


def number(value: float | None, digits: int | None = None) -> str:
    """A number with thousands marked, or a dash."""
    if value is None:
        return "–"
    if digits is None:
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    return f"{value:,.{digits}f}"


def _counts(results: Results) -> dict[str, int]:
    """How many runs the plan has, and what became of them."""
    planned = {run.key for run in results.plan.runs}
    scored = {(row.task, row.variant, row.seed) for row in results.frame.itertuples()}
    return {
        "planned": len(planned),
        "scored": len(scored),
        "failed": results.failed,
        "not matched": sum(problem.kind == "not matched" for problem in results.problems),
        "mixed": sum(problem.kind == "mixed" for problem in results.problems),
        "outdated": sum(problem.kind == "outdated" for problem in results.problems),
        "left out": sum(problem.kind not in ("failed", "not matched", *IN_THE_MEANS) for problem in results.problems),
    }


def _task_view(results: Results, task: str) -> TaskView:
    table = wide_table(results, task)
    metrics = csv_frame(long_table(results, task)).astype(object)
    return TaskView(
        task=task,
        title=spec_for(task, results).title,
        table=table,
        caption=" ".join(table.caption[1:]),
        reductions=reductions_of(results, task),
        strips=strips(results, table),
        metrics=metrics.where(metrics.notna(), None).to_dict("records"),
        protocol=protocol_rows(results, task),
        first_value=next((k for k, column in enumerate(table.columns) if column.kind == "value"), 0),
    )


def _by_cell(problems: list[Problem]) -> list[tuple[Problem, str]]:
    """The problems, each with the name of what it is about; seeds of a cell that have one reason share a line.

    The file that stands there is the first one's.
    """
    groups: dict[tuple[object, ...], list[Problem]] = {}
    for found in problems:
        groups.setdefault((found.kind, found.task, found.variant, found.condition, found.reason), []).append(found)
    named = []
    for first, *others in groups.values():
        seeds = ", ".join(str(found.seed) for found in (first, *others))
        cell = replace(first, seed=None).name
        named.append((first, f"{cell} (seeds {seeds})" if others else first.name))
    return named


def _embedded(png: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"


def _commits(results: Results) -> list[tuple[str, bool | None]]:
    """The commits that made the runs, and whether files differed from them (None: not said)."""
    found: dict[str, set[bool | None]] = {}
    for run in results.runs.values():
        if run.manifest.git.commit:
            found.setdefault(run.manifest.git.commit, set()).add(run.manifest.git.dirty)
    return [
        (commit, True if True in said else None if None in said else False) for commit, said in sorted(found.items())
    ]


def _commands(results: Results) -> list[str]:
    """What trains the whole plan and makes this report again, from the commit on where there is one."""
    commits = {commit for commit, _ in _commits(results)}
    checkout = [f"git checkout {shlex.quote(commit)}" for commit in commits] if len(commits) == 1 else []
    copy = _copy(results)
    plan = results.plan.file if copy is None else f"results/{results.plan.name}/{copy}"
    return [*checkout, f"snakemake --configfile {shlex.quote(plan)}"]


def _copy(results: Results) -> str | None:
    """Where in the results a copy of a plan lies that no commit has; None where there is none."""
    path = results.folder / "plan" / Path(results.plan.file).name
    return path.relative_to(results.folder).as_posix() if path.is_file() else None
