"""The cells that a claim speaks of, as the results have them; and why it cannot be judged by them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from capsbench.plan.claims import PARAMETERS, Claim
from capsbench.plan.task import TEST_DIGITS
from capsbench.plan.tasks import DRAWN_METRICS, MATCHED_AT, TEST_PAIRS
from capsbench.report.captions import listing
from capsbench.report.contract import Reduced
from capsbench.report.results import Results, Run
from capsbench.report.statistics import summarise

SUBSTITUTE = "uci-digits"
REDUCED = "reduced protocol"
SUGGESTED = "suggested by runs"
NO_NUMBER = "no run has the number yet"  # the kind of reason that most often means: not trained


@dataclass(frozen=True)
class Side:
    """One metric of one cell: a value a run, by seed."""

    role: str  # claimed or baseline
    task: str
    variant: str
    condition: str | None
    metric: str
    runs: list[Run]  # those that have the metric
    values: list[float]
    unit: str
    dataset: str | None  # on which they were scored
    badge: str | None
    failed: int  # runs that failed or were not matched
    planned: int  # the plan's

    def as_json(self, results: Results) -> dict[str, Any]:
        """An entry of claims.json's `cells`."""
        found = summarise(self.values)
        return {
            "role": self.role,
            "task": self.task,
            "variant": self.variant,
            "title": results.plan.title(self.variant),
            "metric": self.metric,
            "n": found.n,
            "n_failed": self.failed,
            "mean": found.mean,
            "sd": found.sd,
            "ci_low": found.low,
            "ci_high": found.high,
            "runs": [run.folder.relative_to(results.folder).as_posix() for run in self.runs],
        }


def sides_of(results: Results, claim: Claim) -> list[Side]:
    """The claimed cell and, if there is one, the baseline (another cell, or another metric of the same)."""
    if claim.metric is None:
        return []
    names = claim.sides()
    sides = [side_of(results, "claimed", *names[0], claim.condition, claim.metric)]
    if claim.baseline_metric is not None:
        sides.append(side_of(results, "baseline", *names[0], claim.condition, claim.baseline_metric))
    elif len(names) > 1:
        sides.append(side_of(results, "baseline", *names[1], claim.condition, claim.metric))
    return sides


def side_of(results: Results, role: str, task: str, variant: str, condition: str | None, metric: str) -> Side:
    """One metric of a cell; without runs where the plan has no such cell, or none of its runs the metric."""
    runs, values, unit = [], [], "%"
    dataset = badge = None
    for run in results.done(task, variant) if task in results.plan.tasks else []:
        value: float | None
        scored = run.metrics.get(condition or "")
        if metric == PARAMETERS:
            value, unit = run.manifest.parameters, "parameters"
            dataset, badge = run.manifest.dataset.name, run.manifest.dataset.badge
        elif scored is None or scored.status != "done" or metric not in scored.metrics:
            continue
        else:
            value, unit = scored.metrics[metric].value, scored.metrics[metric].unit
            dataset, badge = scored.dataset.name, scored.dataset.badge
        if value is not None:
            runs.append(run)
            values.append(float(value))
    failed = results.count("failed", task, variant)
    failed += results.count("not matched", task, variant, condition) if condition else 0
    planned = {run.seed for run in results.plan.runs if (run.task, run.variant) == (task, variant)}
    return Side(role, task, variant, condition, metric, runs, values, unit, dataset, badge, failed, len(planned))


def reductions(results: Results, side: Side) -> list[Reduced]:
    """What the metric of a cell is measured with less than the protocol has.

    Where plan.json does not say it by cell, all counts as one kind.
    """
    if results.plan.reduced or side.task not in results.plan.reductions:
        found = results.plan.reduced.get(f"{side.task}/{side.variant}", [])
        return [reduced for reduced in found if reduced.touches(side.condition, side.metric)]
    return [Reduced(kind="experiment", words=words) for words in results.plan.reductions[side.task]]


class NotRun(NamedTuple):
    """Why a claim is not judged: the kind of reason, by which the page counts, and a sentence without its full stop."""

    kind: str
    words: str


