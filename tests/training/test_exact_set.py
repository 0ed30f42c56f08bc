"""The exact-set rule on scores written by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capsbench.training.exact_set import both_above_half, exactly, found, top_two

# scores of classes 0..4, the true set, digits found, second score above one half
CASES = {
    "both, in order": ([0.9, 0.8, 0.1, 0.0, 0.2], (0, 1), (True, True), True),
    "both, the other way round": ([0.9, 0.8, 0.1, 0.0, 0.2], (1, 0), (True, True), True),
    "both, but the second is faint": ([0.9, 0.4, 0.1, 0.0, 0.2], (0, 1), (True, True), False),
    "the second is at 0.5, not above": ([0.9, 0.5, 0.1, 0.0, 0.2], (0, 1), (True, True), False),
    "half": ([0.9, 0.8, 0.1, 0.0, 0.2], (0, 4), (True, False), False),
    "half, and both above 0.5": ([0.9, 0.8, 0.7, 0.0, 0.2], (0, 2), (True, False), False),
    "none": ([0.9, 0.8, 0.1, 0.0, 0.2], (2, 3), (False, False), False),
    "a tie of the two true ones": ([0.9, 0.9, 0.1, 0.0, 0.2], (0, 1), (True, True), True),
    "a tie of a true one with an absent one": ([0.9, 0.8, 0.8, 0.0, 0.2], (0, 1), (True, False), False),
    "a tie at the top of all three": ([0.9, 0.9, 0.9, 0.0, 0.2], (0, 1), (False, False), False),
    "all equal": ([0.7, 0.7, 0.7, 0.7, 0.7], (0, 1), (False, False), False),
    "not a number": ([float("nan")] * 5, (0, 1), (False, False), False),
    "one is not a number": ([0.9, float("nan"), 0.1, 0.0, 0.2], (0, 1), (True, False), False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rule_on_hand_made_scores(case: str) -> None:
    values, true, expected, both = CASES[case]
    scores, labels = torch.tensor([values]), torch.tensor([true])
    assert tuple(found(scores, labels)[0].tolist()) == expected
    assert exactly(scores, labels).item() == all(expected)
    assert both_above_half(scores, labels).item() == both


def test_half_credit_counts_digits_and_the_exact_rule_counts_pairs() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.0], [0.9, 0.8, 0.0], [0.9, 0.8, 0.0], [0.9, 0.8, 0.0]])
    labels = torch.tensor([[0, 1], [0, 2], [1, 2], [1, 0]])
    assert found(scores, labels).float().mean().item() == 6 / 8
    assert exactly(scores, labels).float().mean().item() == 2 / 4


@settings(max_examples=50)
@given(st.permutations(range(10)), st.permutations(range(10)))
def test_without_ties_it_is_the_two_highest_scores(ranks: list[int], classes: list[int]) -> None:
    scores, labels = torch.tensor([ranks]) / 10, torch.tensor([classes[:2]])
    highest = {ranks.index(9), ranks.index(8)}
    assert exactly(scores, labels).item() == (set(classes[:2]) == highest)
    assert found(scores, labels)[0].tolist() == [c in highest for c in classes[:2]]
    assert top_two(scores)[0].tolist() == [ranks.index(9), ranks.index(8)]


def test_what_is_said_where_scores_are_equal_is_the_lower_class() -> None:
    assert top_two(torch.tensor([[0.5, 0.7, 0.7, 0.7], [0.1, 0.1, 0.1, 0.9]])).tolist() == [[1, 2], [3, 0]]
