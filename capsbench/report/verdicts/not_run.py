"""Why a claim is not run, as the sentence that tables and page show; which kind of reason it is, sides.py finds."""

from __future__ import annotations

from capsbench.errors import counted
from capsbench.plan.claims import Claim
from capsbench.report.captions import listing
from capsbench.report.results import Results
from capsbench.report.verdicts.sides import NO_NUMBER, SUGGESTED, NotRun, Side


def not_run_words(results: Results, claim: Claim, sides: list[Side], reason: NotRun) -> str:
    """Without its full stop: which cells the plan lacks and where they are, which are not trained yet.

    Of other kinds, and where runs of a cell have begun, the reason's own words, and where other seeds are to judge it.
    """
    cells = {f"{side.task}/{side.variant}": side for side in sides}
    missing = [name for name, side in cells.items() if side.variant not in results.plan.tasks.get(side.task, [])]
    if missing:
        homes = listing(other_homes(results, claim))
        are, they_are = ("is", "it is") if len(missing) == 1 else ("are", "they are")
        return f"{listing(missing)} {are} not in this plan" + (f" ({they_are} in {homes})" if homes else "")
    begun = {(run.task, run.variant) for run in results.runs}
    begun |= {(found.task, found.variant) for found in results.problems if found.variant and found.kind != "missing"}
    idle = [
        f"{name} (0 of {counted(side.planned, 'seed')})"
        for name, side in cells.items()
        if (side.task, side.variant) not in begun
    ]
    if reason.kind == NO_NUMBER and idle:
        return f"not trained yet: {listing(idle)}"
    elsewhere = other_homes(results, claim) if reason.kind == SUGGESTED else []
    return f"{reason.words} ({listing(elsewhere)})" if elsewhere else reason.words


def other_homes(results: Results, claim: Claim) -> list[str]:
    """The files of the plans in whose results a claim is judged for good; none where these results are among them."""
    if results.plan.name.removesuffix("-digits") in claim.plans:
        return []
    return [f"config/{home}.yaml" for home in claim.plans]
