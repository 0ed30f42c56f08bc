"""Affine transforms of digits: seeded parameters that lose no ink, and the pictures, made on the digits' device.

Conventions: pixel centres at whole numbers, x to the right, y down; the centre of a digit lands on the centre of the
canvas plus the translation. A = R(rotation) [[1, shear], [0, 1]] diag(scale_x, scale_y). Rotation in degrees, positive
is anticlockwise as one sees it; translation in pixels.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from capsbench.data.counter import Purpose, uniform
from capsbench.data.placed import unit
from capsbench.errors import DataError

Array = NDArray[np.float64]

RANGES = {"rotation": (-20.0, 20.0), "shear": (-0.2, 0.2), "scale_y": (0.8, 1.2), "scale_x": (0.8, 1.2)}
NAMES = (*RANGES, "translation_y", "translation_x")
ATTEMPTS = 64
AT_ONCE = 512  # digits whose transforms are drawn together: bounds the memory
# Sines differ in their last bit between machines; rounded to this the parameters, and so their digest, do not.
GRAIN = 2.0**-16
MARGIN = 2.0**-10  # pixels kept free on each side: more than the sampler's rounding in float32


def draw(images: Tensor, *, per_digit: int, seed: int, canvas: int) -> dict[str, Array]:
    """Transforms k = 0..per_digit-1 of each digit i, from (seed, i, k) and the digit's own ink alone.

    images: [N, 28, 28] uint8. Returns float64 [N per_digit] arrays by name; entry i * per_digit + k is that of (i, k).
    Rotation, shear and both scales are uniform over RANGES, the translation over all that lose no ink: every pixel the
    ink spreads over stays on the canvas. Where there is none (with MNIST on 40 x 40: 0 of 320,000 at seed 0), the whole
    transform is drawn again. Raises DataError when a digit never fits.
    """
    outline = _outline(images)
    pieces = []
    for start in range(0, len(images), AT_ONCE):
        digit = torch.arange(start, min(start + AT_ONCE, len(images)))
        k = torch.arange(per_digit).repeat(len(digit))
        pieces.append(_fitting(seed, digit.repeat_interleave(per_digit), k, outline, canvas))
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in NAMES}


def matrices(rotation: Array, shear: Array, scale_y: Array, scale_x: Array) -> Array:
    """The matrices A [M, 2, 2], from (x, y) in the digit to (x, y) on the canvas, both counted from their centres."""
    cosine, sine = np.cos(np.radians(rotation)), np.sin(np.radians(rotation))
    turn = np.stack([cosine, sine, -sine, cosine], axis=-1).reshape(-1, 2, 2)  # y points down
    slant = np.zeros_like(turn)
    slant[:, 0, 0], slant[:, 0, 1], slant[:, 1, 1] = scale_x, shear * scale_y, scale_y
    return turn @ slant


def backward(parameters: dict[str, Array], canvas: int, side: int = 28) -> Tensor:
    """Where each canvas pixel comes from: [M, 2, 3] float32, from (x, y, 1) on the canvas to (x, y) in the digit."""
    inverse = np.linalg.inv(matrices(*(parameters[name] for name in RANGES)))  # [M, 2, 2]
    moved = np.stack([parameters["translation_x"], parameters["translation_y"]], axis=1) + (canvas - 1) / 2  # [M, 2]
    offset = (side - 1) / 2 - (inverse @ moved[:, :, None])[:, :, 0]  # [M, 2]
    return torch.from_numpy(np.concatenate([inverse, offset[:, :, None]], axis=2)).to(torch.float32)


def render(images: Tensor, back: Tensor, canvas: int) -> Tensor:
    """The transformed digits, bilinear, rounded to whole grey levels as the official files have them.

    images: [B, 28, 28] uint8; back: [B, 2, 3] as `backward` gives. Returns [B, 1, canvas, canvas] float32 in [0, 1].
    Devices may differ by one grey level.
    """
    side = images.shape[-1]
    along = torch.arange(canvas, device=images.device, dtype=torch.float32)  # [C]
    # Sums of products, not a matrix product: TF32 would move the digit by hundredths of a pixel.
    across_x, across_y, offset = back[:, :, 0, None, None], back[:, :, 1, None, None], back[:, :, 2, None, None]
    source = across_x * along + across_y * along[:, None] + offset  # [B, 2, C, C] in pixels of the digit
    grid = ((2 * source + 1) / side - 1).permute(0, 2, 3, 1)  # [B, C, C, 2] with the digit's edges at -1 and 1
    pixels = F.grid_sample(images[:, None].to(torch.float32), grid, mode="bilinear", align_corners=False)
    return unit(pixels.round())  # [B, 1, C, C]


def _fitting(seed: int, digit: Tensor, k: Tensor, outline: tuple[Array, Array, Array], canvas: int) -> dict[str, Array]:
    """Transforms (digit, k), [M] each, drawn until each leaves its ink on the canvas."""
    drawn = {name: np.empty(len(digit)) for name in NAMES}
    pending = torch.arange(len(digit))
    for attempt in range(ATTEMPTS):
        tried, fits = _attempt(seed, attempt, digit[pending], k[pending], outline, canvas)
        for name, values in tried.items():
            drawn[name][pending.numpy()] = values
        pending = pending[~fits]
        if not len(pending):
            return drawn
    raise DataError(
        f"Digit {int(digit[pending[0]])} lost ink under each of {ATTEMPTS} random transforms on {canvas} x {canvas} "
        "pixels: its ink is too wide; use digits with a black border."
    )


def _attempt(
    seed: int, attempt: int, digit: Tensor, k: Tensor, outline: tuple[Array, Array, Array], canvas: int
) -> tuple[dict[str, Array], Tensor]:
    """One draw of the transforms (digit, k), [M] each, and which of them leave the ink room on the canvas."""
    fraction = {
        name: uniform(seed, Purpose.AFFINE, attempt, number, digit, k).numpy() for number, name in enumerate(NAMES)
    }
    tried = {name: low + fraction[name] * (high - low) for name, (low, high) in RANGES.items()}
    linear = matrices(*tried.values())  # [M, 2, 2]
    left, right, rows = outline
    fits = np.ones(len(digit), dtype=bool)
    for row, name in enumerate(("translation_x", "translation_y")):
        lowest, highest = _room(linear[:, row], left[digit.numpy()], right[digit.numpy()], rows, canvas)  # [M] each
        tried[name] = np.round((lowest + fraction[name] * (highest - lowest)) / GRAIN) * GRAIN
        fits &= lowest <= highest
    return tried, torch.from_numpy(fits)


def _outline(images: Tensor) -> tuple[Array, Array, Array]:
    """Each row's leftmost and rightmost ink: x [N, 28] each, and y [28], from the centre; rows without ink are NaN.

    The extremes of any linear form over the ink lie on these points.
    """
    ink = images.cpu().numpy() > 0
    side = ink.shape[-1]
    ink[~ink.any(axis=(1, 2)), side // 2, side // 2] = True  # a blank image is placed as if it had a dot
    centre = (side - 1) / 2
    empty = ~ink.any(axis=2)
    left = np.where(empty, np.nan, ink.argmax(axis=2) - centre)
    right = np.where(empty, np.nan, side - 1 - ink[:, :, ::-1].argmax(axis=2) - centre)
    return left, right, np.arange(side) - centre


def _room(form: Array, left: Array, right: Array, rows: Array, canvas: int) -> tuple[Array, Array]:
    """Between which translations along one axis the ink stays on the canvas, [M] each. form: that row of A, [M, 2]."""
    ends = np.stack([form[:, :1] * left, form[:, :1] * right]) + form[:, 1:] * rows  # [2, M, 28]
    # A pixel's bilinear support reaches one digit pixel each way; a canvas has no pixel at -1 and at its size.
    reach = np.abs(form).sum(axis=1) + MARGIN
    edge = (canvas + 1) / 2 - reach  # [M] how far from the centre ink may be
    return -edge - np.nanmin(ends, axis=(0, 2)), edge - np.nanmax(ends, axis=(0, 2))
