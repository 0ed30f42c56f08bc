"""Data that are missing, altered or out of reach: an error in one sentence, or digits that say what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from places import refused
from tools import mnist_folder

from capsbench.data.raw import FILES

BADGE = "UCI digits, not MNIST"


def test_out_of_reach_the_digits_stand_in_and_everything_says_so(finished) -> None:
    folder = finished.place.results
    assert folder.name == "tiny-digits"
    assert [path.name for path in finished.place.root.iterdir()] == ["tiny-digits"]
    assert "MNIST could not be downloaded" in finished.said.text
    assert "no number that follows is an MNIST number" in finished.said.text
    verdicts = pd.read_csv(folder / "tables" / "claims.csv")["verdict"]
    assert set(verdicts) == {"not run"}  # such digits judge nothing
    for table in (folder / "tables").glob("[!.]*"):
        if table.stem in {"claims", "cost"}:  # the one is of what the claims name, the other of no data at all
            continue
        assert (BADGE if table.suffix != ".csv" else "uci-digits") in table.read_text()
    captions = list((folder / "figures").glob("*.txt"))
    assert {path.stem for path in captions} == {path.stem for path in (folder / "figures").glob("*.png")}
    assert len(captions) >= 4
    for caption in captions:
        assert BADGE in caption.read_text()
    assert BADGE in (folder / "report.html").read_text()
    for record in (folder / "runs").rglob("manifest.json"):
        assert json.loads(record.read_text())["dataset"] == {"name": "uci-digits", "badge": BADGE}
        assert BADGE in json.loads(record.read_text())["reductions"]
    data = json.loads((folder / "data.json").read_text())
    assert "MNIST could not be downloaded" in data["notice"]
    assert json.loads((folder / "plan.json").read_text())["dataset"]["badge"] == BADGE


@pytest.mark.parametrize("command", ["run", "data", "train"])
def test_a_plan_that_takes_no_other_data_refuses(place, command: str) -> None:
    place.plan(uci_digits="false")
    said = place.capsbench(command, "tiny.yaml", CAPSBENCH_STAND_IN="")
    refused(said, "MNIST could not be downloaded", "name a folder that holds its four files with CAPSBENCH_DATA.")
    assert said.code == 2
    assert said.err.startswith("capsbench: ")
    assert said.err.count("\n") == 1
    assert not place.root.exists()
    assert not (place.folder / "cache").exists() or not any((place.folder / "cache").iterdir())


@pytest.mark.slow
def test_official_affnist_files_that_arrive_train_again_what_was_measured_on_others(place) -> None:
    """No spec file tells which affNIST a run was measured on, nor do the numbers: its manifest alone does."""
    rows = "  affnist: {variants: [diverging], test_images: 20, held_out: 20, probe_images: 20, factor_images: 20}\n"
    plan = place.plan(uci_digits="false", variants="[diverging]")
    text = plan.read_text()
    plan.write_text(text[: text.index("  mnist:")] + rows)
    place.environment["CAPSBENCH_DATA"] = str(mnist_folder())
    said = place.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert place.would_run() == set()
    files = place.folder / "cache" / "affNIST"
    files.mkdir(parents=True, exist_ok=True)
    (files / "test.mat").write_bytes(b"a dry run only asks for its digest")
    assert {"Train affnist/diverging", "Draw tables, figures and the report"} <= place.would_run()


def test_through_snakemake_such_a_plan_stops_at_its_data(place) -> None:
    place.plan(uci_digits="false")
    said = place.snakemake("--configfile", "tiny.yaml", CAPSBENCH_STAND_IN="")
    refused(said, "capsbench: MNIST could not be downloaded", "Error in rule data")
    assert said.jobs == {"Check the data"}
    assert not (place.root / "tiny" / "data.json").exists()
    assert not (place.root / "tiny" / "runs").exists()


def test_through_snakemake_data_that_nothing_stands_in_for_are_not_taken_for_mnist(place, clone) -> None:
    said = place.snakemake("-n", "--configfile", clone / "config" / "kmnist.yaml", CAPSBENCH_STAND_IN="")
    refused(said, "KMNIST could not be downloaded", "name a folder that holds its four files with CAPSBENCH_DATA.")
    assert said.jobs == set()
    assert not place.root.exists()


def altered(folder: Path) -> None:
    """Four files of the right names that are not MNIST's."""
    folder.mkdir()
    for name, size in FILES.items():
        (folder / name).write_bytes(bytes(size))


def half(folder: Path) -> None:
    """Two of the four files."""
    folder.mkdir()
    for name in list(FILES)[:2]:
        (folder / name).touch()


def nothing(folder: Path) -> None:
    """No folder at all."""


def empty(folder: Path) -> None:
    """A folder with other things in it."""
    folder.mkdir()
    (folder / "holiday.jpg").touch()


@pytest.mark.parametrize("make", [altered, half, nothing, empty])
def test_a_named_folder_without_mnist_is_never_passed_over(place, make) -> None:
    place.plan()
    folder = place.folder / "named"
    make(folder)
    for command in ("run", "data"):
        said = place.capsbench(command, "tiny.yaml", CAPSBENCH_DATA=str(folder))
        refused(said, str(folder))
        assert said.code == 2
        assert said.out == ""
        assert said.err.startswith("capsbench: ")
        assert said.err.count("\n") == 1
        assert not place.root.exists()


def test_a_named_folder_that_is_missing_stops_snakemake_at_once(place) -> None:
    place.plan()
    said = place.snakemake("--configfile", "tiny.yaml", CAPSBENCH_DATA="not/there")
    refused(said, "not/there, which CAPSBENCH_DATA names for MNIST, is not a folder that exists")
    assert said.jobs == set()
    assert not place.root.exists()


def test_altered_files_stop_snakemake_at_its_first_job(place) -> None:
    place.plan()
    altered(place.folder / "named")
    said = place.snakemake("--configfile", "tiny.yaml", CAPSBENCH_DATA=str(place.folder / "named"))
    refused(said, f"capsbench: {place.folder / 'named'}", "SHA-256", "Error in rule data")
    assert said.jobs == {"Check the data"}
    assert not (place.root / "tiny" / "data.json").exists()
    assert not (place.root / "tiny" / "runs").exists()
