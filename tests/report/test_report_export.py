"""Results that leave: the same numbers in CSV and Parquet, a crate of what it says, always the same bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import fastparquet
import numpy as np
import pandas as pd
import pytest
import toy
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.errors import ResourceError
from capsbench.report import Report, build_report
from capsbench.report.collect import collect
from capsbench.report.export import export, tidy_metrics


@pytest.fixture(scope="module")
def exported(spoiled: tuple[Path, Report], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    export(collect(spoiled[0]), folder)
    return folder


@pytest.fixture(scope="module")
def crate(exported: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(exported / "toy.crate.zip") as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_csv_has_every_number_that_counts_with_what_made_it(spoiled: tuple[Path, Report], exported: Path) -> None:
    table = pd.read_csv(exported / "metrics.csv", keep_default_na=False)
    results = collect(spoiled[0])
    assert len(table) == len(results.frame) + len(results.apart)
    entropy = table.query("task == 'mnist' and variant == 'capsnet-r3-recon' and metric == 'coupling_entropy'")
    assert set(entropy["condition"]) == {"routing"}
    assert len(entropy) == 3
    run = table.query("task == 'mnist' and variant == 'cnn' and seed == 1 and metric == 'error'").iloc[0]
    path = toy.run_folder(spoiled[0], "mnist", "cnn", 1)
    stored = json.loads((path / "test" / "metrics.json").read_text())["metrics"]["error"]["value"]
    manifest = json.loads((path / "manifest.json").read_text())
    assert run["value"] == pytest.approx(stored, rel=1e-9)
    assert (run["plan"], run["budget"], run["reductions"]) == ("toy", "reduced", "width 1/8")
    assert (run["steps"], run["torch"], run["device"], run["gpu"]) == (960, "2.11.0", "cpu", "")
    assert (run["parameters"], run["peak_memory_mb"], run["precision"], run["dirty"]) == (123456, 812, "float32", False)
    assert run["seconds"] == pytest.approx(manifest["seconds"], rel=1e-9)
    assert run["weights_digest"] == manifest["weights"]
    assert (run["config_digest"], run["commit"]) == (manifest["digests"]["config"], manifest["git"]["commit"])
    failed = table.query("task == 'mnist' and variant == 'capsnet-r3' and seed == 1")
    assert failed.empty


def test_parquet_is_the_same_table(exported: Path) -> None:
    csv = pd.read_csv(exported / "metrics.csv", keep_default_na=False)
    parquet = fastparquet.ParquetFile(str(exported / "metrics.parquet")).to_pandas()
    assert list(parquet.columns) == list(csv.columns)
    for column in csv.columns:
        if pd.api.types.is_numeric_dtype(csv[column]):
            assert parquet[column].astype(float).to_numpy() == pytest.approx(
                csv[column].astype(float).to_numpy(), rel=1e-9
            )
        else:
            assert parquet[column].tolist() == csv[column].tolist()


def test_what_was_left_out_is_listed(spoiled: tuple[Path, Report], exported: Path) -> None:
    table = pd.read_csv(exported / "left-out.csv", keep_default_na=False)
    problems = collect(spoiled[0]).problems
    assert list(zip(table["kind"], table["reason"], strict=True)) == [(p.kind, p.reason) for p in problems]


def test_the_crate_describes_every_file_it_holds(crate: dict[str, bytes]) -> None:
    graph = {entity["@id"]: entity for entity in json.loads(crate["ro-crate-metadata.json"])["@graph"]}
    context = json.loads(crate["ro-crate-metadata.json"])["@context"]
    assert context == ["https://w3id.org/ro/crate/1.1/context", {"sha256": "https://schema.org/sha256"}]
    descriptor = graph["ro-crate-metadata.json"]
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert descriptor["about"] == {"@id": "./"}
    root = graph["./"]
    assert {"name", "description", "datePublished", "license"} <= root.keys()
    parts = {part["@id"] for part in root["hasPart"]}
    assert parts == set(crate) - {"ro-crate-metadata.json"}
    for name in parts:
        assert graph[name]["@type"] == "File"
        assert graph[name]["sha256"] == hashlib.sha256(crate[name]).hexdigest()
        assert graph[name]["contentSize"] == str(len(crate[name]))
    references = [value["@id"] for e in graph.values() for value in e.values() if isinstance(value, dict)]
    lists = [v["@id"] for e in graph.values() for value in e.values() if isinstance(value, list) for v in value]
    known = set(graph) | {"https://w3id.org/ro/crate/1.1", "http://schema.org/CompletedActionStatus"}
    assert set(references + lists) <= known | {"http://schema.org/FailedActionStatus"}


def test_the_crate_has_manifests_of_counted_runs_and_nothing_large(crate: dict[str, bytes]) -> None:
    assert "runs/mnist/cnn/seed-0/manifest.json" in crate
    assert "runs/mnist/cnn/seed-0/test/metrics.json" in crate
    assert {"cost.json", "runs/mnist/capsnet-r3-recon/seed-0/routing/iterations.csv"} <= set(crate)
    assert {"plan.json", "report.html", "metrics.csv", "left-out.csv", "tables/mnist.csv"} <= set(crate)
    assert not [name for name in crate if name.endswith((".npz", ".safetensors")) or "seed-7" in name]  # 7 is foreign
    graph = json.loads(crate["ro-crate-metadata.json"])["@graph"]
    actions = {e["name"]: e for e in graph if e["@type"] == "CreateAction"}
    assert {"@id": "runs/mnist/cnn/seed-0/test/metrics.json"} in actions["mnist/cnn/seed-0"]["result"]
    assert actions["mnist/capsnet-r3/seed-1"]["actionStatus"]["@id"].endswith("FailedActionStatus")
    assert "nan at step 40" in actions["mnist/capsnet-r3/seed-1"]["error"]


def test_the_same_results_give_the_same_bytes(spoiled: tuple[Path, Report], exported: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(spoiled[0], tmp_path / "toy"))
    for path in export(collect(elsewhere), tmp_path / "out"):
        assert path.read_bytes() == (exported / path.name).read_bytes(), path.name


def test_tables_that_are_not_of_these_runs_are_said(mnist_alone: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(mnist_alone, tmp_path / "toy"))
    build_report(folder)
    assert "not match these runs" not in CliRunner().invoke(app, ["export", str(folder)]).output
    path = toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json"
    toy.change_json(path, metrics={"error": {"value": 7.5, "unit": "%"}})
    assert "not match these runs" in CliRunner().invoke(app, ["export", str(folder)]).output
    (folder / "tables" / "mnist.csv").write_bytes(b"\xff\xfe")  # torn: no text at all
    torn = CliRunner().invoke(app, ["export", str(folder)])
    assert torn.exit_code == 0
    assert "not match these runs" in torn.output
    toy.truncate(path)
    damaged = CliRunner().invoke(app, ["export", str(folder)])
    assert "1 file of these results cannot be read or cannot be believed" in str(damaged.exception)
    assert (folder / "export" / "metrics.csv").is_file()


def test_a_place_that_cannot_be_written_to_is_named_with_the_option_that_says_another(mnist_alone: Path) -> None:
    nowhere = CliRunner().invoke(app, ["export", str(mnist_alone), "--to", "/proc/nowhere"])
    assert isinstance(nowhere.exception, ResourceError)
    assert "make room there, or name another folder with --to." in str(nowhere.exception)


def test_metrics_of_other_weights_are_not_in_the_crate(folder: Path, tmp_path: Path) -> None:
    path = toy.run_folder(folder, "mnist", "cnn", 1) / "test" / "metrics.json"
    toy.change_json(path, weights="of an earlier training")
    export(collect(folder), tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "out" / "toy.crate.zip") as archive:
        names = archive.namelist()
    assert "runs/mnist/cnn/seed-0/test/metrics.json" in names
    assert "runs/mnist/cnn/seed-1/test/metrics.json" not in names


def test_links_do_not_lead_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("secret")
    (folder / "tables").mkdir(exist_ok=True)
    (folder / "tables" / "linked.csv").symlink_to(tmp_path / "secret.csv")
    *_, path = export(collect(folder), tmp_path / "out")
    with zipfile.ZipFile(path) as archive:
        assert "tables/linked.csv" not in archive.namelist()


def test_without_any_run_the_table_is_empty(folder: Path) -> None:
    shutil.rmtree(folder / "runs")
    assert tidy_metrics(collect(folder)).empty
    said = CliRunner().invoke(app, ["export", str(folder)])
    assert said.exit_code == 0
    assert "missing" in said.output
    assert (folder / "export" / "metrics.csv").read_text().count("\n") == 1
    assert fastparquet.ParquetFile(str(folder / "export" / "metrics.parquet")).to_pandas().empty


def test_the_crate_s_trainings_have_their_times_and_its_date_is_the_last_one_s(folder: Path, tmp_path: Path) -> None:
    started, finished = "2026-11-21T23:00:00Z", "2026-11-22T01:00:00Z"
    toy.change_json(toy.run_folder(folder, "mnist", "cnn", 1) / "manifest.json", started=started, finished=finished)
    *_, path = export(collect(folder), tmp_path / "out")
    with zipfile.ZipFile(path) as archive:
        graph = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
    (run,) = (entity for entity in graph if entity.get("name") == "mnist/cnn/seed-1")
    assert (run["startTime"], run["endTime"]) == (started, finished)
    (root,) = (entity for entity in graph if entity["@id"] == "./")
    assert root["datePublished"] == "2026-11-22"


def described(path: Path) -> dict[str, dict[str, Any]]:
    """The entities of a crate by their names, or where they have none by their ids."""
    with zipfile.ZipFile(path) as archive:
        graph = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
    return {entity.get("name", entity["@id"]): entity for entity in graph}


def test_a_run_says_all_its_reductions_its_gpu_and_that_its_files_may_have_changed(folder: Path) -> None:
    path = toy.run_folder(folder, "mnist", "cnn", 1) / "manifest.json"
    stored = json.loads(path.read_text())
    more = {"machine": {**stored["machine"], "gpu": "One"}, "git": {**stored["git"], "dirty": None}}
    toy.change_json(path, reductions=["width 1/8", "2 epochs"], **more)
    table = tidy_metrics(collect(folder)).query("variant == 'cnn' and task == 'mnist'")
    changed, same = (table[table["seed"] == seed].iloc[0] for seed in (1, 0))
    assert (changed["reductions"], changed["gpu"]) == ("width 1/8; 2 epochs", "One")
    assert changed["dirty"] is pd.NA
    assert same["dirty"] is np.False_


def test_hidden_files_are_not_in_the_crate_and_others_keep_their_names(folder: Path, tmp_path: Path) -> None:
    (folder / "tables").mkdir(exist_ok=True)
    for name in (".mnist.csv.abcdefgh", "Fehler in %.csv", "größer.csv"):
        (folder / "tables" / name).write_text("1")
    *_, path = export(collect(folder), tmp_path)
    with zipfile.ZipFile(path) as archive:
        found = [entry for entry in archive.infolist() if entry.filename.startswith("tables/")]
        assert "größer.csv" in archive.read("ro-crate-metadata.json").decode()
    assert {entry.filename for entry in found} >= {"tables/Fehler in %.csv", "tables/größer.csv"}
    assert not [entry for entry in found if "/." in entry.filename]
    assert {(entry.compress_type, entry.external_attr >> 16) for entry in found} == {(zipfile.ZIP_DEFLATED, 0o644)}
    assert described(path)["tables/Fehler in %.csv"]["@id"] == "tables/Fehler%20in%20%25.csv"


def test_each_training_has_its_own_files_and_says_why_it_failed(tmp_path: Path) -> None:
    """`seed-1` is how `seed-10` begins too."""
    folder = toy.write_toy(tmp_path / "toy", seeds=(1, 10), tasks={"affnist": ["cnn-pool"]})
    toy.fail(folder, "affnist", "cnn-pool", 10)
    (folder / "tuning" / "affnist").mkdir(parents=True)
    (folder / "tuning" / "affnist" / "cnn-pool.json").write_text("{}")
    *_, path = export(collect(folder), tmp_path / "out")
    found = described(path)
    assert found["capsbench results: toy"]["identifier"] == toy.PLAN_DIGEST
    assert {"tuning/affnist/cnn-pool.json", "runs/affnist/cnn-pool/seed-1/curve.csv"} <= found.keys()
    first, failed = (found[f"affnist/cnn-pool/seed-{seed}"] for seed in (1, 10))
    assert {part["@id"].split("/")[3] for part in first["result"]} == {"seed-1"}
    assert "error" not in first
    assert failed["error"] == "the loss was not finite at step 40"


def test_reductions_are_those_of_the_plan_and_a_run_s_own_only_where_the_plan_does_not_say(folder: Path) -> None:
    """A row that another plan trained was trained with that plan's words."""
    reduced = {"mnist/cnn": [{"kind": "training", "words": "1 epoch"}, {"kind": "measuring", "words": "3 of 5 seeds"}]}
    toy.change_json(folder / "plan.json", reduced=reduced | {"mnist/capsnet-r1": []})
    table = tidy_metrics(collect(folder)).query("task == 'mnist'").groupby("variant")["reductions"].unique()
    assert table["cnn"].tolist() == ["1 epoch; 3 of 5 seeds"]
    assert table["capsnet-r1"].tolist() == [""]
    assert table["capsnet-r3"].tolist() == ["width 1/8"]
