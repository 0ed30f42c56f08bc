"""claims.json as the page shows it: what became of every claim (docs/results-format.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat

from capsbench.report.contract import ResultsFile

Verdict = Literal["reproduced", "not reproduced", "undecided", "not run"]
VERDICTS: dict[Verdict, str] = {  # in the order of the page
    "reproduced": "our interval agrees with the claim, by a rule written before the runs "
    "(docs/reproduction.md names the exceptions)",
    "not reproduced": "our interval contradicts it",
    "undecided": "our interval allows either",
    "not run": "the runs, the data or the full protocol are missing, or the runs are those that suggested the claim",
}


class ClaimCell(ResultsFile):
    """A cell that a claim speaks of."""

    role: str
    task: str
    variant: str
    metric: str = ""


class Shown(ResultsFile):
    """Ours with its interval and what is claimed, both on the claim's own scale."""

    ours: str = ""
    claimed: str = ""
    value: FiniteFloat | None = None  # ours, to sort by


class ClaimRow(ResultsFile):
    """One claim and its verdict; what cannot be had is None."""

    id: str
    sentence: str
    source: str = ""
    kind: str
    family: str = ""
    verdict: Verdict
    why: str
    reason: str | None = None  # why it was not run, as a kind
    condition: str | None = None
    metric: str | None = None
    shown: Shown = Shown()
    effect: FiniteFloat | None = None
    p_holm: FiniteFloat | None = None
    n: int | None = None
    paper: FiniteFloat | None = None
    cells: list[ClaimCell] = Field(default=[])
    figures: list[str] = Field(default=[])


class ClaimsFile(ResultsFile):
    """claims.json."""

    format: Literal[1] = Field(alias="schema")
    edited: str | None = None
    families: dict[str, str] = Field(default={})
    claims: list[ClaimRow]

    def count(self, verdict: Verdict) -> int:
        """How many claims have a verdict."""
        return sum(claim.verdict == verdict for claim in self.claims)

    def get(self, name: str) -> ClaimRow | None:
        """The claim of that id."""
        return next((claim for claim in self.claims if claim.id == name), None)
