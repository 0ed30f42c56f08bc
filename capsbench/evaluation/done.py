"""When a run is evaluated. No torch here: Snakemake's jobs ask before they import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capsbench.files import read_json
from capsbench.plan import Cell
from capsbench.plan.done import evaluation_source
from capsbench.plan.same_bits import earlier_sources
from capsbench.provenance import digest_of


def evaluation_digest(cell: Cell, manifest: dict[str, Any]) -> str:
    """Digest of all that decides a run's metrics: training, weights, options, the evaluation's source."""
    return _digest(cell, manifest, evaluation_source(cell))


def _digest(cell: Cell, manifest: dict[str, Any], source: str) -> str:
    return digest_of([manifest["digest"], manifest["weights"], cell.options.evaluation_options(), source])


def evaluation_digests(cell: Cell, manifest: dict[str, Any]) -> list[str]:
    """The digests that count: today's first, then those of earlier sources that give the run the same metrics."""
    now = evaluation_source(cell)
    return [_digest(cell, manifest, source) for source in (now, *earlier_sources("evaluation", now, manifest))]


def is_evaluated(folder: Path, cell: Cell, manifest: dict[str, Any]) -> bool:
    """Whether every condition of the task has metrics of one evaluation that counts for the run of that manifest."""
    return stored_evaluation(folder, cell, manifest) is not None


def stored_evaluation(folder: Path, cell: Cell, manifest: dict[str, Any]) -> str | None:
    """The digest, of `evaluation_digests`, that every condition's stored metrics have; None where there is no such."""
    found = []
    for condition in cell.options.conditions(cell.spec):
        try:
            metrics = read_json(folder / condition / "metrics.json")
        except (FileNotFoundError, ValueError):
            return None
        found.append(metrics.get("digest") if isinstance(metrics, dict) else None)
    same = (digest for digest in evaluation_digests(cell, manifest) if all(other == digest for other in found))
    return next(same, None)
