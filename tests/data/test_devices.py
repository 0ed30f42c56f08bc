"""What is made on a GPU equals what is made on the CPU: integers to the bit, transformed pixels to one grey level."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from made import noise_digits, uci_digits

from capsbench.data import affnist, mnist, multimnist, two_digit
from capsbench.data.affnist import SyntheticAffnist, one_factor
from capsbench.data.batch import Batch, DigitSet
from capsbench.data.counter import Purpose, permutation, random_u32

DEVICE = "cuda"
pytestmark = pytest.mark.cuda


def there(digits: DigitSet) -> DigitSet:
    return DigitSet(digits.images.to(DEVICE), digits.labels.to(DEVICE))


def test_counters() -> None:
    counters = torch.arange(1 << 16)
    here = random_u32(2**40 + 3, Purpose.PLACE, 7, counters)
    assert torch.equal(random_u32(2**40 + 3, Purpose.PLACE, 7, counters.to(DEVICE)).cpu(), here)
    order = permutation(60_000, 1, Purpose.ORDER, 2, device="cpu")
    assert torch.equal(permutation(60_000, 1, Purpose.ORDER, 2, device=DEVICE).cpu(), order)


@pytest.mark.parametrize(
    "batch",
    [
        lambda digits: mnist.training_stream(digits, seed=1, batch=64).batch(5),
        lambda digits: affnist.training_stream(digits, seed=1, batch=64).batch(5),
        lambda digits: multimnist.training_stream(digits, seed=1, batch=64, pairs=900).batch(5),
        lambda digits: multimnist.training_stream(digits, seed=1, batch=64, pairs=900, placement="official").batch(5),
        lambda digits: two_digit.pair_stream(digits, seed=1, batch=64).batch(5),
    ],
    ids=["mnist", "affnist", "multimnist", "official", "two_digit"],
)
def test_training_batches(batch: Callable[[DigitSet], Batch]) -> None:
    for here, made in zip(batch(noise_digits(100)), batch(there(noise_digits(100))), strict=True):
        assert made.device.type == DEVICE
        assert torch.equal(made.cpu(), here)


def test_affine_images() -> None:
    here, made = (SyntheticAffnist(digits, seed=1) for digits in (uci_digits(), there(uci_digits())))
    assert made.digest == here.digest
    difference = (made.images(0, 1280).cpu() - here.images(0, 1280)).abs()
    assert difference.max() <= 1 / 255 + 1e-6
    assert (difference > 0).double().mean() < 1e-3
    turned = one_factor(there(uci_digits()), "rotation", 30).cpu()
    assert (turned - one_factor(uci_digits(), "rotation", 30)).abs().max() <= 1 / 255 + 1e-6
