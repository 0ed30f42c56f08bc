"""When a run is evaluated. No torch here: Snakemake's jobs ask before they import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capsbench.files import read_json, read_record
from capsbench.plan import Cell
from capsbench.plan.done import evaluation_source
from capsbench.plan.same_bits import same_sources
from capsbench.provenance import digest_of

WITHOUT_ANSWERS = ("matched", "attacked", "routing")  # conditions whose evaluation stores no predictions.npz


def evaluation_digest(cell: Cell, manifest: dict[str, Any]) -> str:
    """Digest of all that decides a run's metrics: training, weights, options, the evaluation's source."""
    return _digest(cell, manifest, evaluation_source(cell))


def stored_digest(folder: Path, cell: Cell, manifest: dict[str, Any]) -> str:
    """The digest that the metrics in a run's folder must have: that of today's evaluation.

    Or the one that they have, as far as they are there, where it is of a source that was shown to give the same bits
    (`same_bits`).
    """
    others = same_sources(evaluation_source(cell), manifest, "evaluation")
    good = [_digest(cell, manifest, source) for source in others]
    stored = [read_record(folder / condition / "metrics.json").get("digest") for condition in _conditions(cell)]
    found = [digest for digest in stored if digest is not None]
    same = (one for one in good if found and all(digest == one for digest in found))
    return next(same, evaluation_digest(cell, manifest))


def is_evaluated(folder: Path, cell: Cell, manifest: dict[str, Any]) -> bool:
    """Whether every condition of the task has metrics of today's evaluation, or of one that gives the same bits.

    And the answers that they were counted from, without which no claim about test digits is judged.
    """
    digest = stored_digest(folder, cell, manifest)
    for condition in _conditions(cell):
        try:
            metrics = read_json(folder / condition / "metrics.json")
        except (FileNotFoundError, ValueError):
            return False
        if not isinstance(metrics, dict) or metrics.get("digest") != digest:
            return False
        if not has_its_answers(folder / condition, metrics.get("status")):
            return False
    return True


def has_its_answers(folder: Path, status: object) -> bool:
    """Whether a condition's folder has the answers of every image, if its evaluation, of this status, stores them."""
    stores_none = status == "not matched" or folder.name in WITHOUT_ANSWERS
    return stores_none or (folder / "predictions.npz").is_file()


def _digest(cell: Cell, manifest: dict[str, Any], source: str) -> str:
    return digest_of([manifest["digest"], manifest["weights"], cell.options.evaluation_options(), source])


def _conditions(cell: Cell) -> list[str]:
    return list(cell.options.conditions(cell.spec))
