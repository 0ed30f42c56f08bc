"""Numbers drawn by counter: known values, evenly spread, and without a memory."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from capsbench.data import counter
from capsbench.data.counter import Purpose, below, permutation, random_u32, uniform

MANY = torch.arange(1 << 16)


def fair(values: torch.Tensor, bins: int) -> float:
    """The p-value of `values` in 0..bins-1 being equally likely."""
    return float(chisquare(torch.bincount(values.flatten(), minlength=bins).numpy()).pvalue)


def test_known_values() -> None:
    # A change here changes every order, shift and pair: results made before it cannot be compared with later ones.
    assert random_u32(0, Purpose.ORDER, torch.arange(3)).tolist() == [3409349177, 2270694225, 1552320329]
    assert random_u32(7, Purpose.PLACE, 5, torch.arange(3)).tolist() == [3933921713, 2331464813, 2661508583]
    assert random_u32(2**63 + 1, Purpose.AFFINE, torch.tensor(4), torch.tensor([0, 2**32 - 1])).tolist() == [
        187265987,
        2341760043,
    ]
    assert permutation(8, 3, Purpose.ORDER, 1, device="cpu").tolist() == [7, 0, 6, 3, 2, 4, 5, 1]


def test_each_purpose_keeps_a_number_of_its_own() -> None:
    """As above: another number gives other draws, and a number of two purposes one would be an alias of the other."""
    names = "ORDER BLOCK_ORDER PLACE HELD_OUT_PLACE FIRST_DIGIT PARTNER_START PARTNER_STRIDE PAIR_SHIFT BASE_SHIFT"
    names += " AFFINE ORIENTATION"
    known = {name: number for number, name in enumerate(names.split(), start=1)}
    assert {name: int(purpose) for name, purpose in Purpose.__members__.items()} == known


def test_a_number_does_not_depend_on_what_is_drawn_beside_it() -> None:
    together = random_u32(3, Purpose.PLACE, 2, MANY[:100, None], MANY[:7])
    assert together.shape == (100, 7)
    assert together[41, 5] == random_u32(3, Purpose.PLACE, 2, torch.tensor(41), torch.tensor(5))


def test_nothing_is_taken_from_torchs_generator() -> None:
    before = torch.get_rng_state()
    random_u32(3, Purpose.PLACE, MANY)
    permutation(100, 3, Purpose.ORDER, device="cpu")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_all_parts_of_the_word_are_uniform(seed: int) -> None:
    words = random_u32(seed, Purpose.PLACE, MANY)
    assert words.min() >= 0
    assert words.max() < 2**32
    for shift in (0, 8, 16, 24):
        assert fair((words >> shift) & 255, 256) > 1e-4
    assert fair(below(169, seed, Purpose.PLACE, MANY), 169) > 1e-4


def draws(
    seed: int = 1, purpose: Purpose = Purpose.PLACE, epoch: int = 0, index: int = 0, last: int = 0
) -> torch.Tensor:
    return below(16, seed, purpose, epoch, MANY + index, torch.tensor(last))


@pytest.mark.parametrize(
    "neighbour", [{"seed": 2}, {"seed": 2**32 + 1}, {"purpose": Purpose.ORDER}, {"epoch": 1}, {"index": 1}, {"last": 1}]
)
def test_neighbours_of_each_counter_are_independent(neighbour: dict) -> None:
    assert fair(draws() * 16 + draws(**neighbour), 256) > 1e-4


@pytest.mark.parametrize("other", [(2, Purpose.PLACE), (1, Purpose.ORDER)])
def test_two_seeds_or_purposes_do_not_share_their_numbers(other: tuple[int, Purpose]) -> None:
    # A hash with one key gives the same numbers in another order; by chance, one of 65,536 would be shared.
    shared = set(random_u32(1, Purpose.PLACE, MANY).tolist()) & set(random_u32(*other, MANY).tolist())
    assert len(shared) < 10


def test_one_bit_of_a_counter_flips_half_of_the_word() -> None:
    words = random_u32(3, Purpose.PLACE, MANY)
    for bit in range(16):
        flipped = words ^ random_u32(3, Purpose.PLACE, MANY ^ (1 << bit))
        for out in range(32):
            assert ((flipped >> out) & 1).double().mean().item() == pytest.approx(0.5, abs=0.02)


def test_below_takes_a_limit_for_each_number() -> None:
    limits = torch.tensor([1, 2, 10, 2**31 - 1])
    values = below(limits, 5, Purpose.PLACE, MANY[:, None])
    assert (values >= 0).all()
    assert (values < limits).all()
    assert values[:, :3].max(0).values.tolist() == [0, 1, 9]


def test_uniform_is_an_exact_fraction() -> None:
    values = uniform(5, Purpose.AFFINE, MANY)
    assert values.dtype == torch.float64
    assert torch.equal(values * 2**32, random_u32(5, Purpose.AFFINE, MANY).double())


def test_equal_hashes_are_ordered_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter, "random_u32", lambda *_: torch.tensor([7, 2**32 - 1, 7, 0, 7]))
    assert permutation(5, 0, Purpose.ORDER, device="cpu").tolist() == [3, 0, 2, 4, 1]


@pytest.mark.parametrize(
    ("seed", "counters"),
    [(-1, (MANY,)), (2**64, (MANY,)), (0, (2**32, MANY)), (0, (-1, MANY)), (0, (1,)), (0, ()), (0, (MANY, 1))],
)
def test_misuse_is_refused(seed: int, counters: tuple) -> None:
    with pytest.raises(ValueError, match="random_u32 takes"):
        random_u32(seed, Purpose.PLACE, *counters)
