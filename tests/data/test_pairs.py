"""Pairs of digits: MultiMNIST and the two-digit task."""

from __future__ import annotations

import hashlib

import pytest
import torch
from made import assert_made_ahead_is_alike, dot_digits, noise_digits, uci_digits
from scipy.stats import chisquare

from capsbench.data import multimnist, pairing, two_digit
from capsbench.data.batch import DigitSet
from capsbench.data.digits import load_digits
from capsbench.data.multimnist import PairSet, overlap
from capsbench.data.pairing import PairMaker, Pairs, Partners
from capsbench.data.placed import place, unit
from capsbench.data.source import find_source
from capsbench.data.two_digit import TwoDigitPairs, resized
from capsbench.errors import DataError

DIGITS = noise_digits(200)
SETS: dict[str, PairMaker] = {
    "paper": PairSet(DIGITS, seed=1, size=2000),
    "official": PairSet(DIGITS, seed=1, size=2000, placement="official"),
    "height": TwoDigitPairs(DIGITS, seed=1, size=2000),
    "width": TwoDigitPairs(DIGITS, seed=1, size=2000, axis="width"),
}


def made_of(name: str, start: int, stop: int) -> Pairs:
    return SETS[name].make(torch.arange(start, stop))


@pytest.mark.parametrize("name", SETS)
def test_any_pair_can_be_made_again_alone(name: str) -> None:
    whole = made_of(name, 0, 500)
    for start, stop in ((77, 78), (0, 64), (400, 500)):
        for field, again in zip(whole, made_of(name, start, stop), strict=True):
            assert torch.equal(field[start:stop], again)
    backwards = SETS[name].make(torch.arange(499, -1, -1))
    assert torch.equal(backwards.images.flip(0), whole.images)


@pytest.mark.parametrize("name", SETS)
def test_a_pair_is_its_two_digits_placed_added_and_clipped(name: str) -> None:
    pairs = made_of(name, 0, 300)
    height, width = {"height": (56, 28), "width": (28, 56)}.get(name, (36, 36))
    assert (SETS[name].height, SETS[name].width) == (height, width)
    assert pairs.images.shape == (300, 1, height, width)
    assert pairs.digits.shape == (300, 2, height, width)
    assert torch.equal(pairs.labels, DIGITS.labels[pairs.bases])
    for which in (0, 1):
        alone = place(DIGITS.images[pairs.bases[:, which]], *pairs.shifts[:, which].unbind(1), height, width)
        assert torch.equal(alone[:, 0], pairs.digits[:, which])
    grey = (pairs.digits * 255).round()
    merged = (grey[:, 0] + grey[:, 1]).clamp(max=255)
    assert torch.equal(pairs.images[:, 0], merged * (1 / 255))
    assert (pairs.images.max() == 1) or name in ("height", "width")


@pytest.mark.parametrize("digits", [DIGITS, noise_digits(50, classes=2), uci_digits(40)], ids=["ten", "two", "uci"])
@pytest.mark.parametrize("seed", range(3))
def test_the_classes_of_a_pair_always_differ(digits: DigitSet, seed: int) -> None:
    size = 20 * len(digits.labels)
    bases = Partners(digits.labels, seed=seed, size=size).bases(torch.arange(size))
    assert (digits.labels[bases[:, 0]] != digits.labels[bases[:, 1]]).all()


def test_every_digit_gets_its_share_of_pairs_and_no_partner_twice() -> None:
    bases = made_of("paper", 0, 2000).bases
    first = bases[:, 0]
    for start in range(0, 2000, 200):
        assert first[start : start + 200].sort().values.tolist() == list(range(200))
    assert len({tuple(pair) for pair in bases.tolist()}) == 2000
    assert chisquare(torch.bincount(bases[:, 1], minlength=200).numpy()).pvalue > 1e-4


def test_every_other_class_is_equally_likely_as_partner() -> None:
    digits = noise_digits(2000)
    labels = PairSet(digits, seed=4, size=20_000).make(torch.arange(20_000)).labels
    table = torch.bincount(labels[:, 0] * 10 + labels[:, 1], minlength=100).view(10, 10)
    assert (table.diagonal() == 0).all()
    assert chisquare(table[~torch.eye(10, dtype=torch.bool)].numpy()).pvalue > 1e-4


def test_seeds_give_other_pairs() -> None:
    one, two = (PairSet(DIGITS, seed=seed, size=2000).make(torch.arange(2000)) for seed in (1, 2))
    assert (one.bases[:, 0] == two.bases[:, 0]).double().mean() < 0.03
    assert (one.shifts == two.shifts).double().mean() < 0.15


def test_seeds_give_a_digit_another_first_partner_and_another_way_on_from_it() -> None:
    """Digit by digit, since seeds differ anyway in the order in which the digits come."""
    labels = torch.arange(200) // 100  # two classes: all partners of a digit lie side by side
    starts, strides = [], []
    for seed in (1, 2):
        bases = Partners(labels, seed=seed, size=400).bases(torch.arange(400)).view(2, 200, 2)  # two rounds
        partner = torch.stack([turn[turn[:, 0].argsort(), 1] for turn in bases])  # [2, 200] of digits 0, 1, 2, ...
        starts.append(partner[0])
        strides.append((partner[1] - partner[0]) % 100)
    assert (starts[0] == starts[1]).double().mean() < 0.05  # by chance 1 in 100
    assert (strides[0] == strides[1]).double().mean() < 0.1  # 1 in 40


