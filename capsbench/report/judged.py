"""claims.json as the page shows it: what became of every claim."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from capsbench.report.contract import Dataset, UnreadableFileError, read
from capsbench.report.results import Problem, Results

Verdict = Literal["reproduced", "not reproduced", "undecided", "not run"]
VERDICTS: dict[Verdict, str] = {  # in the order of the page
    "reproduced": "our interval agrees with the claim by its rule, which is older than the run or says that it is not",
    "not reproduced": "our interval contradicts it",
    "undecided": "the interval leaves both open",
    "not run": "a cell, the data or the full protocol is missing",
}


class _File(BaseModel):
    """Unknown keys are kept out of the way, as in the other files."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ClaimCell(_File):
    """A cell that a claim speaks of."""

    role: str
    task: str
    variant: str
    title: str = ""
    metric: str = ""
    n: int | None = None


class Shown(_File):
    """Ours with its interval and what is claimed, both on the claim's own scale."""

    ours: str = ""
    claimed: str = ""
    value: FiniteFloat | None = None  # ours, to sort by


class Claim(_File):
    """One claim and its verdict; what cannot be had is None."""

    id: str
    sentence: str
    source: str = ""
    kind: str
    family: str = ""
    verdict: Verdict
    why: str
    unit: str | None = None
    condition: str | None = None
    metric: str | None = None
    dataset: Dataset | None = None
    budget: str | None = None
    shown: Shown = Shown()
    effect: FiniteFloat | None = None
    ci_low: FiniteFloat | None = None
    ci_high: FiniteFloat | None = None
    p: FiniteFloat | None = None
    p_holm: FiniteFloat | None = None
    n: int | None = None
    seeds_needed: int | None = None
    paper: FiniteFloat | None = None
    delta: FiniteFloat | None = None
    cells: list[ClaimCell] = []
    tables: list[str] = []
    figures: list[str] = []


class Judged(_File):
    """claims.json."""

    format: Literal[1] = Field(alias="schema")
    digest: str | None = None
    edited: str | None = None
    families: dict[str, str] = {}
    claims: list[Claim]

    def count(self, verdict: Verdict) -> int:
        """How many claims have a verdict."""
        return sum(claim.verdict == verdict for claim in self.claims)

    def get(self, name: str) -> Claim | None:
        """The claim of that id."""
        return next((claim for claim in self.claims if claim.id == name), None)


def read_claims(results: Results) -> Judged | None:
    """claims.json of the results; None if it is not there, and None with a problem if it cannot be read."""
    path = results.folder / "claims.json"
    if not path.exists():
        return None
    try:
        return read(path, Judged)
    except UnreadableFileError as error:
        reason = f"claims.json {error}; no verdict is shown"
        results.problems.append(Problem("unreadable", "claims", None, None, None, "claims.json", reason))
        return None
