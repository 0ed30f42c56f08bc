"""How many seeds would decide a claim, against simulations of as many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from test_report_crossed import sides

from capsbench.report.statistics import Estimate, crossed, difference, exact, one_sample, seeds_to_decide
from capsbench.report.statistics.estimate import satterthwaite
from capsbench.report.verdicts import words


def test_the_seeds_that_are_named_decide_in_80_of_100() -> None:
    a, b = [0.0, 1.0, 2.0, 1.0, 1.0], [1.5, 2.5, 0.5, 1.5, 1.5]
    estimate = difference(a, b)
    assert estimate is not None
    needed = seeds_to_decide(estimate, (abs(estimate.value),), 0.05)
    assert needed is not None
    rng, trials = np.random.default_rng(9), 4000
    sd, effect = float(np.std(a, ddof=1)), abs(estimate.value)
    first, second = rng.normal(0, sd, (trials, needed)), rng.normal(effect, sd, (trials, needed))
    told = stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue < 0.05
    assert told.mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("distance", "level", "needed"), [(1.1, 0.05, 9), (1.75, 0.01, 8), (1.65, 0.001, 12)])
def test_one_seed_fewer_than_are_named_does_not(distance: float, level: float, needed: int) -> None:
    """A mean of few seeds against a bound, at levels that Holm may grant: that its error is an estimate matters."""
    estimate = one_sample([-1.0, 0.0, 1.0])
    assert estimate is not None
    assert seeds_to_decide(estimate, (distance,), level) == needed
    rng, trials = np.random.default_rng(12), 100_000
    told = [
        float((stats.ttest_1samp(rng.normal(distance, 1, (trials, n)), 0, axis=1).pvalue < level).mean())
        for n in (needed - 1, needed)
    ]
    assert told[0] < 0.8 < told[1]


@pytest.mark.parametrize(("fixed", "distance"), [(0.02, 0.5), (0.02, 0.4), (0.04, 0.9)])
def test_the_seeds_that_are_named_decide_on_the_same_digits(fixed: float, distance: float) -> None:
    """A new trial has the same test digits: they widen its interval, and what it finds scatters by its seeds alone."""
    first = difference([-0.5, 0.0, 0.5], [distance - 0.5, distance, distance + 0.5])
    assert first is not None
    needed = seeds_to_decide(with_digits(first, fixed), (distance,), 0.05)
    assert needed is not None
    rng, trials = np.random.default_rng(13), 20_000
    told = []
    for n in (needed - 1, needed):
        a, b = rng.normal(0, 0.5, (trials, n)), rng.normal(distance, 0.5, (trials, n))
        over_seeds = (a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)) / n  # [trials]
        apart, freedom = b.mean(1) - a.mean(1), 2 * n - 2
        reach = np.maximum(
            stats.t.isf(0.025, freedom) * np.sqrt(over_seeds),
            stats.t.isf(0.025, freedom * (1 + fixed / over_seeds) ** 2) * np.sqrt(over_seeds + fixed),
        )
        told.append(float((apart > reach).mean()))
    assert told[0] < 0.805
    assert 0.795 < told[1] < 0.85


@pytest.mark.parametrize("level", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("distance", [0.3, 0.55, 0.8, 1.1, 1.7, 2.4])
@pytest.mark.parametrize("cells", [1, 2])
def test_without_digits_the_seeds_are_those_of_the_noncentral_t(distance: float, level: float, cells: int) -> None:
    """One cell against a constant, or two cells, of a spread of 1: as tables of power have it."""
    spread = [-1.0, 0.0, 1.0]
    estimate = one_sample(spread) if cells == 1 else difference(spread, [0.0, 1.0, 2.0])
    assert estimate is not None

    def power(n: int) -> float:
        freedom = cells * (n - 1)
        off = distance / math.sqrt(cells / n)
        return float(stats.nct.sf(stats.t.isf(level / 2, freedom), freedom, off))

    assert seeds_to_decide(estimate, (distance,), level) == next(n for n in range(4, 1000) if power(n) >= 0.8)


def test_a_number_that_every_run_has_alike_is_told_by_the_next_seed() -> None:
    assert seeds_to_decide(exact(3.0), (0.5,), 0.05) == 2


def with_digits(estimate: Estimate, fixed: float) -> Estimate:
    """As if test digits added so much to its variance."""
    own = [(part.variance, part.seeds - 1.0) for part in estimate.parts]
    freedom = satterthwaite([*own, (fixed, math.inf)])
    return estimate._replace(error=math.sqrt(estimate.error**2 + fixed), freedom=freedom)


def test_digits_that_keep_the_bound_within_reach_are_not_made_up_for_by_any_number_of_seeds() -> None:
    first = difference([-0.5, 0.0, 0.5], [0.0, 0.5, 1.0])
    assert first is not None
    z = float(stats.norm.isf(0.025))
    assert seeds_to_decide(with_digits(first, (0.51 / z) ** 2), (0.5,), 0.05) is None
    found = seeds_to_decide(with_digits(first, (0.49 / z) ** 2), (0.5,), 0.05)
    assert found is not None
    assert found > 1000


def test_seeds_that_clear_the_further_bound_beyond_doubt_are_counted_all_the_same() -> None:
    estimate = one_sample([-1.0, 0.0, 1.0])
    assert estimate is not None
    near = seeds_to_decide(estimate, (0.7,), 0.05)
    for further in (1.5, 3.0, 30.0, 1e6):
        assert seeds_to_decide(estimate, (0.7, further), 0.05) == near


def test_a_cell_of_fewer_seeds_than_the_other_is_the_one_that_needs_more() -> None:
    estimate = difference([1000.0, 1001.0, 1002.0, 1001.0, 1001.0], [0.0, 1.0])
    assert estimate is not None
    assert seeds_to_decide(estimate, (estimate.value,), 0.05) == 3


def test_digits_that_leave_it_open_are_not_made_up_for_by_seeds() -> None:
    a, b = sides(np.random.default_rng(10), 5, 0.001, 0.0)
    estimate = crossed(a, b)
    assert estimate is not None
    assert seeds_to_decide(estimate, (estimate.error,), 0.05) is None
    assert seeds_to_decide(estimate, (0.0,), 0.05) is None
    assert seeds_to_decide(estimate, (10 * estimate.error,), 0.05) == 6  # one more than there are


def test_a_number_of_seeds_is_called_the_least_where_the_digits_part_drowns_in_the_seeds() -> None:
    """Its estimate is then cut off at zero, as if no test digit were harder for one cell than for the other."""
    drowned = [crossed(*sides(np.random.default_rng(seed), 5, 0.02, 4.0)) for seed in range(40)]
    assert {found.hides_digits for found in drowned if found is not None} == {True, False}
    for found in drowned:
        assert found is not None
        over_seeds = sum(part.variance for part in found.parts)
        assert found.hides_digits == (found.error**2 == pytest.approx(over_seeds, rel=1e-12))
    clear = crossed(*sides(np.random.default_rng(10), 5, 0.001, 0.0))
    assert clear is not None
    assert not clear.hides_digits
    assert not difference([0.0, 1.0, 2.0], [1.0, 2.5, 3.0]).hides_digits  # seeds alone are asked, of no digits
    assert words.needed(67, True).startswith("a new trial would need at least 67 seeds per cell")
    assert words.needed(67, False).startswith("a new trial of 67 seeds per cell")
    assert words.needed(None, True) == words.needed(None, False)


@pytest.mark.parametrize("truth", [0.0, 0.02])
def test_the_seeds_named_decide_an_equivalence_in_four_of_five_cases_be_it_in_the_middle_of_the_margin(truth) -> None:
    """Two cells of n seeds with a spread of 0.03 each, margin 0.05: both bounds must be cleared."""
    margin, spread = 0.05, 0.03
    half = float(np.sqrt(0.5)) * spread
    cells = [truth - half, truth + half], [-half, half]  # two seeds a cell, of exactly that spread
    estimate = difference(*cells)
    needed = seeds_to_decide(estimate, (margin - truth, margin + truth), 0.05, tails=1)
    assert needed is not None

    def decided(seeds: int) -> float:
        rng = np.random.default_rng(7)
        tries = [
            difference(list(truth + rng.normal(0, spread, seeds)), list(rng.normal(0, spread, seeds)))
            for _ in range(2_000)
        ]
        return sum(found.p_equivalent(margin) < 0.05 for found in tries) / len(tries)

    assert 0.77 < decided(needed) < 0.93
    assert decided(needed - 1) < 0.83