def why_not_run(results: Results, claim: Claim, sides: list[Side]) -> NotRun | None:
    """Why a claim is not judged by these results; None if it is."""
    if claim.untested is not None:
        return NotRun("not tested here", f"not tested here: {claim.untested}")
    plan = results.plan
    if any(side.variant not in plan.tasks.get(side.task, []) for side in sides):
        return NotRun("this plan has no such cell", "this plan has no such cell")  # not_run.py says which
    named = {(side.task, side.variant) for side in sides}
    if known := sorted(
        {run.seed for run in plan.runs if (run.task, run.variant) in named} & {*(claim.known_seeds or ())}
    ):
        seeds = "seed" if len(known) == 1 else "seeds"
        return NotRun(SUGGESTED, f"runs of {seeds} {listing(known)} suggested it; only other seeds judge it")
    if reason := _other_data(results, claim, sides):
        return reason
    found = [reduced for side in sides for reduced in reductions(results, side)]
    if other := dict.fromkeys(r.words for r in found if r.kind == "experiment"):
        return NotRun(REDUCED, f"{REDUCED}: {'; '.join(other)}, which makes it a different experiment from the claim's")
    fewer = dict.fromkeys(r.words for r in found if r.kind == "digits")
    if fewer and claim.test != "crossed" and claim.metric != PARAMETERS:
        why = "an interval over seeds alone does not cover the sampling error of so few"
        return NotRun(REDUCED, f"{REDUCED}: {', '.join(fewer)}; {why}")
    if claim.metric != PARAMETERS and (words := _of_another_evaluation(results, claim, sides)):
        return NotRun(REDUCED, f"{REDUCED}: {words}; evaluate again")
    if claim.expected is not None and claim.metric != PARAMETERS:
        shorter = dict.fromkeys(r.words for r in found if r.kind == "training")
        if shorter or plan.budget == "reduced":
            said = ", ".join(shorter) or "budget reduced"
            return NotRun(REDUCED, f"{REDUCED}: {said}; no published number is judged by that")
    if empty := [side for side in sides if not side.values]:
        side = empty[0]
        if side.failed >= side.planned > 0:
            words = f"every run of {side.task}/{side.variant} ({side.planned}) failed or was not matched"
            return NotRun("its runs failed or were not matched", words)
        lost = f", {side.failed} failed or not matched" if side.failed else ""
        words = f"no run of {side.task}/{side.variant} has {side.metric} yet (0 of {side.planned}{lost})"
        return NotRun(NO_NUMBER, words)
    return None


def _of_another_evaluation(results: Results, claim: Claim, sides: list[Side]) -> str:
    """What stored metrics measured less of than the protocol, where the plan was edited since: it names no reduction.

    Digits drawn apart count as that, since metrics do not say of how many pairs. Others of another evaluation count as
    they do in the means: its source may have changed, and what it measures not.
    """
    now = "what the plan says now"
    planned = {run.key: run.evaluation for run in results.plan.runs}
    for side in sides:
        for run in side.runs:
            scored = run.metrics[side.condition or ""]
            if planned.get(run.key) in (None, scored.digest):
                continue
            if _is_drawn(side) and claim.test != "crossed":
                return f"{side.task}/{side.variant} was drawn on a number of pairs that may not be {now}"
            if scored.images < _full(side) and claim.test != "crossed":
                return f"{side.task}/{side.variant} was scored on {scored.images:,} images, which is not {now}"
            level = scored.metrics.get("held_out_accuracy")
            if side.condition == "matched" and level and level.value and abs(level.value - 100 * MATCHED_AT) > 1e-6:
                return f"{side.task}/{side.variant} was matched at {level.value:.2f} %, which is not {now}"
    return ""


def _is_drawn(side: Side) -> bool:
    """Whether a metric is of digits drawn apart, which is done for some of the pairs that are scored."""
    return side.task == "multimnist" and any(fnmatchcase(side.metric, of) for of in DRAWN_METRICS)


def _full(side: Side) -> int:
    """How many images or pairs the protocol scores, at the least, for a metric."""
    return TEST_PAIRS if side.task == "multimnist" else TEST_DIGITS


def _other_data(results: Results, claim: Claim, sides: list[Side]) -> NotRun | None:
    """Why the data are not the claim's."""
    plan = results.plan
    wanted = "mnist" if claim.data in ("affnist", "affnist-synth") else claim.data
    if plan.dataset.name != wanted:
        kind = "substitute data" if plan.dataset.name == SUBSTITUTE else "other data"
        return NotRun(kind, f"{kind}: this plan has {plan.dataset.badge}, but the claim is about {wanted}")
    scored = {side.dataset for side in sides if side.dataset}
    if claim.metric == PARAMETERS or scored <= {claim.data}:
        return None
    if claim.data == "affnist":
        kind = "official data missing"
        return NotRun(kind, f"{kind}: scored on {listing(sorted(scored))}")
    return NotRun("other data", f"other data: scored on {listing(sorted(scored))}, but the claim is about {claim.data}")
