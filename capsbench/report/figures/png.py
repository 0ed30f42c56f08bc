"""PNGs of 256 colours: less than half of the bytes, and the colours that cover most of a figure are exact.

A figure is drawn in a few flat colours and thousands of shades between them, at the edges of lines and letters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray
from PIL import Image

from capsbench.files import whole_file

PALETTE = 256  # colours; one byte says which
EXACT = 128  # the colours of most pixels, kept as they are


def write_png(canvas: FigureCanvasAgg, path: Path) -> None:
    """Draw a canvas's figure and write it in one piece, without the time or the version that made it."""
    canvas.draw()
    drawn = np.asarray(canvas.buffer_rgba())[..., :3]  # [H, W, 3]; nothing shows through
    with whole_file(path) as temporary:
        few_colours(drawn).save(temporary, "PNG", dpi=(canvas.figure.dpi, canvas.figure.dpi))


def few_colours(pixels: NDArray[np.uint8]) -> Image.Image:
    """A picture [H, W, 3] with each colour by the nearest of a palette.

    The palette has the EXACT most frequent colours, and others chosen so that none of those left is far from all. With
    PALETTE colours or fewer nothing is altered.
    """
    height, width, _ = pixels.shape
    counts = Image.fromarray(pixels).getcolors(height * width)
    assert counts is not None  # it has no more colours than pixels
    by_count = sorted(counts, key=lambda each: (-each[0], each[1]))
    colours = np.array([colour for _, colour in by_count], dtype=np.uint8)  # [n, 3], the most frequent first
    palette = colours if len(colours) <= PALETTE else np.concatenate([colours[:EXACT], _spread(colours[EXACT:])])
    nearest = np.empty(2**24, np.uint8)  # for each colour there is its place in the palette
    for part in np.array_split(colours, range(4096, len(colours), 4096)):
        apart = part[:, None].astype(np.int32) - palette[None].astype(np.int32)  # [m, 256, 3]
        nearest[_packed(part)] = (apart * apart).sum(2).argmin(1)
    picture = Image.fromarray(nearest[_packed(pixels)])
    picture.putpalette(palette.tobytes())
    return picture


def _spread(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """PALETTE - EXACT colours [n, 3] that leave none of these far from all of them."""
    line = Image.fromarray(colours[None])  # how often a colour occurs does not count
    method, no_dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    found = line.quantize(PALETTE - EXACT, method=method, dither=no_dither).getpalette()
    return np.array(found, dtype=np.uint8).reshape(-1, 3)


def _packed(colours: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Colours [..., 3] as single numbers below 2 ** 24: [...]."""
    red, green, blue = (colours[..., channel].astype(np.uint32) for channel in range(3))
    return red << np.uint32(16) | green << np.uint32(8) | blue
