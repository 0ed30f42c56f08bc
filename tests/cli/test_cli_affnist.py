"""Which affNIST a command says that it will use, before a run has a digest of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rich.console import Console

from capsbench.cli import affnist
from capsbench.data.affnist_place import SYNTHETIC
from capsbench.data.source import DataSource
from capsbench.errors import DataError
from capsbench.files import write_json
from capsbench.plan import House, config_folder
from capsbench.plan.done import run_digests

SOURCE = DataSource("mnist", None, "MNIST", "nowhere")


def said(house: House, tasks: tuple[str, ...]) -> str:
    console = Console(record=True, width=300)
    affnist.say_affnist(console, house, SOURCE, [cell for cell in house.cells if cell.task in tasks])
    return console.export_text()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """The paper's plan, which wants the official files, where there are none."""
    monkeypatch.setattr(affnist, "official_path", lambda _: None)
    return House.load(config_folder() / "paper.yaml")


def test_it_is_said_where_the_download_failed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> Path:
        raise DataError("The mirror does not answer.")

    monkeypatch.setattr("capsbench.data.affnist_source.download_affnist", refuse)
    assert said(house, ("affnist", "mnist")) == (
        "affNIST: affnist-synth, not the paper's test set (The mirror does not answer; `capsbench data "
        f"{house.path}` tries again).\n"
    )
    assert said(house, ("mnist", "two_digit")) == ""


def test_a_pack_asks_no_mirror(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsbench.data.affnist_source.download_affnist", lambda _: pytest.fail("a mirror was asked"))
    monkeypatch.setattr(affnist, "is_packed", lambda: True)
    assert (
        "affnist-synth, not the paper's test set (a pack neither contains the official files nor downloads them)"
        in said(house, ("affnist",))
    )


def with_finished_runs(house: House, root: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """The plan with one run that was measured on affnist-synth and one on the official files of digest `abc`."""
    monkeypatch.setattr(affnist, "_read_whole", lambda *_: None)
    monkeypatch.setattr(affnist, "dataset_record", lambda _: {"digest": "d"})
    here = dataclasses.replace(house, root=root)
    cell = next(cell for cell in here.cells if cell.task == "affnist")
    for seed, measured_on in ((0, SYNTHETIC), (1, "abc")):
        run = {"task": cell.task, "variant": cell.variant, "seed": seed}
        digest = run_digests(here, cell, seed, "d", measured_on)["run"]
        manifest = {"digest": digest, "status": "failed", "weights": "w", "dataset": {}, "run": run, "resolved": {}}
        write_json(here.run_folder(cell, seed) / "manifest.json", manifest)
    return here


def test_nothing_is_downloaded_that_makes_finished_runs_stale_unless_it_is_asked_for(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A GPU machine's pack measures on affnist-synth; its runs come back to a machine that has a network."""
    here = with_finished_runs(house, tmp_path, monkeypatch)
    downloads: list[Path] = []

    def download(folder: Path) -> Path:
        downloads.append(folder)
        (tmp_path / "test.mat.zip").write_text("official")
        return tmp_path / "test.mat.zip"

    monkeypatch.setattr("capsbench.data.affnist_source.download_affnist", download)
    assert said(here, ("affnist",)) == (
        "affNIST: affnist-synth, not the paper's test set (with the official files, 1 finished run measured on "
        f"affnist-synth would be trained again; `capsbench data {house.path}` downloads them).\n"
    )
    assert downloads == []
    assert "1 finished run measured on affnist-synth will be trained again" in affnist.find_affnist(
        here, SOURCE, asked=True
    )
    assert len(downloads) == 1


def test_runs_that_the_official_files_make_stale_are_counted(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(affnist, "official_path", lambda _: tmp_path / "test.mat")
    monkeypatch.setattr(affnist, "files_digest", lambda _: "abc")
    here = with_finished_runs(house, tmp_path, monkeypatch)
    words = (
        "1 finished run measured on affnist-synth will be trained again, since their test set changes; to keep them, "
    )
    assert f" {words}move the official files elsewhere.\n" in said(here, ("affnist",))
