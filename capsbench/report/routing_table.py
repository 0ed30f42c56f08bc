"""Table `routing`: what the couplings of trained models look like, and whether more passes change an answer."""

from __future__ import annotations

import pandas as pd

from capsbench.report.captions import MEANS, conditions_in_words, listing, range_of
from capsbench.report.published import TableCell
from capsbench.report.results import Results
from capsbench.report.statistics import summarise
from capsbench.report.tables import Metric, Row, csv_frame
from capsbench.report.wide import NOTHING, Column, Entry, ExtraTable, WideRow, WideTable, with_interval

TASK, CONDITION = "mnist", "routing"
SHOWN = (
    Metric("coupling_entropy", "entropy", ""),
    Metric("hard_fraction", "decided", "%"),
    Metric("coupling_spread", "spread over images", ""),
    Metric("coupling_spread_within", "spread in an image", ""),
    Metric("mutual_information", "class", "bits"),
    Metric("dead_capsules", "dead", "%"),
    Metric("error", "error", "%"),
    Metric("flips_r1", "flips r=1", "%"),
    Metric("flips_r10", "flips r=10", "%"),
    Metric("flips_r100", "flips r=100", "%"),
)
WORDS = (
    "Couplings c_ij as shares of each lower capsule i, at the number of passes of training.",
    "Entropy: divided by ln of the number of classes, 1 is uniform, 0 is hard.",
    "Decided: lower capsules of which one output has more than 0.99.",
    "Spread over images: standard deviation of a c_ij from image to image, 0 where the image does not matter;",
    "in an image: from lower capsule to lower capsule.",
    "Class: bits that the favourite output of a lower capsule tells of the image's class, less what it tells of",
    "shuffled labels.",
    "Dead: lower capsules that on no image reach 1 % of the longest one's length.",
    "Flips: images whose answer is another when r passes are made on the same weights.",
)


def caption_words(results: Results, names: list[str]) -> list[str]:
    """What is said under the table and the figure: images, what some variants have not, data, budget, seeds."""
    badge = results.plan.dataset.badge
    words = [f"Data: {badge}, the first {range_of(int(n) for n in results.apart['images'])} test images."]
    frame = results.apart
    without = {
        "a number of passes to change": [v for v in names if not _has(frame, v, "flips_r100")],
        "lower capsules to look at": [v for v in names if not _has(frame, v, "dead_capsules")],
        "logits from pass to pass": [v for v in names if _has(frame, v, "flips_r100") and not has_trace(results, v)],
    }
    words += [f"Without {what}: {listing(which)}." for what, which in without.items() if which]
    return words + conditions_in_words(results, TASK)[1:]


def has_trace(results: Results, variant: str) -> bool:
    """Whether a variant's routing told its logits pass by pass."""
    return any((run.folder / CONDITION / "logits.csv").exists() for run in results.done(TASK, variant))


def _has(frame: pd.DataFrame, variant: str, metric: str) -> bool:
    return bool(((frame["variant"] == variant) & (frame["metric"] == metric)).any())


def variants_looked_at(results: Results) -> list[str]:
    """The variants with diagnostics of routing, in the plan's order."""
    found = set(results.apart["variant"])
    return [variant for variant in results.plan.tasks.get(TASK, []) if variant in found]


def routing_table(results: Results) -> ExtraTable | None:
    """The table, or None if no run was looked at."""
    variants = variants_looked_at(results)
    if not variants:
        return None
    rows = [row for variant in variants for row in _rows(results, variant)]
    present = {row.cell.metric for row in rows}
    shown = [metric for metric in SHOWN if metric.name in present]
    columns = [Column("variant", "name"), *(Column(metric.heading, "value") for metric in shown)]
    columns += [Column("n", "count"), Column("failed", "count")]
    wide = [_wide(results, variant, [r for r in rows if r.cell.variant == variant], shown) for variant in variants]
    caption = ["Routing under the microscope.", *WORDS, *caption_words(results, variants), MEANS]
    return ExtraTable("routing", WideTable("routing", columns, wide, caption), csv_frame(rows))


def _rows(results: Results, variant: str) -> list[Row]:
    frame = results.apart[results.apart["variant"] == variant]
    failed = results.count("failed", TASK, variant)
    return [
        Row(
            TableCell(TASK, variant, CONDITION, str(metric)),
            str(group["dataset"].iloc[0]),
            str(group["unit"].iloc[0]),
            failed,
            0,
            summarise(group["value"].tolist()),
            None,
            None,
        )
        for metric, group in frame.groupby("metric", sort=False)
    ]


def _wide(results: Results, variant: str, rows: list[Row], shown: list[Metric]) -> WideRow:
    found = {row.cell.metric: row for row in rows}
    title = results.plan.title(variant)
    entries = [Entry(title, title)]
    for metric in shown:
        row = found.get(metric.name)
        entries.append(Entry(NOTHING) if row is None else Entry(with_interval(row.summary, row.unit), row.summary.mean))
    n, failed = max(row.summary.n for row in rows), rows[0].n_failed
    return WideRow(variant, CONDITION, [*entries, Entry(str(n), n), Entry(str(failed), failed)])
