"""The rules of verdicts: from a claim's cells to reproduced, not reproduced, undecided or not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capsbench.errors import counted
from capsbench.plan.claims import PARAMETERS, Claim, Claims
from capsbench.report.captions import listing
from capsbench.report.results import Results
from capsbench.report.statistics import (
    CONFIDENCE,
    Estimate,
    ThreeTrials,
    crossed,
    difference,
    disagreements,
    exact,
    holm,
    one_sample,
    paired,
    seeds_to_decide,
    three_trials,
)
from capsbench.report.verdicts.digits import AnswerReader, NoAnswersError
from capsbench.report.verdicts.judged import Judged, Judgement
from capsbench.report.verdicts.not_run import not_run_words, other_homes
from capsbench.report.verdicts.sides import Side, reductions, sides_of, why_not_run
from capsbench.report.verdicts.words import decimals_of, few_seeds, needed, number, span, unit_of, with_unit

ALPHA = 1 - CONFIDENCE
SIGNS = {"less": -1, "greater": 1}


def judge(results: Results, claims: Claims) -> Judged:
    """Judge every claim. The same results give the same verdicts.

    Predictions that cannot be read become problems of `results`, and their claims are `not run`.
    """
    reader = AnswerReader(results)
    judgements = [_measured(results, claim, reader) for claim in claims.claims]
    for family in claims.families:
        _correct([j for j in judgements if j.claim.family == family and j.claim.kind != "value"])
    for judgement in judgements:
        if judgement.estimate is not None:
            RULES[judgement.claim.kind](judgement)
            _wait_for_all_seeds(judgement)
        if judgement.verdict != "not run":
            judgement.why += _caveats(results, judgement)
    return Judged(claims, judgements, _edited(results, claims))


def _measured(results: Results, claim: Claim, reader: AnswerReader) -> Judgement:
    """The claim with its estimate and p; without them where it is not run or has too few seeds."""
    judgement = Judgement(claim, sides_of(results, claim))
    if (reason := why_not_run(results, claim, judgement.sides)) is not None:
        judgement.reason, judgement.why = reason.kind, f"{not_run_words(results, claim, judgement.sides, reason)}."
        return judgement
    sides = judgement.sides
    try:
        judgement.estimate = _estimate(claim, sides, reader)
        if claim.test == "crossed":
            judgement.mcnemar = _mcnemar(sides, reader)
    except NoAnswersError as error:
        judgement.estimate, judgement.reason, judgement.why = None, "its answers cannot be read", f"{error}."
        return judgement
    if judgement.estimate is None:
        judgement.verdict = "undecided"
        judgement.why = (
            f"{_too_few(claim)} gives no spread to judge by (every cell needs at least 2 seeds, and should have 5)"
            if judgement.n < 2
            else "The seeds agree to the last digit, which leaves no spread to judge by (more seeds are needed)"
        )
        return judgement
    judgement.welch = difference(sides[0].values, sides[1].values) if claim.baseline else None
    if claim.kind == "direction":
        judgement.p = judgement.estimate.p()
        judgement.trials = _three_trials(claim, sides)
    elif claim.kind == "no_difference":
        assert claim.delta is not None  # the claim's own check
        judgement.p = judgement.estimate.p_equivalent(claim.delta)
    return judgement


def _estimate(claim: Claim, sides: list[Side], reader: AnswerReader) -> Estimate | None:
    """By the claim's test; None with fewer than two seeds, or without spread over them. Raises NoAnswersError."""
    if claim.metric == PARAMETERS and claim.kind == "value":
        return exact(sides[0].values[0])  # a count: one run has the number that every run has
    if min(len(side.values) for side in sides) < 2:
        return None
    if claim.test == "student":
        constant = claim.expected if claim.kind == "direction" else None
        return one_sample(sides[0].values, constant or 0.0)
    if claim.test == "paired":
        first, second = _same_runs(sides)
        return paired(first, second)
    if claim.test == "welch":
        return difference(sides[0].values, sides[1].values)
    return crossed(reader.scored(sides[0]), reader.scored(sides[1]))


def _too_few(claim: Claim) -> str:
    return "At most one seed in common" if claim.test == "paired" else "One seed"


def _same_runs(sides: list[Side]) -> tuple[list[float], list[float]]:
    """Two metrics of the runs that have both, by seed."""
    first, second = ({run.key.seed: value for run, value in zip(s.runs, s.values, strict=True)} for s in sides)
    both = sorted(first.keys() & second.keys())
    return [first[seed] for seed in both], [second[seed] for seed in both]


