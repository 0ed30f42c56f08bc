"""Which affNIST a command says that it will use, before a run has a digest of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from capsbench.cli import affnist
from capsbench.data.source import DataSource
from capsbench.errors import DataError
from capsbench.plan import House, config_folder

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
        "affNIST: affnist-synth, not the paper's test set (The mirror does not answer).\n"
    )
    assert said(house, ("mnist", "two_digit")) == ""


def test_a_pack_asks_no_mirror(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsbench.data.affnist_source.download_affnist", lambda _: pytest.fail("a mirror was asked"))
    monkeypatch.setattr(affnist, "is_packed", lambda: True)
    assert "affnist-synth, not the paper's test set (a pack carries no other, and downloads none)" in said(
        house, ("affnist",)
    )
