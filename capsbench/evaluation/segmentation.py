"""How well each of two digits is drawn alone: measures of one pair at a time (docs/results-format.md).

Two masks are taken of a picture. At 0.5: what is brighter than half. Ink: what is not black as an 8-bit picture, for a
digit its non-zero pixels, and for a decoder, whose sigmoid is never zero, whatever does not round to zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

UNITS = {
    "mse": "",
    "psnr": "dB",
    "ssim": "",
    "dice": "",  # at 0.5
    "iou": "",  # at 0.5
    "dice_ink": "",
    "iou_ink": "",
    "exclusive_iou": "",
    "overlap_iou": "",
    "assignment_accuracy": "%",
}
PSNR_LIMIT = 100.0  # dB: a picture without error has no finite PSNR, and one such picture would be the mean


def measure(drawn: Tensor, digits: Tensor) -> dict[str, Tensor]:
    """Every measure of UNITS, [n] float32 each: what was drawn for both digits of n pairs against the digits.

    Args:
        drawn, digits: [n, 2, H, W] float32 in [0, 1], H and W at least 11 (the window of SSIM).

    A measure of single pictures is the mean over both digits. `exclusive_iou` compares the ink that is in this
    digit's picture and not in the other's, as drawn and as it is; `overlap_iou` the ink that is in both.
    A measure that a pair has not is NaN: `overlap_iou` where the digits cross neither as drawn nor as they are.
    Where they cross in one of the two alone it is 0.
    """
    from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

    n, _, height, width = digits.shape
    flat, flat_digits = drawn.reshape(2 * n, 1, height, width), digits.reshape(2 * n, 1, height, width)
    psnr = peak_signal_noise_ratio(flat, flat_digits, data_range=1.0, reduction="none", dim=(1, 2, 3))  # [2n]
    ssim = structural_similarity_index_measure(flat, flat_digits, data_range=1.0, reduction="none")  # [2n]
    assert isinstance(ssim, Tensor)
    bright, bright_digits = drawn > 0.5, digits > 0.5  # [n, 2, H, W]
    inked, inked_digits = _ink(drawn), _ink(digits)
    return {
        "mse": (drawn - digits).square().mean((1, 2, 3)),
        "psnr": psnr.clamp(max=PSNR_LIMIT).view(n, 2).mean(1),
        "ssim": ssim.view(n, 2).mean(1),
        "dice": _dice(bright, bright_digits),
        "iou": _iou(bright, bright_digits),
        "dice_ink": _dice(inked, inked_digits),
        "iou_ink": _iou(inked, inked_digits),
        "exclusive_iou": _iou(inked & ~inked.flip(1), inked_digits & ~inked_digits.flip(1)),
        "overlap_iou": _iou(inked.all(1, keepdim=True), inked_digits.all(1, keepdim=True)),
        "assignment_accuracy": _assignment(drawn, inked_digits),
    }


def leakage(drawn: Tensor, digits: Tensor, labels: Tensor) -> Tensor:
    """Ink drawn for a class that is not there, in percent of a digit's: the mean over the eight absent classes, [n].

    drawn: [n, K, H, W] float32, what the decoder draws for each class; digits: [n, 2, H, W]; labels: [n, 2] int64.
    """
    ink = drawn.sum((2, 3))  # [n, K]
    absent = torch.ones_like(ink).scatter(1, labels, 0)  # [n, K]
    return 100 * (ink * absent).sum(1) / absent.sum(1) / digits.sum((2, 3)).mean(1)


def match(predicted: Tensor, labels: Tensor, drawn: Tensor, digits: Tensor) -> Tensor:
    """Which predicted class stands for which digit: `predicted` [n, 2] with its columns in the order of the digits.

    A predicted class that is in the image is that digit, and the other one stands for the other digit. Where both are
    wrong, the assignment with the smaller squared error is taken.

    Args:
        predicted, labels: [n, 2] int64; drawn: [n, K, H, W], each class decoded; digits: [n, 2, H, W].
    """
    swapped = predicted.flip(1)
    straight = (predicted == labels).any(1)  # [n]
    crossed = (swapped == labels).any(1)  # [n], never both: the two classes differ

    def squared_error(classes: Tensor) -> Tensor:
        return (of_classes(drawn, classes) - digits).square().sum((1, 2, 3))  # [n]

    swap = crossed | (~straight & (squared_error(swapped) < squared_error(predicted)))
    return torch.where(swap[:, None], swapped, predicted)


def of_classes(drawn: Tensor, classes: Tensor) -> Tensor:
    """The pictures [n, 2, H, W] of `classes` [n, 2] among those of all classes [n, K, H, W]."""
    return drawn[torch.arange(len(drawn), device=drawn.device)[:, None], classes]


def _ink(pictures: Tensor) -> Tensor:
    return (pictures * 255).round() > 0


def _dice(mask: Tensor, truth: Tensor) -> Tensor:
    """Masks [n, c, H, W] bool, mean over c: [n]; NaN where all are empty."""
    from torchmetrics.functional.segmentation import dice_score

    return dice_score(mask.int(), truth.int(), num_classes=mask.shape[1], average="macro")


def _iou(mask: Tensor, truth: Tensor) -> Tensor:
    """Masks [n, c, H, W] bool, mean over c: [n]; NaN where all are empty."""
    from torchmetrics.functional.segmentation import mean_iou

    return mean_iou(mask.int(), truth.int(), num_classes=mask.shape[1])


def _assignment(drawn: Tensor, inked: Tensor) -> Tensor:
    """Percent of the pixels inked in one digit alone where that digit's drawing is the brighter; ties count half."""
    alone = inked & ~inked.flip(1)  # [n, 2, H, W]
    right = (drawn > drawn.flip(1)).float() + 0.5 * (drawn == drawn.flip(1)).float()
    return 100 * (right * alone).sum((1, 2, 3)) / alone.sum((1, 2, 3))
