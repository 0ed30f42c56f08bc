"""Tuned rows and axes through Snakemake: tuned before they are trained, one job a row, nothing done twice."""

from __future__ import annotations

import json

import pandas as pd
import pytest

PLAN = """
name: tiny
about: A tuned row, two axes, an ablation and a ladder.
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
cost: false
training: {steps: 3, batch: 16, precision: float32}
tuning: {steps: 2, held_out: 50}
tasks:
  mnist:
    variants: [cnn, capsnet-r3]
    test_images: 20
    routing_images: 0
    tuned: [cnn]
    axes: {per_class: {values: [2], variants: [cnn]}, iterations: {values: [1], variants: [capsnet-r3]}}
    reference: capsnet-r3
    ladder: [cnn, capsnet-r3+r1, capsnet-r3]
"""
ROWS = ["cnn", "cnn+tuned", "cnn+n2", "capsnet-r3", "capsnet-r3+r1"]


def test_a_variant_that_is_called_as_another_task_s_tuned_row_waits_for_no_tuning(place) -> None:
    own = "variants: {mine: {base: cnn}, mine+tuned: {base: cnn}}\n"
    affnist = "  affnist: {variants: [mine+tuned], test_images: 20, held_out: 100, probe_images: 20}\n"
    plan = PLAN.replace("variants: [cnn,", "variants: [mine, cnn,").replace("tuned: [cnn]", "tuned: [mine]")
    (place.folder / "tiny.yaml").write_text(plan.replace("tasks:\n", f"{own}tasks:\n{affnist}"))
    jobs = place.would_run()
    assert {job for job in jobs if job.startswith("Tune")} == {"Tune mnist/mine+tuned"}
    assert "Train affnist/mine+tuned" in jobs


@pytest.mark.slow
def test_a_plan_with_tuned_rows_and_axes_runs_whole_and_only_once(place) -> None:
    (place.folder / "tiny.yaml").write_text(PLAN)
    early = place.capsbench("train", "tiny.yaml", "--variant", "cnn+tuned")
    assert early.code == 2
    assert "mnist/cnn+tuned has no learning rate yet; run `capsbench tune tiny.yaml" in early.text

    said = place.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert "Tune mnist/cnn+tuned" in said.jobs
    assert said.text.index("Tune mnist/cnn+tuned") < said.text.index("Train mnist/cnn+tuned")
    assert {f"Train mnist/{row}" for row in ROWS} < said.jobs

    choice = json.loads((place.results / "tuning/mnist/cnn.json").read_text())
    assert len(choice["grid"]) == 9
    config = json.loads((place.results / "runs/mnist/cnn+tuned/seed-0/manifest.json").read_text())["config"]["training"]
    assert {key: config[key] for key in choice["chosen"]} == choice["chosen"]
    assert "Chosen: cnn+tuned" in (place.results / "tables/mnist.md").read_text()

    table = pd.read_csv(place.results / "tables/ablation.csv").set_index(["variant", "metric"])
    assert table.loc[("capsnet-r3+r1", "error"), "factor"] == "passes of routing"
    assert table.loc[("cnn+n2", "error"), ["value", "reference_value", "reference"]].tolist() == ["2", "all", "cnn"]
    assert table.loc[("cnn+tuned", "error"), "reference"] == "cnn"
    assert table["n"].eq(1).all()
    assert table.xs("train_test_gap", level="metric")["mean"].notna().all()
    ladder = pd.read_csv(place.results / "tables/ladder.csv")
    assert ladder["flops"].gt(0).all()
    for figure in ("ladder", "axes"):
        assert (place.results / f"figures/{figure}.png").stat().st_size > 10_000

    assert place.would_run() == set()
    (place.results / "tuning/mnist/cnn.json").unlink()
    lost = place.would_run()
    assert lost >= {"Tune mnist/cnn+tuned", "Train mnist/cnn+tuned"}
    assert not any(job.endswith(("mnist/cnn", "+n2", "capsnet-r3", "+r1")) for job in lost)
    again = place.capsbench("tune", "tiny.yaml", "--variant", "cnn")
    assert again.code == 0, again.text
    assert json.loads((place.results / "tuning/mnist/cnn.json").read_text()) == choice
    assert "step 2 of 2" not in again.text  # every trial's figure was there


@pytest.mark.slow
def test_work_leaves_a_folder_whose_tuned_rows_are_the_plan_s(place) -> None:
    """plan.json then says what tuning chose: the folder alone, as an archive brings it, has its rows in the tables."""
    (place.folder / "tiny.yaml").write_text(PLAN)
    said = place.capsbench("work", "tiny.yaml", "--variant", "cnn+tuned")
    assert said.code == 0, said.text
    said = place.capsbench("report", place.results)
    assert said.code == 0, said.text
    assert "another config" not in said.text
    table = pd.read_csv(place.results / "tables/mnist.csv").set_index(["variant", "metric"])
    assert table.loc[("cnn+tuned", "error"), "n"] == 1
