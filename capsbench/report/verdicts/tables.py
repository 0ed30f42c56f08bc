"""Claims and verdicts as tables/claims.{csv,md,tex}: one readable table a family, one CSV of all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from capsbench.errors import counted
from capsbench.report.captions import budget_words, listing
from capsbench.report.formats import write_table
from capsbench.report.results import Results
from capsbench.report.verdicts.judged import Judged, Judgement
from capsbench.report.verdicts.words import UNPUBLISHED, claimed, ours, shown_value
from capsbench.report.wide import Column, Entry, WideRow, WideTable, p_words

CSV_COLUMNS = [
    "id", "family", "kind", "sentence", "source", "verdict", "why", "dataset", "budget", "condition", "metric", "unit",
    "claimed", "baseline", "n", "effect", "ci_low", "ci_high", "p", "p_holm", "adjusted_low", "adjusted_high", "paper",
    "delta", "seeds_needed", "three_trials",
]  # fmt: skip
COLUMNS = [
    Column("claim and source", "text"), Column("verdict", "name"), Column("ours", "value"), Column("claimed", "paper"),
    Column("p (Holm)", "value"), Column("n", "count"), Column("why", "text"),
]  # fmt: skip


def write_tables(folder: Path, judged: Judged, results: Results) -> list[Path]:
    """Write claims.csv, claims.md and claims.tex into `folder`; returns their paths."""
    families = sorted(judged.claims.families, key=lambda family: not _is_judged(judged, family))
    tables = [_table(judged, results, family) for family in families]
    return write_table(folder, "claims", csv_frame(judged, results), *tables, above=f"{headline(judged)}\n\n")


def _is_judged(judged: Judged, family: str) -> bool:
    """Whether any claim of a family has a verdict: such families come first."""
    return any(j.claim.family == family and j.verdict != "not run" for j in judged.judgements)


def headline(judged: Judged) -> str:
    """`107 claims: 9 reproduced, ...`, and whether the claims were edited after runs were trained."""
    counts = listing(f"{count} {verdict}" for verdict, count in judged.counts().items())
    return f"{counted(len(judged.judgements), 'claim')}: {counts}." + (f" {judged.edited}" if judged.edited else "")


def csv_frame(judged: Judged, results: Results) -> pd.DataFrame:
    """One row a claim with the columns CSV_COLUMNS; what cannot be had is an empty cell."""
    rows = []
    for judgement in judged.judgements:
        said = judgement.as_json(results, ())
        cells = {cell["role"]: f"{cell['task']}/{cell['variant']}" for cell in said["cells"]}
        trials = said["three_trials"]["share"] if said["three_trials"] else None
        badge = said["dataset"]["badge"] if said["dataset"] else None
        rows.append({**said, **cells, "dataset": badge, "three_trials": trials})
    frame = pd.DataFrame(rows)
    return frame.reindex(columns=CSV_COLUMNS)


def _table(judged: Judged, results: Results, family: str) -> WideTable:
    found = [judgement for judgement in judged.judgements if judgement.claim.family == family]
    data = list(dict.fromkeys(side.badge for judgement in found for side in judgement.sides if side.badge))
    caption = [f"{judged.claims.families[family]}."]
    caption += [f"Data: {listing(data)}."] if data else []
    tasks = {side.task for judgement in found for side in judgement.sides}
    budget = budget_words(results, next(iter(tasks)) if len(tasks) == 1 else None)
    caption += [f"Budget: {budget}.", "Ours: our value with its 95 % interval, cut off at 0 and 100 %."]
    if any(judgement.claim.source.startswith(UNPUBLISHED) for judgement in found):
        caption.append(f"{UNPUBLISHED}: one of our own, from texts that are not published and cannot be cited.")
    tested = sum(judgement.claim.kind != "value" for judgement in found)
    if any(judgement.p is not None for judgement in found):
        caption.append(f"Holm over the {counted(tested, 'claim')} of the family, whether run or not.")
    return WideTable(f"claims-{family}", COLUMNS, [_row(judgement) for judgement in found], caption)


def _row(judgement: Judgement) -> WideRow:
    claim = judgement.claim
    p = judgement.p_holm
    said = f"{claim.sentence} – {claim.source}"
    entries = [
        Entry(said, said),
        Entry(judgement.verdict, judgement.verdict),
        Entry(ours(judgement), shown_value(judgement)),
        Entry(claimed(judgement), claim.expected),
        Entry(p_words(p), p),
        Entry(str(judgement.n), judgement.n),
        Entry(judgement.why, judgement.why),
    ]
    return WideRow(said, claim.condition or "", entries)
