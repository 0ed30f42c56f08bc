"""The synthetic affNIST: parameters, pictures, and that no ink is ever lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from made import dot_digits, noise_digits, uci_digits
from scipy.stats import kstest

from capsbench.data import affine
from capsbench.data.affnist import FACTORS, PlacedSet, SyntheticAffnist, one_factor, placed_set
from capsbench.data.affnist_sets import held_out_set
from capsbench.data.batch import DigitSet
from capsbench.data.digits import load_digits
from capsbench.data.placed import unit
from capsbench.data.source import find_source
from capsbench.data.testing import TEST_SEED
from capsbench.errors import DataError

NEUTRAL = {"rotation": 0, "shear": 0, "scale_y": 1, "scale_x": 1, "translation_y": 0, "translation_x": 0}


def dot_after(y: int, x: int, **changed: float) -> tuple[float, float]:
    """Where the centre of a 3 x 3 patch around (y, x) lands on 40 x 40."""
    image = torch.zeros(1, 28, 28, dtype=torch.uint8)
    image[:, y - 1 : y + 2, x - 1 : x + 2] = 255
    values = {name: np.full(1, float(value)) for name, value in (NEUTRAL | changed).items()}
    ink = affine.render(image, affine.backward(values, 40), 40)[0, 0].double()
    along = torch.arange(40)
    return (ink.sum(1) @ along.double() / ink.sum()).item(), (ink.sum(0) @ along.double() / ink.sum()).item()


def near(y: float, x: float) -> object:
    return pytest.approx((y, x), abs=0.06)


def test_the_conventions_of_each_parameter() -> None:
    # The centre of a digit is (13.5, 13.5), that of the canvas (19.5, 19.5).
    assert dot_after(14, 22) == near(20, 28)
    assert dot_after(14, 22, translation_y=-3.25, translation_x=2.5) == near(16.75, 30.5)
    assert dot_after(14, 22, scale_x=1.2) == near(20, 19.5 + 1.2 * 8.5)
    assert dot_after(5, 14, scale_y=0.8) == near(19.5 - 0.8 * 8.5, 20)
    assert dot_after(5, 14, shear=0.2) == near(11, 20 - 0.2 * 8.5)  # what is above moves left, what is below right
    turn = math.radians(20)  # anticlockwise: what is on the right goes up
    down, right = 0.5 * math.cos(turn) - 8.5 * math.sin(turn), 0.5 * math.sin(turn) + 8.5 * math.cos(turn)
    assert dot_after(14, 22, rotation=20) == near(19.5 + down, 19.5 + right)


def test_the_neutral_transform_changes_no_pixel() -> None:
    digits = noise_digits(20)
    values = {name: np.full(20, float(value)) for name, value in NEUTRAL.items()}
    images = affine.render(digits.images, affine.backward(values, 40), 40)
    assert torch.equal(images[:, 0, 6:34, 6:34], unit(digits.images))
    assert images.count_nonzero() == digits.images.count_nonzero()


def test_the_ranges_of_the_parameters() -> None:
    parameters = SyntheticAffnist(uci_digits(40), per_digit=100, seed=0).parameters
    assert list(parameters) == ["rotation", "shear", "scale_y", "scale_x", "translation_y", "translation_x"]
    for name, low, high in (("rotation", -20, 20), ("shear", -0.2, 0.2), ("scale_y", 0.8, 1.2), ("scale_x", 0.8, 1.2)):
        values = parameters[name]
        assert values.dtype == np.float64
        assert kstest(values, "uniform", args=(low, high - low)).pvalue > 1e-4  # also fails outside the range
        assert values.min() >= low
        assert values.max() <= high
    correlation = np.corrcoef(np.stack(list(parameters.values())))
    assert np.abs(correlation - np.eye(6)).max() < 0.1


def test_the_translation_is_uniform_from_edge_to_edge() -> None:
    made = SyntheticAffnist(dot_digits(10), per_digit=300, seed=0)
    linear = affine.matrices(*(made.parameters[name] for name in affine.RANGES))
    for row, name in ((0, "translation_x"), (1, "translation_y")):
        landed = 19.5 + linear[:, row].sum(axis=1) / 2 + made.parameters[name]  # the dot is half a pixel off the centre
        reach = np.abs(linear[:, row]).sum(axis=1)  # how far its bilinear support goes
        assert kstest((landed + 1 - reach) / (41 - 2 * reach), "uniform").pvalue > 1e-4


def check_that_no_ink_is_lost(digits: DigitSet, made: SyntheticAffnist, canvas: int) -> None:
    images = made.images(0, len(made))
    # On a canvas with 10 pixels more all round, the same transforms leave those 10 pixels black.
    wide = affine.render(digits.images[made.source], affine.backward(made.parameters, canvas + 20), canvas + 20)
    inner = wide[:, :, 10:-10, 10:-10]
    assert wide.sum() > 0
    assert torch.equal(wide.sum((1, 2, 3), dtype=torch.float64), inner.sum((1, 2, 3), dtype=torch.float64))
    assert (images - inner).abs().max() <= 1 / 255 + 1e-6
    area = np.linalg.det(affine.matrices(*(made.parameters[name] for name in affine.RANGES)))
    before = unit(digits.images).double().sum((1, 2))[made.source] * torch.from_numpy(area)
    ratio = images.double().sum((1, 2, 3)) / before
    assert ratio.mean().item() == pytest.approx(1, abs=0.005)
    assert (ratio - 1).abs().max() < 0.1


@pytest.mark.parametrize("digits", [uci_digits(40), noise_digits(40)], ids=["uci", "noise"])
def test_no_ink_is_lost(digits: DigitSet) -> None:
    check_that_no_ink_is_lost(digits, SyntheticAffnist(digits, per_digit=16, seed=2), 40)


def test_no_ink_of_mnist_is_lost(mnist_folder) -> None:
    test = load_digits(find_source("mnist", mnist_folder)).test
    digits = DigitSet(test.images[::25], test.labels[::25])
    check_that_no_ink_is_lost(digits, SyntheticAffnist(digits, per_digit=4, seed=0), 40)


def test_ink_up_to_the_border_is_drawn_again_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    full = DigitSet(torch.full((20, 28, 28), 255, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64))
    check_that_no_ink_is_lost(full, SyntheticAffnist(full, per_digit=16, seed=0), 40)
    monkeypatch.setattr(affine, "ATTEMPTS", 1)
    with pytest.raises(DataError, match="under each of 1 random"):
        SyntheticAffnist(full, per_digit=16, seed=0)


def test_digits_that_never_fit_are_an_error() -> None:
    with pytest.raises(DataError, match="Digit 0 lost ink under each of 64 random transforms on 16 x 16 pixels"):
        SyntheticAffnist(noise_digits(3), seed=0, canvas=16)


def test_a_blank_image_stays_blank() -> None:
    blank = DigitSet(torch.zeros(2, 28, 28, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    assert SyntheticAffnist(blank, seed=0).images(0, 64).sum() == 0


def test_a_digits_transforms_depend_on_the_seed_its_place_and_its_own_ink_only(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = uci_digits(40)
    whole = SyntheticAffnist(digits, per_digit=8, seed=5).parameters
    fewer = SyntheticAffnist(DigitSet(digits.images[:9], digits.labels[:9]), per_digit=3, seed=5).parameters
    monkeypatch.setattr(affine, "AT_ONCE", 7)
    pieces = SyntheticAffnist(digits, per_digit=8, seed=5).parameters
    other = SyntheticAffnist(digits, per_digit=8, seed=6).parameters
    for name, values in whole.items():
        assert np.array_equal(values.reshape(40, 8)[:9, :3], fewer[name].reshape(9, 3))
        assert np.array_equal(values, pieces[name])
        assert not np.isin(values, other[name]).any()
        assert len(np.unique(values)) == len(values)  # no two digits share a transform


def test_the_digest_is_of_the_parameters() -> None:
    digits = DigitSet(noise_digits(4).images, torch.arange(4))
    made = SyntheticAffnist(digits, per_digit=4, seed=3)
    # The same on every machine: a change means that another test set is made.
    assert made.digest == "e853395ab5caed22b63215ce2ead38799473479b6d66f010b240a062c8be549c"
    assert SyntheticAffnist(digits, per_digit=4, seed=4).digest != made.digest


def test_images_come_in_any_batches_with_their_labels() -> None:
    digits = uci_digits(40)
    made = SyntheticAffnist(digits, per_digit=8, seed=1)
    assert (made.name, len(made)) == ("affnist-synth", 320)
    whole = made.images(0, 320)
    assert (whole.shape, whole.dtype) == ((320, 1, 40, 40), torch.float32)
    assert torch.equal(whole, torch.cat([made.images(start, min(start + 33, 320)) for start in range(0, 320, 33)]))
    assert torch.equal(whole[77:78], made.images(77, 78))
    assert (whole * 255 - (whole * 255).round()).abs().max() < 1e-4  # whole grey levels
    assert torch.equal(made.source, torch.arange(320) // 8)
    assert torch.equal(made.labels, digits.labels[made.source])


@pytest.mark.parametrize("factor", FACTORS)
def test_one_factor_leaves_the_others_alone(factor: str) -> None:
    digits = uci_digits(40)
    neutral = 1 if factor == "scale" else 0
    assert neutral in FACTORS[factor]
    centred = one_factor(digits, factor, neutral)
    assert torch.equal(centred[:, 0, 6:34, 6:34], unit(digits.images))
    assert centred.shape == (40, 1, 40, 40)
    ink = unit(digits.images).double().sum((1, 2))
    for value in FACTORS[factor]:
        images = one_factor(digits, factor, value)
        area = value**2 if factor == "scale" else 1
        assert (images.double().sum((1, 2, 3)) / (ink * area)).mean().item() == pytest.approx(1, abs=0.02)
        assert (value == neutral) == torch.equal(images, centred)


def test_one_factor_is_the_factor_it_says() -> None:
    digits = uci_digits(40)
    assert torch.equal(one_factor(digits, "translation", 4), one_factor(digits, "translation", 0).roll((4, 4), (2, 3)))
    back = one_factor(digits, "translation", 0).roll((-4, -4), (2, 3))
    assert torch.equal(one_factor(digits, "translation", -4), back)
    turned = one_factor(digits, "rotation", 90)
    assert torch.equal(turned, one_factor(digits, "rotation", 0).rot90(1, (2, 3)))  # anticlockwise
    values = {name: np.full(40, float(value)) for name, value in (NEUTRAL | {"shear": 0.4}).items()}
    assert torch.equal(one_factor(digits, "shear", 0.4), affine.render(digits.images, affine.backward(values, 40), 40))
    small, large = one_factor(digits, "scale", 0.6), one_factor(digits, "scale", 1.4)
    assert (small.amax((1, 2)) > 0).sum() < (large.amax((1, 2)) > 0).sum()
    assert (small.amax((1, 3)) > 0).sum() < (large.amax((1, 3)) > 0).sum()


def test_held_out_digits_stand_at_seeded_places() -> None:
    held_out = placed_set(dot_digits(4000), seed=2)
    assert isinstance(held_out, PlacedSet)
    assert len(held_out) == 4000
    images = held_out.images(0, 4000)
    assert images.shape == (4000, 1, 40, 40)
    assert torch.equal(images[100:200], held_out.images(100, 200))
    assert torch.equal(images, placed_set(dot_digits(4000), seed=2).images(0, 4000))
    assert not torch.equal(images, placed_set(dot_digits(4000), seed=3).images(0, 4000))
    places = {tuple(place) for place in images[:, 0].nonzero()[:, 1:].tolist()}
    assert len(places) == 169
    assert {y for y, _ in places} == {x for _, x in places} == set(range(14, 27))
    assert torch.equal(held_out.labels, torch.arange(4000) % 10)
    assert torch.equal(held_out.source, torch.arange(4000))


def test_held_out_digits_are_the_first_at_the_places_of_the_test_seed() -> None:
    """The seed is the paper's number on arXiv: with another one no figure could be compared with earlier ones."""
    assert TEST_SEED == 171009829
    digits = noise_digits(50)
    expected = placed_set(DigitSet(digits.images[:20], digits.labels[:20]), seed=171009829)
    assert torch.equal(held_out_set(digits, 20).images(0, 20), expected.images(0, 20))


def test_the_places_of_held_out_digits_stay_those_they_were() -> None:
    places = placed_set(dot_digits(5), seed=171009829).images(0, 5)[:, 0].nonzero()[:, 1:]
    assert places.tolist() == [[14, 16], [23, 20], [22, 15], [15, 18], [24, 15]]


def test_the_factors_are_those_of_the_documentation() -> None:
    """Other values would be other figures under the same names."""
    assert FACTORS == {
        "rotation": (-40, -30, -20, -10, 0, 10, 20, 30, 40),
        "shear": (-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4),
        "scale": (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4),
        "translation": (-8, -6, -4, -2, 0, 2, 4, 6, 8),
    }


def test_the_digit_that_never_fits_is_named_by_its_own_number() -> None:
    full = torch.full((1, 28, 28), 255, dtype=torch.uint8)
    digits = DigitSet(torch.cat([dot_digits(3).images, full]), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(DataError, match="Digit 3 lost ink"):
        SyntheticAffnist(digits, per_digit=4, seed=0, canvas=24)
