"""Pictures of toy results: digits of a small font, as a decoder would draw them, and pairs of them."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

FONT = {  # 3x5 pixels a digit, a row of three bits each
    0: "75557", 1: "26227", 2: "71747", 3: "71717", 4: "55711",
    5: "74717", 6: "74757", 7: "71122", 8: "75757", 9: "75717",
}  # fmt: skip


def glyph(digit: int, size: int = 28, shift: tuple[int, int] = (0, 0), blur: float = 0.7) -> np.ndarray:
    """A digit of FONT, blurred, [size, size] uint8."""
    bits = np.array([[int(row) >> k & 1 for k in (2, 1, 0)] for row in FONT[digit]])
    canvas = np.zeros((size, size))
    top, left = (size - 20) // 2 + shift[0], (size - 12) // 2 + shift[1]
    canvas[top : top + 20, left : left + 12] = np.kron(bits, np.ones((4, 4)))
    blurred = ndimage.gaussian_filter(canvas, blur)
    return np.clip(255 * blurred / max(blurred.max(), 1e-9), 0, 255).astype(np.uint8)


def decoded(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    labels = np.array([*range(10), 4, 7, 3, 9, 5], dtype=np.uint8)
    predicted = np.array([*range(10), 9, 1, 5, 4, 6], dtype=np.uint8)
    moves = rng.integers(-2, 3, (len(labels), 2))
    images = np.stack([glyph(int(d), size, (int(a), int(b))) for d, (a, b) in zip(labels, moves, strict=True)])
    drawn = np.stack([glyph(int(d), size, blur=1.6) for d in predicted])
    return {"images": images, "reconstructions": drawn, "labels": labels, "predicted": predicted}


def bent(digit: int, dimension: int, offset: float) -> np.ndarray:
    """The digit under a small affine change that depends on the dimension."""
    direction = np.array([np.sin(dimension), np.cos(dimension), np.sin(2 * dimension), np.cos(3 * dimension)])
    matrix = np.eye(2) + (offset * direction).reshape(2, 2)
    centre = np.array([13.5, 13.5])
    image = ndimage.affine_transform(glyph(digit, blur=1.2).astype(float), matrix, centre - matrix @ centre, order=1)
    return np.clip(image, 0, 255).astype(np.uint8)


def pairs(rng: np.random.Generator, n: int = 10) -> dict[str, np.ndarray]:
    labels = np.stack([rng.permutation(10)[:2] for _ in range(n)]).astype(np.uint8)  # [n, 2]
    predicted = labels.copy()
    predicted[n // 2 :, 1] = (labels[n // 2 :, 1] + 1 + (labels[n // 2 :, 1] + 1 == labels[n // 2 :, 0])) % 10
    shifts = rng.integers(-4, 5, (n, 2, 2))
    alone = np.stack([[glyph(int(labels[i, k]), 36, tuple(shifts[i, k])) for k in (0, 1)] for i in range(n)])
    decoded = np.stack([[glyph(int(predicted[i, k]), 36, tuple(shifts[i, k]), 1.5) for k in (0, 1)] for i in range(n)])
    absent_class = np.array([next(c for c in range(10) if c not in labels[i]) for i in range(n)], dtype=np.uint8)
    absent = np.stack([glyph(int(c), 36, blur=4.0) // 3 for c in absent_class])
    merged = np.clip(alone.astype(int).sum(axis=1), 0, 255).astype(np.uint8)  # [n, 36, 36]
    return {
        "merged": merged, "digits": alone, "reconstructions": decoded, "labels": labels, "predicted": predicted,
        "absent": absent, "absent_class": absent_class,
    }  # fmt: skip
