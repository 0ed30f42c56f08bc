"""PNGs of 256 colours: flat colours stay, shades move a little, and the file is a fraction of matplotlib's own."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray
from PIL import Image

from capsbench.report.figures.png import EXACT, PALETTE, few_colours, write_png
from capsbench.report.figures.style import COLOURS, canvas, house_style


@pytest.fixture(scope="module")
def drawn() -> FigureCanvasAgg:
    """Twenty curves in all colours of the house, some of which show through: thousands of shades."""
    with house_style():
        figure = canvas(7.0, 4.0)
        axes = figure.subplots()
        x = np.linspace(0, 6, 200)
        for number in range(20):
            axes.plot(x, np.sin(x + number) * number, color=COLOURS[number % len(COLOURS)], alpha=1 - 0.04 * number)
        axes.fill_between(x, -5, 5, color=COLOURS[0], alpha=0.2)
        return FigureCanvasAgg(figure)


def pixels_of(picture: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(picture.convert("RGB"))


def test_a_figure_is_as_it_was_drawn_but_for_shades_at_edges(drawn: FigureCanvasAgg, tmp_path: Path) -> None:
    path, own = tmp_path / "curves.png", io.BytesIO()
    write_png(drawn, path)
    drawn.print_png(own)
    before, after = pixels_of(Image.open(own)), pixels_of(Image.open(path))
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 3000
    assert len(np.unique(after.reshape(-1, 3), axis=0)) <= PALETTE
    apart = np.abs(before.astype(int) - after).max(2)
    assert (apart == 0).mean() > 0.85
    assert apart.mean() < 1
    assert apart.max() <= 40
    assert path.stat().st_size < len(own.getvalue()) / 2
    assert Image.open(path).info["dpi"] == Image.open(own).info["dpi"]


def test_the_most_frequent_colours_are_exact() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (100, 100, 3), dtype=np.uint8)  # ten thousand colours, once each
    frequent = np.random.default_rng(1).integers(0, 256, (EXACT, 3), dtype=np.uint8)
    pixels[: EXACT // 2] = frequent.reshape(EXACT // 2, 2, 3).repeat(50, axis=1)
    after = pixels_of(few_colours(pixels))
    assert (after[: EXACT // 2] == pixels[: EXACT // 2]).all()
    apart = np.abs(after[EXACT // 2 :].astype(int) - pixels[EXACT // 2 :]).max(2)
    assert 0 < apart.max() < 80  # a cube of 256 levels in 128 parts: some 50 levels wide


@pytest.mark.parametrize("colours", [1, 2, PALETTE])
def test_few_colours_are_all_exact(colours: int) -> None:
    ramp = np.arange(colours, dtype=np.uint8)
    pixels = np.stack([ramp, ramp[::-1], ramp // 2], axis=1).reshape(1, colours, 3).repeat(3, axis=0)
    assert (pixels_of(few_colours(pixels)) == pixels).all()
