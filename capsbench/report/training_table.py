"""Table `training`: what the runs took, cell by cell, from their manifests and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean

import pandas as pd

from capsbench.plan.task import TRAINING_DIGITS
from capsbench.report.captions import listing
from capsbench.report.results import Results, Run
from capsbench.report.wide import NOTHING, Column, Entry, ExtraTable, WideRow, WideTable

UNITS = ((3600, " h"), (60, " min"))  # seconds of each, the largest first
NAME_ALONE = re.compile(r"\(R\)| Processor\b| \(family.*")  # so that processors of one maker are one
CAPTION = (
    "What the runs took.",
    "From the manifests of finished runs, on the machines that they name, whatever else these were doing.",
    f"s/epoch: for {TRAINING_DIGITS:,} training examples (digits, or pairs of them).",
    "Where seeds of a cell trained at once, a run's time is its share of theirs, and its memory that of all of them.",
    "Cell: all finished runs, one after another.",
    "Evaluation: of all conditions of a run. Memory: the most of any run.",
    "Two figures are those of the fastest and the slowest run.",
)


@dataclass(frozen=True)
class Took:
    """What one run took: seconds, its share where others trained beside it; None where the manifest does not say."""

    dataset: str
    where: str
    threads: int | None
    precision: str
    at_once: int
    training: float
    epoch: float | None
    evaluation: float | None
    memory_mb: float | None


def training_table(results: Results) -> ExtraTable | None:
    """The table, or None if no manifest has a time."""
    wide, lines = [], []
    for task, variants in results.plan.tasks.items():
        for variant in variants:
            runs = [took for run in results.done(task, variant) if (took := _took(run)) is not None]
            if runs:
                wide.append(_row(results, task, variant, runs))
                lines.append(_line(task, variant, runs))
    if not wide:
        return None
    labels = ("at once", "s/epoch", "training a run", "cell", "evaluation a run", "memory, MB")
    names = (Column("variant", "name"), Column("task", "condition"), Column("on", "condition"))
    columns = [*names, Column("precision", "condition"), *(Column(label, "value") for label in labels)]
    table = WideTable("training", [*columns, Column("n", "count")], wide, [*CAPTION, *_of_what(results)])
    return ExtraTable("training", table, pd.DataFrame(lines))


def _took(run: Run) -> Took | None:
    manifest = run.manifest
    if not (manifest.seconds or 0) > 0:
        return None
    resolved, batch = manifest.resolved, (manifest.config.get("training") or {}).get("batch")
    at_once = _count(resolved.get("seeds_at_once")) or 1
    share = (manifest.seconds or 0) / at_once
    examples = (manifest.steps or 0) * (batch or 0)
    gpu, processor = manifest.machine.get("gpu"), str(manifest.machine.get("processor") or "")
    on_gpu = str(resolved.get("device", "")).startswith("cuda")
    # conditions that were scored together have the time of all of them
    evaluated = {of.seconds for of in (run.metrics | run.apart).values() if of.seconds is not None}
    return Took(
        dataset=manifest.dataset.name,
        where=str(gpu) if on_gpu and gpu else NAME_ALONE.sub("", processor),
        threads=None if on_gpu else _count(resolved.get("threads")),
        precision=str(resolved.get("precision") or NOTHING),
        at_once=at_once,
        training=share,
        epoch=share * TRAINING_DIGITS / examples if examples else None,
        evaluation=sum(evaluated) if evaluated else None,
        memory_mb=manifest.peak_memory_mb,
    )


def _row(results: Results, task: str, variant: str, runs: list[Took]) -> WideRow:
    title = results.plan.title(variant)
    cell, memory = sum(run.training for run in runs), _most(run.memory_mb for run in runs)
    names = [
        Entry(text, text) for text in (title, task, _where(runs), listing(sorted({run.precision for run in runs})))
    ]
    values = [
        _between(run.at_once for run in runs),
        _between(run.epoch for run in runs),
        _duration(run.training for run in runs),
        _duration([cell]),
        _duration(run.evaluation for run in runs),
        _between([memory and round(memory)]),
    ]
    return WideRow(variant, task, [*names, *values, Entry(str(len(runs)), len(runs))])


def _line(task: str, variant: str, runs: list[Took]) -> dict[str, object]:
    def average(values: Iterable[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return mean(found) if found else None

    return {
        "task": task,
        "dataset": listing(sorted({run.dataset for run in runs})),
        "variant": variant,
        "where": _where(runs),
        "precision": listing(sorted({run.precision for run in runs})),
        "n": len(runs),
        "seconds_per_epoch": average(run.epoch for run in runs),
        "seconds_per_run": average(run.training for run in runs),
        "seconds_per_cell": sum(run.training for run in runs),
        "evaluation_seconds_per_run": average(run.evaluation for run in runs),
        "peak_memory_mb": _most(run.memory_mb for run in runs),
    }


def _of_what(results: Results) -> list[str]:
    """Which data, and what each task's runs do with less than the paper's protocol: smaller models take less."""
    reduced = [f"{task}: {'; '.join(words)}" for task, words in results.plan.reductions.items() if words]
    return [f"Data: {results.plan.dataset.badge}.", f"Reductions: {'. '.join(reduced) if reduced else 'none'}."]


def _count(value: object) -> int | None:
    """A whole number above 0 as it stands in a manifest, which may be written by hand; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _where(runs: list[Took]) -> str:
    """`AMD EPYC, 1 or 2 threads`, `NVIDIA H200`."""
    machines = listing(sorted({run.where for run in runs if run.where})) or NOTHING
    threads = sorted({run.threads for run in runs if run.threads is not None})
    if not threads:
        return machines
    return f"{machines}, {' or '.join(map(str, threads))} thread{'' if threads == [1] else 's'}"


def _between(values: Iterable[float | None], size: float = 1, unit: str = "") -> Entry:
    """The lowest and highest of the values that are there, once where they read the same; sorted by their mean."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return Entry(NOTHING)
    ends = dict.fromkeys(_digits(value if size == 1 else value / size) for value in (found[0], found[-1]))
    return Entry(" to ".join(ends) + unit, mean(found))


def _duration(values: Iterable[float | None]) -> Entry:
    """Seconds as seconds, minutes or hours, all in the unit that suits the longest."""
    found = [value for value in values if value is not None]
    size, unit = next((known for known in UNITS if max(found, default=0) >= 3 * known[0]), (1, " s"))
    return _between(found, size, unit)


def _digits(value: float) -> str:
    """Three digits or more."""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
