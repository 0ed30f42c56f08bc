"""The differences of tables `ablation` and `ladder` over seeds and test digits, from stored predictions."""

from __future__ import annotations

from dataclasses import replace

from capsbench.plan.claims import CROSSED
from capsbench.report.against_reference import Compared, corrected
from capsbench.report.results import Results
from capsbench.report.statistics import Estimate, crossed
from capsbench.report.verdicts.digits import AnswerReader, NoAnswersError
from capsbench.report.verdicts.sides import side_of


def over_digits(results: Results, rows: list[Compared]) -> list[Compared]:
    """`rows` with `crossed`, as claims are judged, where both cells have two seeds and their answers to single images,
    and with `p_holm`.

    Predictions that cannot be read or are not those of the metrics become problems of `results`; their rows keep
    Welch's interval.
    """
    found: dict[int, Estimate | None] = {}
    for place in sorted({place for row in rows if (place := _place(row)) in CROSSED}):
        reader = AnswerReader(results)  # it holds every answer that it has read, so it is of one metric only
        for k, row in enumerate(rows):
            if _place(row) == place and row.welch is not None:
                found[k] = _crossed(results, row, reader)
    return corrected([replace(row, crossed=found.get(k)) for k, row in enumerate(rows)])


def _place(row: Compared) -> tuple[str, str, str]:
    return row.task, row.condition, row.metric.name


def _crossed(results: Results, row: Compared, reader: AnswerReader) -> Estimate | None:
    assert row.row.reference is not None  # Welch's difference is to it
    names = row.row.variant, row.row.reference
    own, other = (side_of(results, "compared", row.task, name, row.condition, row.metric.name) for name in names)
    try:
        return crossed(reader.scored(own), reader.scored(other))
    except NoAnswersError:
        return None
