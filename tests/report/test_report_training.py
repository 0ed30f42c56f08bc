"""The table `training`: what runs took, by their manifests."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import toy

from capsbench.report.collect import collect
from capsbench.report.formats import write_table
from capsbench.report.training_table import training_table
from capsbench.report.wide import ExtraTable

RESULTS = Path(__file__).resolve().parents[2] / "results"


def table_of(folder: Path) -> ExtraTable:
    made = training_table(collect(folder))
    assert made is not None
    return made


def entries(made: ExtraTable, variant: str, task: str = "mnist") -> dict[str, str]:
    """One row's texts by their headings."""
    (row,) = (row for row in made.table.rows if (row.variant, row.condition) == (variant, task))
    return {column.label: entry.text for column, entry in zip(made.table.columns, row.entries, strict=True)}


def change(folder: Path, variant: str, **keys: object) -> None:
    for manifest in (folder / "runs" / "mnist" / variant).glob("seed-*/manifest.json"):
        toy.change_json(manifest, **keys)


def test_a_row_is_a_cell_and_its_times_are_those_of_the_manifests(folder: Path, tmp_path: Path) -> None:
    change(folder, "cnn", seconds=96.0)
    made = table_of(folder)
    order = [(task, variant) for task, variants in toy.TASKS.items() for variant in variants]
    assert list(zip(made.frame["task"], made.frame["variant"], strict=True)) == order
    cnn = entries(made, "cnn")
    # 96 s for 960 steps of 128 are 46.9 s for 60,000; each condition of a run says 3.1 s, which is that of all together
    assert (cnn["s/epoch"], cnn["training a run"], cnn["cell"], cnn["n"]) == ("46.9", "96.0 s", "4.80 min", "3")
    assert (cnn["on"], cnn["precision"], cnn["at once"]) == ("AMD EPYC, 1 thread", "float32", "1")
    assert (cnn["evaluation a run"], cnn["memory, MB"]) == ("3.10 s", "812")
    line = made.frame.iloc[0]
    assert line["seconds_per_epoch"] == pytest.approx(96 * 60_000 / (960 * 128))
    assert (line["seconds_per_run"], line["seconds_per_cell"], line["n"]) == (96, 288, 3)
    caption = " ".join(made.table.caption)
    assert "Data: MNIST. Reductions: mnist: width 1/8; 3 of 5 seeds." in caption
    assert write_table(tmp_path, "training", made.frame, made.table)[0].read_text().startswith("task,dataset,variant,")


def test_conditions_that_were_scored_apart_have_each_its_time(folder: Path) -> None:
    for metrics in (folder / "runs/mnist/cnn").glob("seed-*/attacked/metrics.json"):
        toy.change_json(metrics, seconds=10.0)
    assert entries(table_of(folder), "cnn")["evaluation a run"] == "13.1 s"


def test_seeds_that_trained_at_once_share_their_time(folder: Path) -> None:
    resolved = {"precision": "float32", "threads": 1, "device": "cuda:0", "seeds_at_once": 3}
    change(folder, "cnn", seconds=300.0, resolved=resolved, machine={"processor": "AMD EPYC", "gpu": "NVIDIA H200"})
    cnn = entries(table_of(folder), "cnn")
    assert (cnn["on"], cnn["at once"], cnn["training a run"], cnn["cell"]) == ("NVIDIA H200", "3", "100 s", "5.00 min")


def test_runs_that_differ_are_given_from_the_fastest_to_the_slowest(folder: Path) -> None:
    toy.change_json(folder / "runs/mnist/cnn/seed-0/manifest.json", seconds=60.0)
    toy.change_json(folder / "runs/mnist/cnn/seed-1/manifest.json", seconds=90.0, resolved={"threads": 2})
    toy.change_json(folder / "runs/mnist/cnn/seed-2/manifest.json", seconds=600.0)
    cnn = entries(table_of(folder), "cnn")
    assert (cnn["training a run"], cnn["cell"]) == ("1.00 to 10.0 min", "12.5 min")
    assert cnn["on"] == "AMD EPYC, 1 or 2 threads"


def test_what_no_manifest_says_is_left_out(folder: Path) -> None:
    odd = {"seeds_at_once": "five", "threads": "two", "device": 3}
    change(folder, "cnn", resolved=odd, config={}, peak_memory_mb=None, machine={})
    cnn = entries(table_of(folder), "cnn")
    assert (cnn["on"], cnn["s/epoch"], cnn["at once"], cnn["memory, MB"]) == ("–", "–", "1", "–")
    for seconds in (None, 0.0, -3.0, float("nan")):
        change(folder, "cnn", seconds=seconds)
        assert "cnn" not in set(table_of(folder).frame.query("task == 'mnist'")["variant"])
    for manifest in (folder / "runs").rglob("manifest.json"):
        toy.change_json(manifest, seconds=None)
    assert training_table(collect(folder)) is None


def test_the_stored_table_of_results_paper_follows_from_its_runs() -> None:
    ours, theirs = table_of(RESULTS / "paper").frame, pd.read_csv(RESULTS / "paper" / "tables" / "training.csv")
    assert list(ours.columns) == list(theirs.columns)
    for column in ours.columns:
        if pd.api.types.is_numeric_dtype(theirs[column]):
            assert ours[column].tolist() == pytest.approx(theirs[column].tolist(), nan_ok=True)
        else:
            assert ours[column].tolist() == theirs[column].tolist()
