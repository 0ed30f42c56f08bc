"""What is said under tables and figures: the data, the budget, every reduction, the seeds, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from capsbench.errors import counted
from capsbench.report.readers import OVERLAP, read_series
from capsbench.report.results import IN_THE_MEANS, KINDS, Kind, Results
from capsbench.report.tables import spec_for

SYNTHETIC = "affnist-synth"
MEANS = "Mean over seeds ± half the width of Student's t 95 % interval; no interval for a single seed or if all agree."
DRAWN = "ssim_true"  # every pair that was drawn has it
PAPERS_DATA = ("mnist", "affnist")  # the data sets, by name, on which the paper's figures were measured


def listing(words: Iterable[object]) -> str:
    """`a, b and c`."""
    names = [str(word) for word in words]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def range_of(numbers: Iterable[int | None]) -> str:
    """`938` or `938 to 1,876`: the range of the numbers that are there."""
    found = sorted({number for number in numbers if number is not None})
    if not found:
        return ""
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def budget_words(results: Results, task: str | None = None) -> str:
    """The plan's budget, for one task or all; its numbers are MNIST's, other tasks have steps of their own."""
    meaning = {"short": "100 epochs, the decay scaled to the length", "authors": "300k steps, the published decay"}
    budget = results.plan.budget
    reduced = [one for cell, found in results.plan.reduced.items() if cell.startswith("mnist/") for one in found]
    is_told = task in (None, "mnist") and "mnist" in results.plan.tasks
    if budget not in meaning or not is_told or any(one.kind == "training" for one in reduced):
        return budget  # where MNIST is trained otherwise, its reductions say how
    return f"{budget} ({'' if task else 'MNIST: '}{meaning[budget]})"


def data_words(results: Results, task: str) -> str:
    """Which data a task was scored on, and how many images or pairs."""
    frame = results.frame[results.frame["task"] == task]
    if not len(frame):
        return f"{results.plan.dataset.badge}, nothing scored yet"
    what = "pairs" if task in ("multimnist", "two_digit") else "images"
    words = f"{frame['badge'].iloc[0]}, {_images(frame)} test {what}"
    if task == "affnist":
        official = str(frame["dataset"].iloc[0]) == "affnist"
        words += " (the official files)" if official else " (made here by seeded transforms, not the paper's test set)"
    return words


def other_data(results: Results, tasks: Sequence[str] = ()) -> str:
    """The data behind a picture of `tasks` (none: of what was trained on) as far as they are not the paper's.

    `affnist-synth`, `UCI digits, not MNIST`, or both; empty for MNIST and the official affNIST.
    """
    scored = [m.dataset for task in tasks for run in results.done(task) for m in (run.metrics | run.apart).values()]
    found = {dataset.badge: dataset.name for dataset in scored or [results.plan.dataset]}
    return "; ".join(badge for badge, name in found.items() if name not in PAPERS_DATA)


def _images(frame: pd.DataFrame) -> str:
    """`10,000`, or `4,000 (converged) and 2,000 (matched)` where the conditions differ."""
    found = frame.groupby("condition", sort=False)["images"]
    counts = {str(condition): range_of(int(n) for n in images.unique()) for condition, images in found}
    if len(set(counts.values())) == 1:
        return next(iter(counts.values()))
    return listing(f"{count} ({condition})" for condition, count in counts.items())


def seeds_of(results: Results, task: str) -> list[int]:
    """The seeds that the plan gives a task."""
    return sorted({run.seed for run in results.plan.runs if run.task == task})


def seeds_words(results: Results, task: str) -> str:
    """The plan's seeds of a task; where rows have fewer finished runs than that, how many."""
    seeds = seeds_of(results, task)
    planned = Counter(run.variant for run in results.plan.runs if run.task == task)
    done = {variant: len(results.done(task, variant)) for variant in planned}
    words = f"{'Seed' if len(seeds) == 1 else 'Seeds'}: {listing(seeds)}"
    if all(done[variant] == planned[variant] for variant in planned):
        return f"{words}."
    some = [n for n in done.values() if n]
    if not some:
        return f"{words} planned; no run is finished."
    return f"{words} planned; finished: {range_of(some)} per row, in {len(some)} of {counted(len(done), 'row')}."


def reductions_of(results: Results, task: str) -> list[str]:
    """What a task's runs do with less than the paper's protocol."""
    return results.plan.reductions.get(task, [])


def is_comparable(results: Results, task: str) -> bool:
    """Whether the paper's figures are for comparison: the paper's own data, its models, no reduced training.

    Fewer seeds or test images, which captions name, leave the comparison standing.
    """
    return not _why_not_comparable(results, task)


