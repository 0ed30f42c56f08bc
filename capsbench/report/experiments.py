"""One strip an experiment for the first screen: the paper's figure, our interval, the strongest of the others."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from capsbench.plan.outside import code_of
from capsbench.report.best import is_control
from capsbench.report.captions import budget_words, is_comparable
from capsbench.report.claims_file import ClaimRow, ClaimsFile
from capsbench.report.published import TableCell
from capsbench.report.results import Results
from capsbench.report.statistics import Summary, summarise
from capsbench.report.strips import place_between
from capsbench.report.tables import Metric, spec_for
from capsbench.report.wide import with_interval

CAPSULES = {  # which variant stands for capsules: the one that the task's claim below is about
    "mnist": "capsnet-r3-recon",
    "affnist": "capsnet-r3-recon",
    "multimnist": "capsnet-r3-recon",
    "two_digit": "two-digit-kmeans",
}
VALUE_CLAIMS = {
    "mnist": "mnist-r3-recon-value",
    "affnist": "affnist-capsnet-value",
    "multimnist": "multimnist-r3-value",
    "two_digit": "two-digit-capsules-over-90",
}


@dataclass(frozen=True)
class Bar:
    """Mean and interval in percent of the strip's width; what lies beyond an edge is cut there."""

    variant: str
    title: str
    role: str  # as which it stands there
    mean: float
    low: float | None
    high: float | None
    words: str
    n: int


@dataclass(frozen=True)
class Experiment:
    """One strip. `verdicts` are pairs of what was claimed and what became of it."""

    task: str
    title: str
    metric: str
    badge: str
    budget: str
    scored: bool  # whether any row of the task has its figure
    comparable: bool  # with the paper's figure: its data, nothing reduced but for the budget short
    ours: Bar | None
    baseline: Bar | None
    own: Bar | None  # capsules whose routing or model is from outside the suite
    paper: float | None  # its place
    paper_words: str
    scale: tuple[str, str]  # the values at both edges
    verdicts: list[tuple[str, str, str]]  # label, verdict, the claim's id


def experiments(results: Results, judged: ClaimsFile) -> list[Experiment]:
    """One strip a task of the plan, under the task's first condition that capsules were scored under."""
    return [_experiment(results, task, judged) for task in results.plan.tasks]


def is_baseline(results: Results, task: str, variant: str) -> bool:
    """Whether a variant is a CNN that was trained like the capsules: no capsules, no positive control."""
    runs = results.done(task, variant)
    return bool(runs) and not runs[0].has_capsules and not is_control(results, task, variant)


def is_own(results: Results, task: str, variant: str) -> bool:
    """Whether a variant is capsules with a routing or a model from outside the suite."""
    runs = results.done(task, variant)
    return bool(runs) and runs[0].has_capsules and bool(code_of(runs[0].spec))


def _experiment(results: Results, task: str, judged: ClaimsFile) -> Experiment:
    spec = spec_for(task, results)
    variants = results.plan.tasks[task]
    metric = spec.main[0] if spec.main else Metric("", "", "")
    frame = results.frame[(results.frame["task"] == task) & (results.frame["metric"] == metric.name)]
    ours = name if (name := CAPSULES.get(task)) in variants else None
    scored = set(frame.loc[frame["variant"] == ours, "condition"]) or set(frame["condition"])
    condition = next((name for name in spec.conditions if name in scored), next(iter(spec.conditions), ""))
    of = frame[frame["condition"] == condition]
    found = {str(v): summarise([float(x) for x in group]) for v, group in of.groupby("variant", sort=False)["value"]}
    rivals = {v: s for v, s in found.items() if v != ours and is_baseline(results, task, v)}
    best = _strongest(rivals, metric)
    own = {v: s for v, s in found.items() if is_own(results, task, v)}
    best_own = _strongest(own, metric)
    kind = "baseline" if any(code_of(results.done(task, name)[0].spec) for name in rivals) else "CNN"
    roles = {  # as which the bars stand there
        ours: "CapsNet" if str(ours).startswith("capsnet") else "capsules",
        best: f"best of {len(rivals)} {kind}s" if len(rivals) > 1 else f"the only {kind} with runs",
        best_own: f"best of {len(own)} from outside the suite" if len(own) > 1 else "from outside the suite",
    }
    paper = results.published.get(TableCell(task, ours, condition, metric.name)) if ours else None
    shown = {name: found[name] for name in (ours, best, best_own) if name in found}
    start, end = _scale([*shown.values()], None if paper is None else paper.value, metric)
    place = functools.partial(place_between, start, end)

    def bar(name: str | None) -> Bar | None:
        if name is None or name not in shown or shown[name].mean is None:
            return None
        s = shown[name]
        low, high = (None if x is None else place(x) for x in (s.low, s.high))
        words = f"{with_interval(s, metric.unit)} {metric.unit}".rstrip()
        return Bar(name, results.plan.title(name), roles[name], place(s.mean or 0.0), low, high, words, s.n)

    badge = str(of["badge"].iloc[0]) if len(of) else results.plan.dataset.badge
    return Experiment(
        task=task,
        title=spec.title,
        metric=f"{metric.heading} ({condition})" if len(spec.conditions) > 1 else metric.heading,
        badge=badge,
        budget=budget_words(results).split(" (")[0],
        scored=bool(found),
        comparable=is_comparable(results, task),
        ours=bar(ours),
        baseline=bar(best),
        own=bar(best_own),
        paper=None if paper is None else place(paper.value),
        paper_words="gives no figure" if paper is None else f"{paper.value:g} {metric.unit}".rstrip(),
        scale=(f"{start:.3g}", f"{end:.3g}"),
        verdicts=_verdicts(results, judged, TableCell(task, ours, condition, metric.name) if ours else None, best),
    )


