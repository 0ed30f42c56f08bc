"""A tiny plan through Snakemake: every file is there, nothing is done twice, and only what is missing is made again."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

COLUMNS = [
    "task",
    "dataset",
    "variant",
    "condition",
    "metric",
    "unit",
    "n",
    "n_failed",
    "mean",
    "sd",
    "ci_low",
    "ci_high",
]
DRAW = "Draw tables, figures and the report"
VARIANTS = ("cnn", "capsnet-r3-recon", "diverging")
EVERYTHING = {"Check the data", DRAW, *(f"{word} mnist/{name}" for word in ("Train", "Evaluate") for name in VARIANTS)}


def test_a_run_makes_every_file_of_the_results_format(finished, clone) -> None:
    assert finished.said.jobs == EVERYTHING
    folder = finished.place.results
    files = ["plan.json", "data.json", "report.html"]
    files += [f"tables/mnist.{ending}" for ending in ("csv", "md", "tex")]
    files += [f"figures/{name}.{ending}" for name in ("training_curves", "mnist_error") for ending in ("png", "pdf")]
    run = ["manifest.json", "history.csv", "weights.safetensors", "test/metrics.json", "test/predictions.npz"]
    files += [f"runs/mnist/{variant}/seed-0/{name}" for variant in ("cnn", "capsnet-r3-recon") for name in run]
    capsules = "runs/mnist/capsnet-r3-recon/seed-0/test"
    files += [f"{capsules}/reconstructions.npz", f"{capsules}/perturbations.npz"]
    missing = [name for name in files if not (folder / name).is_file() or not (folder / name).stat().st_size]
    assert not missing
    assert not (folder / "runs/mnist/cnn/seed-0/checkpoint").exists()

    table = pd.read_csv(folder / "tables" / "mnist.csv")
    assert list(table.columns) == [*COLUMNS, "paper"]
    errors = table[table["metric"] == "error"].set_index("variant")
    assert set(errors.index) == set(VARIANTS)
    for variant, row in errors.drop("diverging").iterrows():
        metrics = json.loads((folder / f"runs/mnist/{variant}/seed-0/test/metrics.json").read_text())
        assert row["mean"] == pytest.approx(metrics["metrics"]["error"]["value"])
        assert (row["n"], row["n_failed"], row["unit"]) == (1, 0, "%")

    manifest = json.loads((folder / "runs/mnist/cnn/seed-0/manifest.json").read_text())
    assert manifest["git"]["commit"] is None  # the copied source ran, not the clone it was copied from
    plan = json.loads((folder / "plan.json").read_text())
    assert {run["config"] for run in plan["runs"]} >= {manifest["digests"]["config"]}


def test_a_loss_that_is_not_finite_is_a_result(finished, done) -> None:
    manifest = json.loads((done.results / "runs/mnist/diverging/seed-0/manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "not finite" in manifest["reason"]
    assert not (done.results / "runs/mnist/diverging/seed-0/test").exists()
    table = pd.read_csv(done.results / "tables" / "mnist.csv").set_index("variant")
    row = table.loc["diverging"]
    assert (row["metric"], row["n"], row["n_failed"]) == ("error", 0, 1)
    assert pd.isna(row["mean"])
    for text in (finished.said.text, (done.results / "report.html").read_text()):
        assert manifest["reason"] in text

    before = done.manifests()
    said = done.capsbench("run", "tiny.yaml")
    assert said.code == 3
    assert "Nothing to be done" in said.text
    assert "A rate at which no loss stays finite" in said.out
    assert "report.html" in said.out
    assert done.manifests() == before


def test_the_terminal_shows_what_is_made_and_not_how(finished) -> None:
    text = finished.said.text
    assert "mnist/cnn seed 0: done after 4 steps" in text
    assert "mnist/capsnet-r3-recon seed 0, test: error" in text
    assert "8 of 9 steps" in text
    assert "reason:" not in text
    assert "Reason:" not in text
    for task in ("train/mnist/cnn", "evaluate/mnist/cnn", "report", "data"):
        assert (finished.place.results / "logs" / f"{task}.log").read_text()
    # who trained it had torch and the data in memory and evaluated it too
    assert "mnist/cnn seed 0, test: error" in (finished.place.results / "logs/train/mnist/cnn.log").read_text()
    evaluated = (finished.place.results / "logs/evaluate/mnist/cnn.log").read_text()
    assert evaluated == "mnist/cnn seed 0: evaluated already\n"


def test_again_nothing_is_done(done) -> None:
    before = done.manifests()
    said = done.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0
    assert "Nothing to be done" in said.text
    assert said.jobs == set()
    assert done.manifests() == before


def test_a_deleted_manifest_makes_that_run_again_and_no_other(done) -> None:
    before = done.manifests()
    weights = (done.results / "runs/mnist/cnn/seed-0/weights.safetensors").read_bytes()
    (done.results / "runs/mnist/cnn/seed-0/manifest.json").unlink()
    said = done.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert said.jobs == {"Train mnist/cnn", "Evaluate mnist/cnn", DRAW}
    after = done.manifests()
    assert after.keys() == before.keys()
    assert {key for key in after if after[key] != before[key]} == {"mnist/cnn/seed-0"}
    assert (done.results / "runs/mnist/cnn/seed-0/weights.safetensors").read_bytes() == weights
    assert "evaluated already" in said.text  # the same weights: their metrics still hold


@pytest.mark.parametrize(
    ("file", "jobs"),
    [
        (
            "runs/mnist/capsnet-r3-recon/seed-0/manifest.json",
            {"Train mnist/capsnet-r3-recon", "Evaluate mnist/capsnet-r3-recon", DRAW},
        ),
        ("runs/mnist/cnn/seed-0/test/metrics.json", {"Evaluate mnist/cnn", DRAW}),
        ("cells/reported.json", {DRAW}),
    ],
)
def test_a_truncated_file_is_made_again(done, file: str, jobs: set[str]) -> None:
    path = done.results / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert done.would_run() == jobs


def test_a_report_is_drawn_again_when_predictions_are_damaged_and_when_they_are_back(done) -> None:
    path = done.results / "runs/mnist/cnn/seed-0/test/predictions.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    said = done.snakemake("--configfile", "tiny.yaml")
    assert (said.code, said.jobs) == (0, {DRAW}), said.text
    assert done.would_run() == set()
    said = done.capsbench("run", "tiny.yaml")  # nothing to do, and yet not all is well
    assert (said.code, said.jobs) == (2, set()), said.text
    assert "predictions.npz" in said.out
    assert "remove its metrics.json and evaluate the run again" in " ".join(said.out.split())
    assert "1 file of these results cannot be read" in said.err
    path.write_bytes(whole)
    assert done.would_run() == {DRAW}


@pytest.mark.parametrize("file", ["report.html", "tables/mnist.tex", "figures/training_curves.pdf"])
def test_a_deleted_output_is_only_drawn_again(done, file: str) -> None:
    (done.results / file).unlink()
    assert done.would_run() == {DRAW}


def test_a_deleted_report_is_drawn_again(done) -> None:
    before = done.manifests()
    (done.results / "report.html").unlink()
    said = done.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert said.jobs == {DRAW}
    assert (done.results / "report.html").stat().st_size > 10_000
    assert done.manifests() == before
    assert done.would_run() == set()


@pytest.mark.parametrize(
    ("options", "is_told"), [(["--dryrun"], False), (["--summary"], True), (["--until", "data"], True)]
)
def test_a_run_that_is_told_to_make_less_shows_no_report_and_counts_no_failed_runs(done, options, is_told) -> None:
    (done.results / "report.html").unlink()
    said = done.capsbench("run", "tiny.yaml", *options)
    assert said.code == 0, said.text
    assert not re.search(r"^report: ", said.out, re.MULTILINE)
    assert ("Snakemake ended without making the report, since" in said.out) is is_told
    assert not (done.results / "report.html").exists()
