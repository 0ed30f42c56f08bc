"""Means by overlap: which bin, which mean, how many pairs."""

from __future__ import annotations

import math

import pytest
import torch
from stand_ins import coded_digits

from capsbench.data.multimnist import PairSet, overlap
from capsbench.evaluation.overlap import EDGES, by_overlap, mean_of


def rows(overlaps: list[float], **values: list[float]) -> dict[tuple[float, str], tuple[int, float]]:
    frame = by_overlap(
        torch.tensor(overlaps, dtype=torch.float64), {name: torch.tensor(value) for name, value in values.items()}
    )
    assert list(frame.columns) == ["overlap_low", "overlap_high", "pairs", "metric", "value"]
    return {(r.overlap_low, r.metric): (r.pairs, r.value) for r in frame.itertuples()}


def test_each_bin_has_the_mean_of_its_pairs() -> None:
    found = rows([0.55, 0.58, 0.95, 0.65], error=[0, 100, 100, 0])
    assert found == {(0.5, "error"): (2, 50), (0.6, "error"): (1, 0), (0.9, "error"): (1, 100)}


def test_a_bin_contains_its_lower_edge_and_the_last_one_contains_1() -> None:
    found = rows([0.8, 1.0, 0.9, 0.3], a=[1.0, 2.0, 4.0, 8.0])
    assert found == {(0.8, "a"): (1, 1), (0.9, "a"): (2, 3), (0.3, "a"): (1, 8)}


def test_a_bin_says_where_it_begins_and_ends() -> None:
    """They stand in overlap.csv, and figures draw a mean in the middle between them."""
    frame = by_overlap(torch.tensor([0.35, 1.0], dtype=torch.float64), {"a": torch.zeros(2)})
    assert list(zip(frame["overlap_low"], frame["overlap_high"], strict=True)) == [(0.3, 0.4), (0.9, 1.0)]


def test_what_a_pair_has_not_is_not_in_the_mean() -> None:
    found = rows([0.55, 0.58, 0.95], iou=[0.5, math.nan, math.nan])
    assert found == {(0.5, "iou"): (1, 0.5)}
    assert mean_of(torch.tensor([0.5, math.nan, 1.0])) == 0.75


def test_a_measure_of_the_first_pairs_alone_is_binned_by_their_overlap() -> None:
    found = rows([0.55, 0.95, 0.55, 0.95], error=[0, 0, 100, 100], mse=[1.0, 2.0])
    assert found[0.5, "mse"] == (1, 1.0)
    assert found[0.9, "mse"] == (1, 2.0)
    assert found[0.9, "error"] == (2, 50.0)


@pytest.mark.parametrize("placement", ["paper", "official"])
def test_every_pair_that_can_be_drawn_falls_into_a_bin(placement) -> None:
    pairs = PairSet(coded_digits(200), seed=0, size=4000, placement=placement)
    overlaps = overlap(pairs.make(torch.arange(4000)))
    frame = by_overlap(overlaps, {"error": torch.zeros(4000)})
    assert frame["pairs"].sum() == 4000
    assert frame["overlap_low"].min() == (0.5 if placement == "paper" else 0.3)
    assert float(overlaps.min()) >= EDGES[0]
    for row in frame.itertuples():
        inside = (overlaps >= row.overlap_low) & (overlaps < row.overlap_high + (row.overlap_high == 1))
        assert int(inside.sum()) == row.pairs


def test_a_mean_of_ten_million_errors_is_exact() -> None:
    values = torch.zeros(10_000_000)
    values[::8] = 100
    assert mean_of(values) == 12.5
