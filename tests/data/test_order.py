"""The order of examples: each exactly once an epoch, whatever the batches."""

from __future__ import annotations

import pytest
import torch

from capsbench.data.order import BLOCK, DrawnAhead, EpochOrder


def order_of(size: int, seed: int = 1, **options: int) -> EpochOrder:
    return EpochOrder(size, seed=seed, device=torch.device("cpu"), **options)


@pytest.mark.parametrize(("size", "block"), [(1, 100), (100, 1000), (100, 100), (100, 10), (103, 10), (19, 10)])
def test_every_example_comes_once_an_epoch(size: int, block: int) -> None:
    order = order_of(size, block=block)
    for epoch in (0, 1, 7):
        assert order.indices(epoch * size, (epoch + 1) * size).sort().values.tolist() == list(range(size))


@pytest.mark.parametrize("batch", [1, 7, 64, 250])
def test_the_order_does_not_depend_on_the_batches_and_runs_on_across_epochs(batch: int) -> None:
    whole = order_of(103, block=20).indices(0, 500)
    order = order_of(103, block=20)
    pieces = [order.indices(start, min(start + batch, 500)) for start in range(0, 500, batch)]
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(order.indices(90, 250), whole[90:250])  # looking back changes nothing


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    order = order_of(1000)
    first, second = order.indices(0, 1000), order.indices(1000, 2000)
    for other in (second, order_of(1000, seed=2).indices(0, 1000), torch.arange(1000)):
        assert (first == other).sum() < 10  # by chance 1 of 1000 stays in its place


def test_blocks_come_in_random_order_and_the_incomplete_one_last() -> None:
    order = order_of(95, block=10)
    orders = []
    for epoch in range(3):
        examples = order.indices(epoch * 95, (epoch + 1) * 95)
        blocks = [set((part // 10).tolist()) for part in examples.split(10)]
        assert all(len(block) == 1 for block in blocks)
        assert blocks[-1] == {9}
        orders.append([block.pop() for block in blocks])
    assert orders[0] != orders[1] != orders[2] != list(range(10))


def test_seeds_have_orders_of_their_own_of_the_blocks_too() -> None:
    first, second, again = (order_of(1000, seed=seed, block=10).indices(0, 1000)[::10] // 10 for seed in (1, 2, 1))
    assert (first == second).sum() < 10  # by chance 1 of 100 blocks stays in its place
    assert torch.equal(first, again)


def test_an_order_keeps_two_blocks_however_large_the_set() -> None:
    order = order_of(60_000_000, block=1000)
    for start in range(0, 50_000, 700):
        order.indices(start, start + 700)
    held = [*order._orders.values()]
    assert len(held) <= 2
    assert sum(len(tensor) for tensor in held) <= 2000


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("batch", [1, 9, 33])
def test_drawing_ahead_changes_nothing(size: int, batch: int) -> None:
    calls = []

    def draw(start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append((start, stop))
        return torch.arange(start, stop), torch.arange(start, stop)[:, None] * 2

    ahead = DrawnAhead(draw, size=size, batch=batch)
    for start in range(0, 100, batch):
        single, double = ahead.take(start, start + batch)
        assert single.tolist() == list(range(start, start + batch))
        assert torch.equal(double[:, 0], single * 2)
    assert len(calls) == len(set(calls))  # each drawn once


def test_each_block_has_an_order_of_its_own() -> None:
    examples = order_of(1000, block=100).indices(0, 1000).view(10, 100) % 100  # of each block by itself
    for other in examples[1:]:
        assert (examples[0] == other).sum() < 10  # by chance 1 of 100 stays in its place


@pytest.mark.parametrize("batch", [64, 70])
def test_what_was_drawn_ahead_is_let_go(batch: int) -> None:
    """Pictures are drawn a batch at a time on a CPU: kept, those of a training would fill the memory."""
    ahead = DrawnAhead(lambda start, stop: (torch.arange(start, stop),), size=1000, batch=batch, ahead=128)
    for step in range(50):
        ahead.take(step * batch, (step + 1) * batch)
        assert len(ahead._drawn) <= 2


def test_the_order_of_a_seed_stays_what_it_was() -> None:
    assert BLOCK == 1 << 18
    seen = "94 98 93 91 92 101 102 100 73 77 79 70 74 71 75 78"
    assert " ".join(map(str, order_of(103, block=10).indices(95, 111).tolist())) == seen
