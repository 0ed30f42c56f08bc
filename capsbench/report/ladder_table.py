"""Table `ladder`: from the CNN to CapsNet one component at a time, with what each rung has and costs."""

from __future__ import annotations

from capsbench.report.against_reference import (
    INTERVALS,
    Compared,
    caption_of,
    compared,
    compared_frame,
    difference_words,
    factor_words,
    readable,
)
from capsbench.report.captions import range_of
from capsbench.report.over_digits import over_digits
from capsbench.report.results import Results
from capsbench.report.wide import NOTHING, Column, Entry, ExtraTable, WideRow, WideTable, p_words, with_interval

OWN_TRUNK = (
    "The two-digit task's models have one small trunk of their own: no decoder, no convolutions to exchange, and one "
    "W for all places, since they take images of any size."
)
WORDS = [
    "What buys the gain: each rung has everything the rung before it has, plus one component.",
    "What changed is read off the resolved configs. A rung that changes more than one factor says so, and a new model "
    "brings its own layers (a CNN's trunk keeps the ReLU after the second convolution, where CapsNet has none; where "
    "scores are lengths of vectors, the decoder reads those vectors, after the dropout).",
    f"Gain: the rung's mean minus that of the rung before, with its {INTERVALS}",
    "FLOPs: for one image's forward pass, by torch's counter, which counts matrix products and convolutions; routing's "
    "sums are elementwise and not counted, except where they are computed as matrix products, as dynamic routing's are "
    "on a CPU.",
]
COLUMNS = [
    Column("rung", "name"),
    Column("task", "condition"),
    Column("what changed", "condition"),
    Column("to", "condition"),
    Column("parameters", "count"),
    Column("MFLOPs", "count"),
    Column("measured", "condition"),
    Column("mean", "value"),
    Column("gain", "value"),
    Column("p (Holm)", "value"),
    Column("n", "count"),
]


def cost_of(results: Results, row: Compared) -> tuple[int | None, int | None]:
    """Parameters and FLOPs that a rung's finished runs recorded; None before one is finished."""
    runs = results.done(row.task, row.row.variant)
    return (runs[0].manifest.parameters, runs[0].manifest.flops) if runs else (None, None)


def ladder_caption(results: Results, gains: bool = True) -> list[str]:
    """What is said under table and figure; the first sentence is the title. `gains`: whether they are shown."""
    own = [OWN_TRUNK] if "two_digit" in results.plan.comparisons.get("ladder", {}) else []
    words = [words for words in WORDS + own if gains or not words.startswith("Gain:")]
    return caption_of(results, "ladder", words)


def ladder_table(results: Results) -> ExtraTable | None:
    """The table, or None if the plan has no ladder."""
    rows = over_digits(results, compared(results, "ladder"))
    if not rows:
        return None
    wide = []
    for row in [row for row in readable(results, rows) if row.metric.headline]:
        title = results.plan.title(row.row.variant)
        factor, value, _ = factor_words(row.row.differs)
        parameters, flops = cost_of(results, row)
        entries = [
            Entry(title, title),
            *(Entry(text, text) for text in (row.task, factor, value)),
            Entry(range_of([parameters]) or NOTHING, parameters),
            Entry(NOTHING if flops is None else f"{flops / 1e6:,.1f}", flops),
            Entry(row.measured, row.measured),
            Entry(with_interval(row.own, row.metric.unit), row.own.mean),
            Entry(difference_words(row), row.difference),
            Entry(p_words(row.p_holm), row.p_holm),
            Entry(str(row.own.n), row.own.n),
        ]
        wide.append(WideRow(row.row.variant, row.condition, entries))
    frame = compared_frame(rows)
    costs = [cost_of(results, row) for row in rows]
    frame["parameters"] = [parameters for parameters, _ in costs]
    frame["flops"] = [flops for _, flops in costs]
    return ExtraTable("ladder", WideTable("ladder", COLUMNS, wide, ladder_caption(results)), frame)