def test_seeds_give_a_digit_another_shift_in_the_official_placement() -> None:
    shifts = []
    for seed in (1, 2):
        bases, places = PairSet(DIGITS, seed=seed, size=200, placement="official").draw(torch.arange(200))
        shifts.append(places[bases[:, 0].argsort(), 0])  # [200, 2] of digits 0, 1, 2, ...
    assert (shifts[0] == shifts[1]).all(1).double().mean() < 0.05  # by chance 1 in 169


def test_shifts_of_the_paper_are_uniform_and_independent() -> None:
    pairs = PairSet(noise_digits(2000), seed=3, size=20_000)
    shifts = pairs.draw(torch.arange(20_000))[1] + 4  # [n, 2, 2] in 0..8
    assert shifts.min() == 0
    assert shifts.max() == 8
    first, second = shifts[:, 0, 0] * 9 + shifts[:, 0, 1], shifts[:, 1, 0] * 9 + shifts[:, 1, 1]
    assert chisquare(torch.bincount(first, minlength=81).numpy()).pvalue > 1e-4
    assert chisquare(torch.bincount(second, minlength=81).numpy()).pvalue > 1e-4
    both = (first // 9) * 9 + second // 9
    assert chisquare(torch.bincount(both, minlength=81).numpy()).pvalue > 1e-4


def test_in_the_official_placement_a_digit_keeps_its_shift_in_all_its_pairs() -> None:
    bases, shifts = SETS["official"].draw(torch.arange(2000))
    own = {int(base): tuple(shift) for base, shift in zip(bases[:200, 0], shifts[:200, 0].tolist(), strict=True)}
    assert [own[int(base)] for base in bases[:, 0]] == [tuple(shift) for shift in shifts[:, 0].tolist()]
    assert len(set(own.values())) > 80
    partners = shifts[:, 1].reshape(10, 200, 2)
    assert (partners[0] == partners[1]).all(1).double().mean() < 0.05
    assert shifts.abs().max() == 6


@pytest.mark.parametrize(
    ("options", "side", "expected"),
    [({}, 28, 0.80), ({}, 20, 0.73), ({"placement": "official"}, 28, 0.72), ({"max_shift": 0}, 28, 1.0)],
)
def test_overlap_of_the_boxes(options: dict, side: int, expected: float) -> None:
    pairs = PairSet(dot_digits(5000), seed=0, size=10_000, **options)
    found = overlap(pairs.make(torch.arange(10_000)), side)
    assert found.shape == (10_000,)
    assert found.mean().item() == pytest.approx(expected, abs=0.01)


def test_overlap_is_the_share_of_the_box_that_is_covered() -> None:
    white = DigitSet(torch.full((20, 28, 28), 255, dtype=torch.uint8), torch.arange(20) % 10)
    pairs = PairSet(white, seed=0, size=100).make(torch.arange(100))
    covered = (pairs.digits[:, 0] * pairs.digits[:, 1]).double().sum((1, 2)) / 28**2
    assert torch.allclose(overlap(pairs), covered)
    far = pairs._replace(shifts=torch.tensor([[[0, 0], [30, -2]]]))
    assert overlap(far).tolist() == [0]


@pytest.mark.parametrize(
    ("stream", "height", "width"),
    [
        (lambda batch: multimnist.training_stream(DIGITS, seed=1, batch=batch, pairs=700), 36, 36),
        (
            lambda batch: multimnist.training_stream(DIGITS, seed=1, batch=batch, pairs=700, placement="official"),
            36,
            36,
        ),
        (lambda batch: two_digit.pair_stream(DIGITS, seed=1, batch=batch, pairs=700), 56, 28),
        (lambda batch: two_digit.pair_stream(DIGITS, seed=1, batch=batch, pairs=700, axis="width"), 28, 56),
    ],
    ids=["paper", "official", "height", "width"],
)
def test_training_batches(stream, height: int, width: int) -> None:
    small, large = stream(7), stream(100)
    assert (small.size, small.height, small.width) == (700, height, width)
    batches = [large.batch(step) for step in range(14)]  # two epochs
    images = torch.cat([batch.images for batch in batches])
    assert torch.equal(torch.cat([small.batch(step).images for step in range(200)]), images)
    assert batches[0].labels.shape == (100, 2)
    assert batches[0].digits.shape == (100, 2, height, width)
    assert all((batch.labels[:, 0] != batch.labels[:, 1]).all() for batch in batches)
    first, second = ([image.numpy().tobytes() for image in epoch] for epoch in images.split(700))
    assert sorted(first) == sorted(second)  # the same pairs
    assert first != second  # in another order


def test_a_pair_stream_of_the_positive_control_takes_each_digit_once_an_epoch() -> None:
    assert two_digit.pair_stream(DIGITS, seed=1, batch=8).size == 200


def test_the_papers_scale_is_not_stored() -> None:
    stream = multimnist.training_stream(DIGITS, seed=0, batch=4, pairs=200 * 180)  # the most that 200 digits give
    assert stream.batch(8999).images.shape == (4, 1, 36, 36)
    kept = [tensor for drawn in stream._drawn._drawn.values() for tensor in drawn]
    assert sum(tensor.numel() for tensor in kept) <= 2 * 6 * (1 << 16)


def test_pictures_made_ahead_are_those_made_one_batch_at_a_time(monkeypatch) -> None:
    # an epoch of 200 is no multiple of the batch
    assert_made_ahead_is_alike(
        pairing, lambda: multimnist.training_stream(DIGITS, seed=0, batch=7, pairs=200), monkeypatch
    )


def test_stacked_digits_stand_in_their_halves() -> None:
    tall, wide = made_of("height", 0, 50), made_of("width", 0, 50)
    top, bottom = (unit(DIGITS.images[base]) for base in tall.bases.unbind(1))
    assert torch.equal(tall.images[:, 0], torch.cat([top, bottom], dim=1))
    assert torch.equal(wide.images[:, 0], torch.cat([top, bottom], dim=2))


def test_resizing_takes_means_of_areas() -> None:
    pairs = made_of("height", 0, 20)
    small = resized(pairs, 28)
    assert torch.allclose(small.images, (pairs.images[:, :, 0::2] + pairs.images[:, :, 1::2]) / 2)
    assert torch.allclose(small.digits, (pairs.digits[:, :, 0::2] + pairs.digits[:, :, 1::2]) / 2)
    assert torch.equal(small.labels, pairs.labels)
    assert resized(made_of("width", 0, 3), 14).images.shape == (3, 1, 14, 14)


@pytest.mark.parametrize("make", [PairSet, TwoDigitPairs])
def test_too_few_digits_are_an_error(make: type[PairMaker]) -> None:
    for digits in (noise_digits(0), noise_digits(30, classes=1)):
        with pytest.raises(DataError, match=f"at least two classes, but these {len(digits.labels)} digits hold"):
            make(digits, seed=0, size=10)
    few = DigitSet(noise_digits(30).images, torch.tensor([3] * 28 + [4, 5]))
    assert len(make(few, seed=0, size=60).make(torch.arange(60)).labels) == 60
    with pytest.raises(DataError, match=r"61 pairs of 30 digits are 3 pairs a digit, but a digit of class 3 .* only 2"):
        make(few, seed=0, size=61)


def test_the_papers_numbers_hold_on_mnist(mnist_folder) -> None:
    train, test = load_digits(find_source("mnist", mnist_folder))
    for digits, size in ((train, 60_000_000), (test, 10_000_000)):
        pairs = PairSet(digits, seed=0, size=size)
        indices = torch.cat([torch.arange(500), torch.arange(size - 500, size)])
        made = pairs.make(indices)
        assert (made.labels[:, 0] != made.labels[:, 1]).all()
        assert made.bases.max() < len(digits.labels)
        assert overlap(made).mean().item() == pytest.approx(0.80, abs=0.02)
        ink = unit(digits.images[made.bases]).double().sum((2, 3))
        assert torch.allclose(made.digits.double().sum((2, 3)), ink, rtol=0.02)  # MNIST's ink keeps off the border


def digest_of(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("paper", "c631adccf7e966ba"), ("official", "262e77bf85bdd0df"), ("height", "a1679009063154bf")],
)
def test_the_pairs_of_a_seed_stay_those_they_were(name: str, expected: str) -> None:
    """The same on every machine and in every version: other pairs would be another test set of every published row."""
    assert digest_of(*SETS[name].draw(torch.arange(2000))) == expected


