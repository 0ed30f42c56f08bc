"""When a run is evaluated. No torch here: Snakemake's jobs ask before they import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capsbench.files import read_json
from capsbench.plan import Cell
from capsbench.plan.done import evaluation_source
from capsbench.provenance import digest_of


def evaluation_digest(cell: Cell, manifest: dict[str, Any]) -> str:
    """Digest of all that decides a run's metrics: training, weights, options, the evaluation's source."""
    return digest_of(
        [manifest["digest"], manifest["weights"], cell.options.evaluation_options(), evaluation_source(cell)]
    )


def is_evaluated(folder: Path, cell: Cell, digest: str) -> bool:
    """Whether every condition of the task has metrics of this very evaluation."""
    for condition in cell.options.conditions(cell.spec):
        try:
            metrics = read_json(folder / condition / "metrics.json")
        except (FileNotFoundError, ValueError):
            return False
        if not isinstance(metrics, dict) or metrics.get("digest") != digest:
            return False
    return True