def _strongest(found: dict[str, Summary], metric: Metric) -> str | None:
    """The variant with the best mean, whether or not the difference to the next is certain.

    None where there are several and a table without a TableSpec does not say which mean is better.
    """
    means = {name: summary.mean for name, summary in found.items() if summary.mean is not None}
    if not means or (len(means) > 1 and metric.better is None):
        return None
    sign = -1 if metric.better == "greater" else 1
    return min(means, key=lambda name: sign * means[name])


def _scale(summaries: list[Summary], paper: float | None, metric: Metric) -> tuple[float, float]:
    """From below every mean and the paper's figure to above them; percentages end at 0 and 100.

    Intervals are in it too, but one that is wider than the scale without it, as over two seeds: it would press all
    else together, and is cut.
    """
    points = [s.mean for s in summaries if s.mean is not None] + ([] if paper is None else [paper])
    if not points:
        return 0.0, 1.0
    room = max(0.35 * (max(points) - min(points)), 0.1 * abs(max(points)), 1e-3)
    low, high = min(points) - room, max(points) + room
    ends = [(s.low, s.high) for s in summaries if s.low is not None and s.high is not None]
    fitting = [end for a, b in ends if b - a <= high - low for end in (a, b)]
    low, high = min([low, *fitting]), max([high, *fitting])
    return (max(0.0, low), min(100.0, high)) if metric.unit == "%" else (low, high)


def _verdicts(
    results: Results, judged: ClaimsFile, ours: TableCell | None, best: str | None
) -> list[tuple[str, str, str]]:
    """What became of the paper's value, and of capsules against the strongest baseline, where that is a claim.

    A claim that the baseline is the better of the two says so in its label: reproduced, it is against the capsules.
    """
    if ours is None:
        return []
    said: list[tuple[str, str, str]] = []
    value = judged.get(VALUE_CLAIMS.get(ours.task, ""))
    if value is not None:
        whose = value.source.partition(",")[0].replace("After", "after")
        level = f"{value.shown.claimed} %, {whose}"
        said.append(("value" if value.kind == "value" else level, value.verdict, value.id))
    against = [claim for claim in judged.claims if best and _is_about(claim, ours, best)]
    run = [claim for claim in against if claim.verdict != "not run"]
    for claim in (run or against)[:1]:
        claimed = next(cell.variant for cell in claim.cells if cell.role == "claimed")
        title = results.plan.title(best or "")
        said.append((f"{title} is better" if claimed == best else f"against {title}", claim.verdict, claim.id))
    return said


def _is_about(claim: ClaimRow, ours: TableCell, best: str) -> bool:
    """Whether a claim says which of the two is better at what the strip shows."""
    cells = {(cell.task, cell.variant, cell.metric) for cell in claim.cells}
    shown = {(ours.task, ours.variant, ours.metric), (ours.task, best, ours.metric)}
    return claim.kind == "direction" and claim.condition == ours.condition and cells == shown
