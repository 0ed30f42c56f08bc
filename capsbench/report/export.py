"""Results that leave: one tidy table of all metrics as CSV and Parquet, and an RO-Crate with manifests."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd

from capsbench.files import whole_file, write_text
from capsbench.report.crate import write_crate
from capsbench.report.results import Results, Run
from capsbench.report.tables import csv_text

PROBLEM_COLUMNS = ["kind", "task", "variant", "seed", "condition", "file", "reason"]


def export(results: Results, folder: Path) -> list[Path]:
    """Write metrics.csv, metrics.parquet, left-out.csv and <plan>.crate.zip into `folder`; returns their paths.

    The same results give the same bytes. Runs that do not count are in left-out.csv, with the reason, and nowhere else.
    """
    metrics, problems = tidy_metrics(results), left_out(results)
    paths = [folder / "metrics.csv", folder / "metrics.parquet", folder / "left-out.csv"]
    write_text(paths[0], csv_text(metrics))
    _write_parquet(paths[1], metrics)
    write_text(paths[2], csv_text(problems))
    crate = folder / f"{results.plan.name}.crate.zip"
    write_crate(crate, results, [paths[0], paths[2]])
    return [*paths, crate]


def tidy_metrics(results: Results) -> pd.DataFrame:
    """One row per run x condition x metric of the runs that count, with what the run was and what it was made with.

    Diagnostics, such as the condition `routing`, come after the answers.
    """
    parts = [part for part in (results.frame, results.apart) if len(part)]
    frame = pd.concat(parts, ignore_index=True) if parts else results.frame.copy()
    runs = [results.runs[key] for key in zip(frame["task"], frame["variant"], frame["seed"], strict=True)]  # type: ignore[index]
    manifests = [run.manifest for run in runs]
    frame.insert(0, "plan", results.plan.name)
    frame.insert(1, "budget", results.plan.budget)
    frame["reductions"] = ["; ".join(_reductions(results, run)) for run in runs]
    frame["parameters"] = pd.array([m.parameters for m in manifests], dtype="Int64")
    frame["steps"] = pd.array([m.steps for m in manifests], dtype="Int64")
    frame["seconds"] = pd.array([m.seconds for m in manifests], dtype="Float64")
    frame["peak_memory_mb"] = pd.array([m.peak_memory_mb for m in manifests], dtype="Float64")
    frame["device"] = [_text(m.resolved.get("device")) for m in manifests]
    frame["precision"] = [_text(m.resolved.get("precision")) for m in manifests]
    frame["gpu"] = [_text(m.machine.get("gpu")) for m in manifests]
    frame["torch"] = [_text(m.versions.get("torch")) for m in manifests]
    frame["commit"] = [_text(m.git.commit) for m in manifests]
    frame["dirty"] = pd.array([m.git.dirty for m in manifests], dtype="boolean")  # files differed from the commit
    frame["config_digest"] = [_text(m.digests.get("config")) for m in manifests]
    frame["weights_digest"] = [_text(m.weights) for m in manifests]
    return frame


def _reductions(results: Results, run: Run) -> list[str]:
    """What a run's cell does with less by plan.json; where that does not say it, what the run's own plan said.

    A run may have been trained for another plan that has the same row, with more seeds or fewer.
    """
    said = results.plan.reduced.get(f"{run.key.task}/{run.key.variant}")
    return run.manifest.reductions if said is None else [reduced.words for reduced in said]


def left_out(results: Results) -> pd.DataFrame:
    """Every problem of the results, one row each."""
    rows = [[getattr(problem, name) for name in PROBLEM_COLUMNS] for problem in results.problems]
    frame = pd.DataFrame(rows, columns=PROBLEM_COLUMNS)
    frame["seed"] = frame["seed"].astype("Int64")
    return frame


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """The same table; strings as UTF-8, numbers that may be missing as nullable ones."""
    texts = [name for name, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    with whole_file(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas, about how fastparquet asks it
        import fastparquet

        fastparquet.write(
            str(temporary), frame, compression="ZSTD", write_index=False, object_encoding=dict.fromkeys(texts, "utf8")
        )
