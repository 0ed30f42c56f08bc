"""What became of every claim, and its file claims.json (docs/results-format.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from capsbench.plan.claims import Claim, Claims
from capsbench.report.claims_file import VERDICTS, Verdict
from capsbench.report.results import Results
from capsbench.report.statistics import CONFIDENCE, Estimate, ThreeTrials
from capsbench.report.verdicts.sides import Side
from capsbench.report.verdicts.words import claimed, ours, shown_value

FIGURES = {  # that show a task's numbers, besides figure `claims`
    "mnist": ["mnist_error"],
    "affnist": ["affnist_accuracy", "affnist_curves"],
    "multimnist": ["multimnist_error", "multimnist_pictures"],
    "two_digit": ["two_digit_top2", "two_digit_accuracy"],
}


@dataclass
class Judgement:
    """One claim and what became of it. What cannot be had is None."""

    claim: Claim
    sides: list[Side]  # the claimed cell first; empty for a claim that the suite has no experiment for
    verdict: Verdict = "not run"
    why: str = ""
    reason: str | None = None  # of a claim that is not run: the kind of reason, by which the page counts
    estimate: Estimate | None = None  # our mean (value), or claimed less baseline
    welch: Estimate | None = None
    p: float | None = None
    p_holm: float | None = None
    level: float = 1 - CONFIDENCE  # of Holm's step, where the family is corrected
    adjusted: tuple[float, float] | None = None  # the interval at that level
    seeds_needed: int | None = None
    trials: ThreeTrials | None = None
    mcnemar: list[dict[str, Any]] = field(default_factory=list)

    @property
    def n(self) -> int:
        """The smaller number of seeds of the cells; of pairs, how many seeds both have."""
        if self.claim.test == "paired" and self.sides:
            return len(set.intersection(*({run.key.seed for run in side.runs} for side in self.sides)))
        return min((len(side.values) for side in self.sides), default=0)

    @property
    def is_complete(self) -> bool:
        """Whether every planned run of its cells has the number."""
        return all(len(side.values) >= side.planned for side in self.sides)

    @property
    def planned(self) -> int:
        """How many seeds `n` will be when it is complete."""
        return self.n if self.is_complete else min(side.planned for side in self.sides)

    def as_json(self, results: Results, drawn: Collection[str]) -> dict[str, Any]:
        """An entry of claims.json; `drawn` are the figures that there are."""
        claim, estimate = self.claim, self.estimate
        low, high = estimate.interval() if estimate else (None, None)
        task = self.sides[0].task if self.sides else None
        labels = {f"{side.task}/{side.variant}": None for side in self.sides}
        reduced = [found.words for label in labels for found in results.plan.reduced.get(label, [])]
        judged = self.verdict != "not run"
        named = FIGURES.get(task or "", []) + (["axes"] if self._is_on_an_axis(results) else [])
        return {
            "id": claim.id,
            "sentence": claim.sentence,
            "source": claim.source,
            "kind": claim.kind,
            "family": claim.family,
            "test": claim.test,
            "direction": claim.direction,
            "verdict": self.verdict,
            "why": self.why,
            "reason": self.reason,
            "metric": claim.metric,
            "unit": next((side.unit for side in self.sides if side.values), None),
            "condition": claim.condition,
            "dataset": next(({"name": s.dataset, "badge": s.badge} for s in self.sides if s.dataset), None),
            "shown": {"ours": ours(self), "claimed": claimed(self), "value": shown_value(self)},
            "budget": results.plan.budget,
            "reductions": list(dict.fromkeys(reduced)),
            "effect": estimate.value if estimate else None,
            "ci_low": low,
            "ci_high": high,
            "p": self.p,
            "p_holm": self.p_holm,
            "adjusted_low": self.adjusted[0] if self.adjusted else None,
            "adjusted_high": self.adjusted[1] if self.adjusted else None,
            "n": self.n,
            "seeds_needed": self.seeds_needed,
            "paper": claim.expected,
            "delta": claim.delta,
            "welch": _short(self.welch),
            "three_trials": self.trials._asdict() if self.trials else None,
            "mcnemar": self.mcnemar,
            "cells": [side.as_json(results) for side in self.sides],
            "tables": [task] if task and any(side.values for side in self.sides) else [],
            "figures": [name for name in named if name in drawn] if judged else [],
        }

    def _is_on_an_axis(self, results: Results) -> bool:
        """Whether a cell of the claim is a row that an axis of the plan made."""
        rows = {(task, p.variant) for task, points in results.plan.axes.items() for p in points if p.variant != p.base}
        return any((side.task, side.variant) in rows for side in self.sides)


def _short(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    low, high = estimate.interval(CONFIDENCE)
    return {"effect": estimate.value, "ci_low": low, "ci_high": high, "p": estimate.p()}


@dataclass
class Judged:
    """Every claim, in the order of the claims file. `edited` says if runs were trained under other claims."""

    claims: Claims
    judgements: list[Judgement]
    edited: str | None

    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        found = Counter(judgement.verdict for judgement in self.judgements)
        return {verdict: found[verdict] for verdict in VERDICTS}

    def as_json(self, results: Results, drawn: Collection[str]) -> dict[str, Any]:
        """claims.json; `drawn` are the names of the figures that there are."""
        return {
            "schema": 1,
            "plan": results.plan.name,
            "budget": results.plan.budget,
            "digest": self.claims.digest,
            "edited": self.edited,
            "families": self.claims.families,
            "counts": self.counts(),
            "claims": [judgement.as_json(results, drawn) for judgement in self.judgements],
        }