def test_the_order_of_training_pairs_stays_what_it_was() -> None:
    stream = SETS["paper"].stream(batch=50)
    assert digest_of(*(stream.batch(step).labels for step in range(80))) == "f5b04e19c47f88ec"  # two epochs


def test_the_shift_that_a_caller_names_is_that_of_the_training_pairs() -> None:
    stream = multimnist.training_stream(dot_digits(40), seed=0, batch=40, pairs=200, max_shift=0)
    digits = torch.cat([stream.batch(step).digits for step in range(5)])
    assert (digits[:, :, 18, 18] == 1).all()


def test_each_digit_of_a_training_batch_stands_beside_its_own_label() -> None:
    """The decoder is to draw the first picture from the capsule of the first label."""
    levels = 10 * torch.arange(1, 11, dtype=torch.uint8)
    digits = DigitSet(levels[:, None, None].expand(-1, 28, 28).repeat(5, 1, 1), torch.arange(50) % 10)
    for stream in (
        multimnist.training_stream(digits, seed=1, batch=40, pairs=200),
        two_digit.pair_stream(digits, seed=1, batch=40, pairs=200),
    ):
        batch = stream.batch(2)
        assert torch.equal((batch.digits.amax((2, 3)) * 255).round().long(), 10 * (batch.labels + 1))