def _mcnemar(sides: list[Side], reader: AnswerReader) -> list[dict[str, Any]]:
    """McNemar's counts of every seed that both cells have."""
    first, second = (reader.right(side) for side in sides)
    found = []
    for seed in sorted(first.keys() & second.keys()):
        claimed, baseline, p = disagreements(first[seed], second[seed], independent=sides[0].task == "mnist")
        found.append({"seed": seed, "only_claimed": claimed, "only_baseline": baseline, "p": p})
    return found


def _three_trials(claim: Claim, sides: list[Side]) -> ThreeTrials | None:
    sign = SIGNS[claim.direction or "less"]
    if claim.test == "paired":
        differences = [a - b for a, b in zip(*_same_runs(sides), strict=True)]
        return three_trials(differences, 0.0, sign)
    other = sides[1].values if claim.baseline else float(claim.expected or 0)
    return three_trials(sides[0].values, other, sign)


def _correct(family: list[Judgement]) -> None:
    """Holm over the declared family.

    What is not run, or not by every planned seed, counts with p = 1 for the others, lest their verdicts be taken back
    when it is.
    """
    own = [1.0 if judgement.p is None else judgement.p for judgement in family]
    settled = [p if judgement.is_complete else 1.0 for p, judgement in zip(own, family, strict=True)]
    for found, complete in ((settled, True), (own, False)):
        _step_down(family, found, complete)


def _step_down(family: list[Judgement], found: list[float], complete: bool) -> None:
    """Holm's steps over the p of a family, for those of its claims that are complete, or those that are not."""
    adjusted = holm(found)
    for k, judgement in enumerate(family):
        if judgement.p is None or judgement.estimate is None or judgement.is_complete is not complete:
            continue
        judgement.p_holm = adjusted[k]
        # equal p stand on one step, wherever their claims stand in the file: p = 1 is that of every claim not run, too
        judgement.level = ALPHA / sum(p >= found[k] for p in found)
        if judgement.p > 0:  # at which the interval decides exactly as p_holm under ALPHA does, also behind a larger p
            judgement.level = min(judgement.level, ALPHA * judgement.p / adjusted[k])
        tails = 1 if judgement.claim.kind == "direction" else 2  # one-sided tests, two of them
        judgement.adjusted = judgement.estimate.interval(1 - tails * judgement.level)


# ---- one rule a kind -----------------------------------------------------------------------------------------------


def _value(judgement: Judgement) -> None:
    """Inside expected +- delta: reproduced; disjoint from it: not reproduced."""
    claim, estimate = judgement.claim, judgement.estimate
    assert estimate is not None and claim.expected is not None and claim.delta is not None  # noqa: PT018
    unit = judgement.sides[0].unit
    low, high = estimate.interval()
    bounds = claim.expected - claim.delta, claim.expected + claim.delta
    said = with_unit(f"the claimed {number(claim.expected)} ± {number(claim.delta)}", unit)
    interval = f"Our 95 % interval, {span(judgement, low, high, unit)},"
    ours = interval if high > low else f"{with_unit(f'Ours, {number(low)}', unit)},"
    if bounds[0] <= low and high <= bounds[1]:
        judgement.verdict, judgement.why = "reproduced", f"{ours} lies inside {said}"
    elif high < bounds[0] or low > bounds[1]:
        judgement.verdict, judgement.why = "not reproduced", f"{ours} lies outside {said}"
    else:
        rooms = _rooms(estimate.value - claim.expected, claim.delta)
        _undecided(judgement, f"{ours} lies only partly inside {said}", rooms, ALPHA, tails=2)


def _direction(judgement: Judgement) -> None:
    """The Holm-adjusted interval excludes 0: reproduced on the claimed side, not reproduced on the other."""
    claim, estimate = judgement.claim, judgement.estimate
    assert estimate is not None and judgement.adjusted is not None and judgement.p_holm is not None  # noqa: PT018
    unit = unit_of(judgement)
    sign = SIGNS[claim.direction or "less"]
    interval = span(judgement, *judgement.adjusted, unit)
    value = with_unit(number(estimate.value, decimals_of(judgement)), unit)
    what = "The difference" if claim.expected is None else f"Ours minus {number(claim.expected)}"
    ours = f"{what} is {value}; its Holm-adjusted interval, {interval},"
    if judgement.p_holm < ALPHA:
        right = sign * estimate.value > 0
        judgement.verdict = "reproduced" if right else "not reproduced"
        judgement.why = f"{ours} excludes 0 on the {'claimed' if right else 'other'} side"
    else:
        _undecided(judgement, f"{ours} contains 0", (abs(estimate.value),), judgement.level, tails=2)


