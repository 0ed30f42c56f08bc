"""Measures of segmentation on pictures made by hand, whose values are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d
from torch import Tensor

from capsbench.evaluation.segmentation import PSNR_LIMIT, UNITS, leakage, match, measure, of_classes

PERFECT = {
    "mse": 0.0, "psnr": PSNR_LIMIT, "ssim": 1.0, "dice": 1.0, "iou": 1.0, "dice_ink": 1.0, "iou_ink": 1.0,
    "exclusive_iou": 1.0, "overlap_iou": 1.0, "assignment_accuracy": 100.0,
}  # fmt: skip


def square(top: int, left: int, side: int = 10, level: float = 1.0) -> Tensor:
    """A square of that level on 36 x 36 black pixels."""
    picture = torch.zeros(36, 36)
    picture[top : top + side, left : left + side] = level
    return picture


def pair(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second])[None]  # [1, 2, 36, 36]


DIGITS = pair(square(0, 0), square(5, 0))  # two squares of 100 pixels that share 50
APART = pair(square(0, 0), square(20, 20))


def values(drawn: Tensor, digits: Tensor = DIGITS) -> dict[str, float]:
    return {name: value.item() for name, value in measure(drawn, digits).items()}


def test_a_perfect_drawing() -> None:
    assert values(DIGITS) == pytest.approx(PERFECT, abs=1e-6)
    assert set(values(DIGITS)) == set(UNITS)


def test_a_copy_of_the_input() -> None:
    merged = DIGITS.sum(1, keepdim=True).clamp(max=1).expand_as(DIGITS)  # 150 pixels
    found = values(merged)
    assert found["dice"] == found["dice_ink"] == pytest.approx(2 * 100 / (150 + 100))
    assert found["iou"] == found["iou_ink"] == pytest.approx(100 / 150)
    assert found["mse"] == pytest.approx(50 / 36**2)
    assert found["psnr"] == pytest.approx(-10 * math.log10(50 / 36**2), abs=1e-4)
    assert found["exclusive_iou"] == 0  # it gives no digit anything of its own
    assert found["overlap_iou"] == pytest.approx(50 / 150)
    assert found["assignment_accuracy"] == 50.0  # ties, all of them
    assert 0 < found["ssim"] < 1


def test_the_digits_exchanged() -> None:
    found = values(DIGITS.flip(1))
    assert found["iou"] == pytest.approx(50 / 150)
    assert found["exclusive_iou"] == 0
    assert found["overlap_iou"] == 1
    assert found["assignment_accuracy"] == 0


def test_nothing_drawn() -> None:
    found = values(torch.zeros_like(DIGITS))
    assert found["mse"] == pytest.approx(100 / 36**2)
    assert (found["dice"], found["iou"], found["exclusive_iou"], found["overlap_iou"]) == (0, 0, 0, 0)
    assert found["assignment_accuracy"] == 50.0


def test_one_half_and_the_first_grey_level_are_the_two_thresholds() -> None:
    faint = values(DIGITS * 0.5)
    assert (faint["iou"], faint["iou_ink"]) == (0, 1)  # 0.5 is not above 0.5
    assert (faint["exclusive_iou"], faint["overlap_iou"]) == (1, 1)  # both are of ink
    assert values(DIGITS * 0.51)["iou"] == 1
    smeared = DIGITS + (DIGITS == 0) * (0.4 / 255)  # rounds to black
    assert values(smeared)["iou_ink"] == 1
    visible = DIGITS + (DIGITS == 0) * (0.6 / 255)  # rounds to the first grey level
    assert values(visible)["iou_ink"] == pytest.approx(100 / 36**2)
    assert values(visible)["iou"] == 1


def test_faint_ink_of_a_digit_is_ink() -> None:
    digits = pair(square(0, 0, level=1 / 255), square(20, 20))
    found = values(digits, digits)
    assert found["assignment_accuracy"] == 100
    assert values(pair(square(20, 20), square(20, 20)), digits)["assignment_accuracy"] == 50.0


def test_assignment_looks_at_exclusive_ink_alone() -> None:
    drawn = DIGITS.clone()
    drawn[:, 0, 5:10] = 0.2  # on the overlap the first loses
    assert values(drawn)["assignment_accuracy"] == 100
    drawn[:, 1, :5, :10] = 1.0  # on the first's own ink both are as bright
    assert values(drawn)["assignment_accuracy"] == 75


def test_digits_that_do_not_cross_have_no_overlap_to_find() -> None:
    found = values(APART, APART)
    assert math.isnan(found["overlap_iou"])
    assert found["exclusive_iou"] == 1
    both = pair(square(0, 0) + square(20, 20), square(0, 0) + square(20, 20))
    assert values(both, APART)["overlap_iou"] == 0  # drawn where there is none


def test_each_pair_is_measured_by_itself() -> None:
    together = measure(torch.cat([DIGITS, DIGITS.flip(1)]), torch.cat([DIGITS, DIGITS]))
    alone = [values(DIGITS), values(DIGITS.flip(1))]
    for name, found in together.items():
        assert found.tolist() == pytest.approx([one[name] for one in alone], abs=1e-6), name


def test_ssim_of_a_flat_picture_is_the_formula() -> None:
    flat, other = torch.full((1, 2, 36, 36), 0.6), torch.full((1, 2, 36, 36), 0.2)
    c1 = 0.01**2  # Wang et al. 2004: without variance the luminance term is all there is
    assert values(flat, other)["ssim"] == pytest.approx((2 * 0.6 * 0.2 + c1) / (0.6**2 + 0.2**2 + c1), abs=1e-4)


def ssim_by_hand(a: np.ndarray, b: np.ndarray) -> float:
    """Wang et al. 2004, equation 13, in windows of 11 x 11 Gaussian weights with a deviation of 1.5 pixels.

    One window a pixel: beyond its edges the picture is mirrored, which the paper does not say.
    """
    along = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    window = np.outer(along, along) / along.sum() ** 2

    def local(values: np.ndarray) -> np.ndarray:
        return convolve2d(np.pad(values, 5, mode="reflect"), window, mode="valid")

    mean_a, mean_b = local(a), local(b)
    variances = local(a * a) - mean_a**2 + local(b * b) - mean_b**2
    covariance = local(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    return float((luminance * (2 * covariance + c2) / (variances + c2)).mean())


def test_ssim_is_the_mean_over_both_digits_of_the_formula_of_its_paper() -> None:
    drawn, digits = torch.rand(2, 1, 2, 36, 36, generator=torch.Generator().manual_seed(0))
    digits = 0.5 * digits + 0.5 * drawn  # alike, but not the same
    pairs = zip(drawn[0].double().numpy(), digits[0].double().numpy(), strict=True)
    assert values(drawn, digits)["ssim"] == pytest.approx(np.mean([ssim_by_hand(a, b) for a, b in pairs]), abs=1e-4)


def test_one_digit_drawn_to_perfection_and_the_other_not_at_all_are_half_of_each_measure() -> None:
    found = values(pair(square(0, 0), torch.zeros(36, 36)))
    assert (found["dice"], found["iou"], found["dice_ink"], found["iou_ink"]) == (0.5, 0.5, 0.5, 0.5)
    nothing = -10 * math.log10(100 / 36**2)  # 100 white pixels were missed
    assert found["psnr"] == pytest.approx((100 + nothing) / 2, abs=1e-4)


def test_leakage_is_the_ink_of_absent_classes_in_percent_of_a_digit_s() -> None:
    drawn = torch.zeros(1, 10, 36, 36)
    labels = torch.tensor([[3, 7]])
    drawn[:, [3, 7]] = DIGITS  # what is there does not count
    assert leakage(drawn, DIGITS, labels).tolist() == [0]
    drawn[:, 0] = square(0, 0)  # one absent class of eight drawn like a digit
    assert leakage(drawn, DIGITS, labels).tolist() == pytest.approx([100 / 8])
    drawn[:] = 0.5 * square(0, 0)
    assert leakage(drawn, DIGITS, labels).tolist() == pytest.approx([50])


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        ((3, 7), (3, 7)),
        ((7, 3), (3, 7)),
        ((3, 1), (3, 1)),
        ((1, 3), (3, 1)),
        ((7, 1), (1, 7)),
        ((1, 7), (1, 7)),
        ((1, 2), (1, 2)),  # both wrong: class 1 draws the first digit, class 2 the second
        ((2, 1), (1, 2)),
    ],
)
def test_predicted_classes_stand_for_digits(predicted: tuple[int, int], expected: tuple[int, int]) -> None:
    drawn = torch.zeros(1, 10, 36, 36)
    drawn[:, 1], drawn[:, 2] = DIGITS[:, 0], DIGITS[:, 1]
    drawn[:, 3], drawn[:, 7] = DIGITS[:, 1], DIGITS[:, 0]  # a class that is right needs no likeness
    found = match(torch.tensor([predicted]), torch.tensor([[3, 7]]), drawn, DIGITS)
    assert tuple(found[0].tolist()) == expected


def test_pictures_are_picked_by_class() -> None:
    drawn = torch.arange(30.0).view(3, 10, 1, 1)
    assert of_classes(drawn, torch.tensor([[0, 9], [5, 5], [2, 1]])).flatten().tolist() == [0, 9, 15, 15, 22, 21]


def test_leakage_is_held_against_the_mean_ink_of_both_digits() -> None:
    drawn, digits = torch.zeros(1, 10, 36, 36), pair(square(0, 0), square(20, 20, side=5))  # of 100 and 25 pixels
    drawn[:, 0] = square(0, 0)
    assert leakage(drawn, digits, torch.tensor([[3, 7]])).tolist() == pytest.approx([100 * 100 / 62.5 / 8])


def test_a_digit_s_faint_pixels_are_ink_and_not_bright() -> None:
    """The edge of a stroke is grey: at 0.5 a drawing of what is bright alone is the digit."""
    digits = pair(square(0, 0) + square(10, 0, level=0.3), square(20, 20) + square(10, 20, level=0.3))
    found = values(pair(square(0, 0), square(20, 20)), digits)
    assert (found["dice"], found["iou"]) == (1, 1)
    assert (found["dice_ink"], found["iou_ink"]) == (pytest.approx(2 / 3), 0.5)