def is_reduced(results: Results, task: str) -> bool:
    """Whether a task's models or trainings are reduced; anything at all, where plan.json does not say it by cell."""
    plan = results.plan
    said = [reduced for cell, found in plan.reduced.items() if cell.split("/")[0] == task for reduced in found]
    kinds = {reduced.kind for reduced in said}
    unsaid = not plan.reduced and bool(reductions_of(results, task))
    return plan.budget == "reduced" or bool(kinds & {"experiment", "training"}) or unsaid


def left_out_sentences(results: Results, task: str) -> list[str]:
    """What is counted and left out of the means, kind by kind, and what has not run; none where nothing is."""
    kinds: list[Kind] = [kind for kind in KINDS if kind not in (*IN_THE_MEANS, "missing")]
    counts = {kind: results.count(kind, task) for kind in kinds}
    words = listing(f"{count} {kind}" for kind, count in counts.items() if count)
    sentences = [f"Left out of the means, listed on the report page: {words}."] if words else []
    missing = results.count("missing", task)
    return sentences + ([f"Still missing: {counted(missing, 'planned result')}."] if missing else [])


def conditions_in_words(results: Results, task: str) -> list[str]:
    """One sentence each on data, budget, reductions, seeds and steps: the caption of whatever shows this task."""
    sentences = [f"Data: {data_words(results, task)}.", f"Budget: {budget_words(results, task)}."]
    reductions = reductions_of(results, task)
    sentences.append(f"Reductions: {'; '.join(reductions) if reductions else 'none'}.")
    sentences.append(seeds_words(results, task))
    steps = range_of(run.manifest.steps for run in results.done(task))
    return sentences + ([f"Training steps: {steps}."] if steps else [])


def task_in_words(results: Results, task: str) -> str:
    """`mnist: ...`: what is said of a task under a table or figure of several."""
    sentences = [*conditions_in_words(results, task), *left_out_sentences(results, task)]
    return f"{task}: {' '.join([*sentences, *results.plan.notes.get(task, [])])}"


def pairs_drawn(results: Results) -> list[str]:
    """On how many of MultiMNIST's test pairs drawing was measured, as one sentence; none where nothing was drawn."""
    counts = []
    for run in results.done("multimnist"):
        bins = read_series(results, run, "test/overlap.csv", OVERLAP)
        pairs = 0.0 if bins is None else float(bins.loc[bins["metric"] == DRAWN, "pairs"].sum())
        if pairs > 0:
            counts.append(int(pairs))
    return [f"How well digits are drawn (SSIM, IoU) is measured on {range_of(counts)} pairs."] if counts else []


def table_caption(results: Results, task: str, with_paper: bool) -> list[str]:
    """The sentences under a task's table; the first is its title. `with_paper`: it has a column paper."""
    sentences = [f"{spec_for(task, results).title}."]
    sentences += conditions_in_words(results, task)
    sentences += pairs_drawn(results) if task == "multimnist" else []
    sentences.append(MEANS)
    sentences += left_out_sentences(results, task)
    if mixed := results.count("mixed", task):
        differences = counted(mixed, "difference")
        sentences.append(
            f"Not all runs compared here were made alike: {differences} of machine, version or setting, listed on the "
            "report page."
        )
    if outdated := results.count("outdated", task):
        sentences.append(
            "In the means, but trained or scored with source code, or scored with options, other than today's: "
            f"{counted(outdated, 'result')}, listed on the report page."
        )
    if with_paper:
        sentences.append("Column paper: Sabour, Frosst and Hinton 2017, with their standard deviation where given.")
        if others := results.published.by_others(task, results.plan.tasks[task]):
            named = [f"{results.plan.title(value.variant)} ({value.source.rstrip('.')})" for value in others]
            sentences.append(f"Not theirs: {'; '.join(dict.fromkeys(named))}.")
        if not is_comparable(results, task):
            why = listing(_why_not_comparable(results, task))
            sentences.append(f"It is there for orientation, not for comparison: {why}.")
    sentences += results.plan.notes.get(task, [])
    if task in results.published.notes:
        sentences.append(results.published.notes[task].strip())
    return sentences


def _why_not_comparable(results: Results, task: str) -> list[str]:
    scored = set(results.frame.loc[results.frame["task"] == task, "dataset"])
    reasons = []
    if results.plan.dataset.name not in PAPERS_DATA:
        reasons.append(f"the data are {results.plan.dataset.badge}")
    if SYNTHETIC in scored:
        reasons.append("the test set is synthetic")
    if is_reduced(results, task):
        reasons.append("the protocol is reduced")
    return reasons