def _no_difference(judgement: Judgement) -> None:
    """Both one-sided tests: reproduced; the 95 % interval beyond the margin: not reproduced. Never by a large p."""
    claim, estimate = judgement.claim, judgement.estimate
    assert estimate is not None and claim.delta is not None  # noqa: PT018
    assert judgement.adjusted is not None and judgement.p_holm is not None  # noqa: PT018
    unit = unit_of(judgement)
    low, high = estimate.interval()
    margin = with_unit(f"the margin of ± {number(claim.delta)}", unit)
    ours = with_unit(f"The difference is {number(estimate.value, decimals_of(judgement))}", unit)
    tested = f"the Holm-adjusted interval of the two one-sided tests, {span(judgement, *judgement.adjusted, unit)},"
    if judgement.p_holm < ALPHA:
        judgement.verdict, judgement.why = "reproduced", f"{ours}; {tested} lies inside {margin}"
    elif low > claim.delta or high < -claim.delta:
        judgement.verdict = "not reproduced"
        judgement.why = f"{ours}; its 95 % interval, {span(judgement, low, high, unit)}, lies beyond {margin}"
    else:
        rooms = _rooms(estimate.value, claim.delta)
        level, tails = (judgement.level, 1) if len(rooms) == 2 else (ALPHA, 2)
        _undecided(judgement, f"{ours}; {tested} does not lie inside {margin}", rooms, level, tails)


RULES: dict[str, Callable[[Judgement], None]] = {
    "value": _value,
    "direction": _direction,
    "no_difference": _no_difference,
}


def _rooms(off: float, delta: float) -> tuple[float, ...]:
    """From ±delta: an estimate inside must be told from both bounds, one beyond from the nearer."""
    return (delta - off, delta + off) if abs(off) < delta else (abs(off) - delta,)


def _undecided(judgement: Judgement, why: str, rooms: tuple[float, ...], level: float, tails: int) -> None:
    assert judgement.estimate is not None  # rules are asked where there is one
    judgement.verdict = "undecided"
    enough = seeds_to_decide(judgement.estimate, rooms, level, tails)
    judgement.seeds_needed = None if enough is None else max(enough, judgement.planned)
    judgement.why = f"{why}; {needed(judgement.seeds_needed, judgement.estimate.hides_digits)}"


def _wait_for_all_seeds(judgement: Judgement) -> None:
    """A decision counts when every planned run has its number.

    A look after each seed would be a test more, and what is left where runs diverged, or never came to the accuracy
    at which models are compared, is a choice by their result.
    """
    if judgement.verdict == "undecided" or judgement.claim.metric == PARAMETERS:
        return
    if not judgement.is_complete:
        judgement.verdict = "undecided"
        judgement.why += "; there is no verdict until every planned seed has its number"


def _caveats(results: Results, judgement: Judgement) -> str:
    """What must be said beside a verdict, and the full stop."""
    words = "" if judgement.claim.metric == PARAMETERS else _trained(results, judgement)  # a count is that of any run
    if homes := other_homes(results, judgement.claim):
        words += f"; the verdict that counts is the one on the results of {listing(homes)}"
    failed = sum({(side.task, side.variant): side.failed for side in judgement.sides}.values())  # two metrics, one cell
    return words + (f", {counted(failed, 'run')} failed or not matched" if failed else "") + "."


def _trained(results: Results, judgement: Judgement) -> str:
    """On how many seeds an interval stands, and what the training had less of than the paper's."""
    reduced = [found for side in judgement.sides for found in reductions(results, side)]
    shorter, named = (dict.fromkeys(f.words for f in reduced if f.kind == kind) for kind in ("training", "budget"))
    words = few_seeds(judgement.n, judgement.planned) if judgement.estimate is not None else ""
    words += f", after reduced training ({', '.join(shorter)})" if shorter else ""
    return words + (f", under the budget {results.plan.budget} ({', '.join(named)})" if named else "")


def _edited(results: Results, claims: Claims) -> str | None:
    """Whether runs were trained when the claims said something else, as a sentence."""
    digests = [run.manifest.digests.get("claims") for run in results.runs.values()]
    other = sum(digest not in (None, claims.digest) for digest in digests)
    unsaid = digests.count(None)
    words = [
        f"{other} of {counted(len(digests), 'run')} were trained before the claims were last edited" if other else "",
        f"{unsaid} of {counted(len(digests), 'run')} have no record of the claims" if unsaid else "",
    ]
    found = "; ".join(word for word in words if word)
    if not found:
        return None
    told = "docs/reproduction.md says what was edited, and what was known by then"
    return f"{found}; {told} (the claims' digest is {claims.digest[:10]} now)."
