"""Table `ablation`: one choice changed, everything else kept, and what that does."""

from __future__ import annotations

from capsbench.report.against_reference import (
    INTERVALS,
    caption_of,
    compared,
    compared_frame,
    difference_words,
    factor_words,
    readable,
)
from capsbench.report.over_digits import over_digits
from capsbench.report.results import Results
from capsbench.report.wide import NOTHING, Column, Entry, ExtraTable, WideRow, WideTable, p_words, with_interval

WORDS = [
    "One choice changed against a reference row.",
    "What differs is read off the resolved configs. A row that differs in more than one factor says so; whatever a "
    "routing or a model brings with it goes under the choice that brought it.",
    f"Difference: the row's mean minus the reference's, with its {INTERVALS}",
    "Train-test gap: test error minus the error on the first training digits (10,000, or fewer where a reduction says "
    "so), unshifted.",
]
COLUMNS = [
    Column("variant", "name"),
    Column("task", "condition"),
    Column("against", "condition"),
    Column("what differs", "condition"),
    Column("here", "condition"),
    Column("there", "condition"),
    Column("measured", "condition"),
    Column("mean", "value"),
    Column("difference", "value"),
    Column("p (Holm)", "value"),
    Column("n", "count"),
]


def ablation_table(results: Results) -> ExtraTable | None:
    """The table, or None if the plan compares nothing."""
    rows = over_digits(results, compared(results, "ablation"))
    if not rows:
        return None
    wide = []
    for row in readable(results, rows):
        title = results.plan.title(row.row.variant)
        against = results.plan.title(row.row.reference) if row.row.reference else NOTHING
        texts = [row.task, against, *factor_words(row.row.differs), row.measured]
        entries = [
            Entry(title, title),
            *(Entry(text, text) for text in texts),
            Entry(with_interval(row.own, row.metric.unit), row.own.mean),
            Entry(difference_words(row), row.difference),
            Entry(p_words(row.p_holm), row.p_holm),
            Entry(f"{row.own.n}, {row.other.n}", row.own.n),
        ]
        wide.append(WideRow(row.row.variant, row.condition, entries))
    table = WideTable("ablation", COLUMNS, wide, caption_of(results, "ablation", WORDS))
    return ExtraTable("ablation", table, compared_frame(rows))
