"""Figures call a row what tables call it, be it beside a panel, above one, in a legend or in the caption."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy

from capsbench.report.collect import collect
from capsbench.report.figures import Drawing, draw_figure
from capsbench.report.figures.style import house_style

CELLS = {"mnist": ["cnn", "capsnet-r3-recon"]}
TITLES = {"cnn": "A plain CNN", "capsnet-r3-recon": "The paper's CapsNet with its decoder"}  # longer than a line


@pytest.fixture
def drawn(tmp_path: Path) -> dict[str, Drawing]:
    folder = toy.write_toy(tmp_path / "named", seeds=(0, 1), tasks=CELLS, titles=TITLES)
    results = collect(folder)
    with house_style():
        names = ("mnist_error", "mnist_confusion", "cost", "routing", "reconstructions", "perturbations")
        return {name: draw_figure(name, results) for name in names}


def words(drawing: Drawing) -> str:
    """All that stands in a figure, and its caption, on one line."""
    figure = drawing.figure
    ticks = [tick.get_text() for axes in figure.axes for tick in axes.get_yticklabels()]
    titles = [axes.get_title(loc=place) for axes in figure.axes for place in ("left", "center")]
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return " ".join([*ticks, *titles, *legends, drawing.caption]).replace("\n", " ")


def test_rows_have_the_names_that_tables_give_them(drawn: dict[str, Drawing]) -> None:
    for name in ("mnist_error", "mnist_confusion", "cost"):
        assert all(title in words(drawn[name]) for title in TITLES.values()), name
    for name in ("routing", "reconstructions", "perturbations"):  # of models that route, or decode
        assert TITLES["capsnet-r3-recon"] in words(drawn[name]), name
    assert "A plain CNN: 2 runs; The paper's CapsNet with its decoder: 2 runs." in drawn["mnist_confusion"].caption


def test_and_no_others(drawn: dict[str, Drawing]) -> None:
    for name, drawing in drawn.items():
        assert "capsnet-r3-recon" not in words(drawing), name


def test_long_names_take_two_lines(drawn: dict[str, Drawing]) -> None:
    ticks = [tick.get_text() for tick in drawn["mnist_error"].figure.axes[0].get_yticklabels()]
    assert ticks == ["A plain CNN", "The paper's CapsNet with its\ndecoder"]
