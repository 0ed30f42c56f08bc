"""Digits on a canvas: shifts, zero fill, and the training streams of MNIST and affNIST."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from made import assert_made_ahead_is_alike, dot_digits, noise_digits
from scipy.stats import chisquare

from capsbench.data import affnist, mnist, placed, two_digit
from capsbench.data.batch import DigitSet
from capsbench.data.order import made_ahead
from capsbench.data.placed import PlacedStream, place, place_pixels, unit
from capsbench.errors import DataError

STREAMS: dict[str, tuple[Callable[..., PlacedStream], int, int]] = {
    "mnist": (mnist.training_stream, 28, 2),
    "affnist": (affnist.training_stream, 40, 6),
    "two_digit": (two_digit.training_stream, 28, 0),
}


def shifts_of(images: torch.Tensor) -> torch.Tensor:
    """(down, right) of the one white pixel of each image [B, 1, H, W]; fails if there is not exactly one."""
    found = images[:, 0].nonzero()
    assert found[:, 0].tolist() == list(range(len(images)))
    assert (images.flatten(1).max(1).values == 1).all()
    return found[:, 1:] - 14 - (images.shape[-1] - 28) // 2


@pytest.mark.parametrize("task", STREAMS)
def test_pictures_made_ahead_are_those_made_one_batch_at_a_time(task: str, monkeypatch) -> None:
    # an epoch of 200 is no multiple of the batch
    assert_made_ahead_is_alike(placed, lambda: STREAMS[task][0](noise_digits(200), seed=0, batch=7), monkeypatch)


def test_pictures_are_made_ahead_on_a_gpu_alone() -> None:
    assert [made_ahead(128, torch.device(name)) for name in ("cuda", "cpu")] == [2048, 128]


@pytest.mark.parametrize(
    ("height", "width", "reach"), [(28, 28, 2), (40, 40, 6), (36, 36, 6), (56, 28, 14), (28, 28, 40)]
)
def test_placing_is_padding_and_cutting(height: int, width: int, reach: int) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50, 28, 28), dtype=np.uint8)
    dy, dx = rng.integers(-reach, reach + 1, (2, 50))
    expected = []
    for image, down, right in zip(images, dy, dx, strict=True):
        wide = np.pad(image, 80)  # [188, 188], the digit's first pixel at (80, 80)
        top, left = 80 - (height - 28) // 2 - down, 80 - (width - 28) // 2 - right
        expected.append(wide[top : top + height, left : left + width])
    shifts = torch.from_numpy(dy), torch.from_numpy(dx)
    found = place_pixels(torch.from_numpy(images), *shifts, height, width)
    assert np.array_equal(found.numpy(), np.stack(expected))
    placed = place(torch.from_numpy(images), *shifts, height, width)
    assert placed.shape == (50, 1, height, width)
    assert torch.equal(placed[:, 0], unit(found))


def test_pixels_become_fractions() -> None:
    assert unit(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == [0, pytest.approx(0.2), 1]


@pytest.mark.parametrize("name", STREAMS)
def test_a_batch_holds_digits_with_their_labels(name: str) -> None:
    make, canvas, _ = STREAMS[name]
    digits = noise_digits(50)
    stream = make(digits, seed=3, batch=16)
    assert (stream.size, stream.height, stream.width) == (50, canvas, canvas)
    batch = stream.batch(2)
    assert (batch.images.shape, batch.images.dtype) == ((16, 1, canvas, canvas), torch.float32)
    assert (batch.labels.shape, batch.labels.dtype) == ((16, 1), torch.int64)
    assert torch.equal(batch.digits, batch.images)
    by_ink = {
        int(image.sum()): int(label) for image, label in zip(*digits, strict=True)
    }  # no ink leaves: a fingerprint
    assert len(by_ink) == 50
    inks = (batch.images.double().sum((1, 2, 3)) * 255).round().long().tolist()
    assert [by_ink[ink] for ink in inks] == batch.labels[:, 0].tolist()


@pytest.mark.parametrize("name", STREAMS)
def test_examples_do_not_depend_on_the_batch_size(name: str) -> None:
    make = STREAMS[name][0]
    small, large = (make(noise_digits(50), seed=3, batch=size) for size in (7, 70))
    images = torch.cat([small.batch(step).images for step in range(20)])
    assert torch.equal(images, torch.cat([large.batch(step).images for step in range(2)]))
    assert torch.equal(small.batch(3).images, images[21:28])  # made again alone
    assert not torch.equal(make(noise_digits(50), seed=4, batch=7).batch(0).images, images[:7])


@pytest.mark.parametrize("name", ["mnist", "affnist"])
def test_every_shift_is_equally_likely_and_each_image_has_its_own(name: str) -> None:
    make, _, reach = STREAMS[name]
    stream = make(dot_digits(4000), seed=1, batch=1000)
    shifts = torch.cat([shifts_of(stream.batch(step).images) for step in range(16)])  # four epochs
    assert shifts.abs().max() == reach
    counts = torch.bincount((shifts[:, 0] + reach) * (2 * reach + 1) + shifts[:, 1] + reach)
    assert len(counts) == (2 * reach + 1) ** 2  # 25 or 169
    assert chisquare(counts.numpy()).pvalue > 1e-4
    assert (shifts[1:] == shifts[:-1]).all(1).double().mean() < 2 / len(counts)  # not one shift a batch


def test_an_image_is_shifted_anew_each_epoch() -> None:
    one = DigitSet(dot_digits(1).images, torch.tensor([3]))
    shifts = shifts_of(mnist.training_stream(one, seed=1, batch=200).batch(0).images)
    assert len({tuple(shift) for shift in shifts.tolist()}) == 25


@pytest.mark.parametrize("name", ["mnist", "affnist"])
def test_seeds_shift_the_same_digit_in_ways_of_their_own(name: str) -> None:
    """Of one digit there is one order: seeds can differ in its shifts alone."""
    make, _, reach = STREAMS[name]
    one = DigitSet(dot_digits(1).images, torch.tensor([3]))
    first, second, again = (shifts_of(make(one, seed=seed, batch=400).batch(0).images) for seed in (0, 1, 0))
    assert (first == second).all(1).double().mean() < 3 / (2 * reach + 1) ** 2  # by chance 1 in 25 or 169
    assert torch.equal(first, again)


def test_what_is_shifted_out_is_cut_and_what_comes_in_is_black() -> None:
    white = DigitSet(torch.full((1, 28, 28), 255, dtype=torch.uint8), torch.tensor([0]))
    images = mnist.training_stream(white, seed=1, batch=300).batch(0).images[:, 0]
    rows, columns = images.amax(2).sum(1), images.amax(1).sum(1)  # [300] how many rows and columns still hold white
    assert {28, 27, 26} == set(rows.tolist()) == set(columns.tolist())
    assert torch.equal(images.sum((1, 2)), rows * columns)


def test_nothing_is_shifted_at_test_and_in_the_two_digit_task() -> None:
    digits = noise_digits(20)
    assert torch.equal(mnist.test_images(digits, 5, 9), unit(digits.images[5:9])[:, None])
    batch = two_digit.training_stream(digits, seed=1, batch=20).batch(0)
    assert {image.numpy().tobytes() for image in batch.images} == {i.numpy().tobytes() for i in unit(digits.images)}


def test_no_digits_are_an_error() -> None:
    with pytest.raises(DataError, match="no digits to train on"):
        mnist.training_stream(noise_digits(0), seed=0, batch=8)


@pytest.mark.parametrize(("name", "expected"), [("mnist", "10ce1373fc1dc34f"), ("affnist", "5f6d241392987930")])
def test_the_batches_of_a_seed_stay_those_they_were(name: str, expected: str) -> None:
    stream = STREAMS[name][0](dot_digits(300), seed=1, batch=100)  # three epochs
    batches = [stream.batch(step) for step in range(9)]
    places = torch.cat([batch.images[:, 0].flatten(1).argmax(1) for batch in batches])
    labels = torch.cat([batch.labels[:, 0] for batch in batches])
    assert hashlib.sha256(torch.stack([places, labels]).numpy().tobytes()).hexdigest()[:16] == expected
