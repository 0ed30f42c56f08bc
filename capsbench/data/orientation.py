"""Which way round the official affNIST images lie: decided by the images, not by belief.

A column of 1,600 pixels can be the rows or the columns of a picture, and columns would be MATLAB's habit. Of a dozen
public readers all but one take rows, among them some that train on MNIST and test on affNIST, which a wrong order would
spoil. Neither is taken for granted: both are compared with the digits that the images were made from. An affine
transform of affNIST's size leaves a digit like itself, a transposition does not. It needs neither the matrices in the
file nor their unwritten conventions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from capsbench.data.placed import place_pixels
from capsbench.errors import DataError

# Measured on transforms of MNIST's test digits: the right way round wins against each rival in 93 to 100 % of the
# images; on those of UCI's digits in 90 to 100 %. A wrong way loses to the right one as clearly.
LEAST_WINS = 0.8
STORED, TRANSPOSED = 0, 4  # places in `_ways`


def is_transposed(images: Tensor, digits: Tensor, where: str) -> bool:
    """Whether `images` must be transposed to look like the `digits` they were made from.

    The answer must make most images more like their own digit than any of the seven other ways round (turned, mirrored,
    transposed), and more than like another digit.

    images: [n, 40, 40] uint8; digits: [n, 28, 28] uint8, the originals in the same order. where: for the message.
    Raises DataError when they fit neither way.
    """
    originals = _standardised(digits)
    others = originals.roll(len(originals) // 2, dims=0)
    seen = [_standardised(way) for way in _ways(images)]
    likeness = torch.stack([(way * originals).sum(1) for way in seen])  # [8, n] correlations
    for answer in (STORED, TRANSPOSED):
        with_others = (seen[answer] * others).sum(1)  # [n]
        rivals = torch.stack([*likeness[:answer], *likeness[answer + 1 :], with_others])  # [8, n]
        if (likeness[answer] > rivals).double().mean(1).min().item() >= LEAST_WINS:
            return answer == TRANSPOSED
    stored, transposed = likeness[[STORED, TRANSPOSED]].mean(1).tolist()
    raise DataError(
        f"{where} does not show the digits it names: its images should resemble the test digits of its original "
        f"indices, but correlate {stored:.2f} as stored and {transposed:.2f} transposed, no more than other ways round "
        "or other digits; get the original file again, or take it away to use the synthetic set."
    )


def _ways(images: Tensor) -> list[Tensor]:
    """The eight ways round: four quarter turns as stored, four transposed."""
    return [torch.rot90(base, turns, (1, 2)) for base in (images, images.transpose(1, 2)) for turns in range(4)]


def _standardised(images: Tensor) -> Tensor:
    """Each image with its centre of ink in the middle, mean 0 and length 1, flattened: [n, 40 * 40] float64."""
    h, w = images.shape[1:]
    ink = images.to(torch.float64)
    mass = ink.sum((1, 2)).clamp(min=1)  # [n]
    down = (h - 1) / 2 - (ink.sum(2) * torch.arange(h)).sum(1) / mass  # [n] pixels to the middle
    right = (w - 1) / 2 - (ink.sum(1) * torch.arange(w)).sum(1) / mass
    centred = place_pixels(images, down.round().long(), right.round().long(), 40, 40)
    flat = centred.to(torch.float64).flatten(1)  # [n, 1600]
    flat = flat - flat.mean(1, keepdim=True)
    return flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-9)
