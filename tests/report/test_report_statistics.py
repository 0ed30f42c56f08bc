"""Means and intervals against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from capsbench.report.statistics import summarise
from capsbench.report.statistics.crossed import Scored, crossed
from capsbench.report.statistics.description import three_trials


def test_three_values_by_hand() -> None:
    found = summarise([1.0, 2.0, 6.0])
    assert (found.n, found.mean) == (3, 3.0)
    assert found.sd == pytest.approx(math.sqrt(7))  # ((2^2 + 1^2 + 3^2) / 2)^0.5
    half = 4.302652729911275 * math.sqrt(7 / 3)  # t of 0.975 at 2 degrees of freedom
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))
    assert found.half_width == pytest.approx(half)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_interval_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).normal(1.5, 0.3, n)
    found = summarise(values.tolist())
    expected = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.sd == pytest.approx(values.std(ddof=1))


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(0, 1, (4000, 3))
    covered = [s.low < 0 < s.high for s in map(summarise, draws)]  # type: ignore[operator]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)  # three and a half standard errors


def test_one_value_has_no_spread_and_none_has_nothing() -> None:
    assert summarise([0.25]) == (1, 0.25, None, None, None)
    assert summarise([]) == (0, None, None, None, None)
    assert summarise([0.25]).half_width is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        summarise([1.0, value])


def test_the_crossed_variance_is_never_less_than_that_of_the_test_digits_alone() -> None:
    found = crossed(Scored(np.array([1.0, 1.001]), np.array([[3.0, -3.0], [1.0, -1.0]])))
    assert found.error**2 == pytest.approx(8.0)  # of the mean effects 2 and -2


def test_three_trials_are_not_all_there_are_where_one_side_s_are_drawn() -> None:
    few, many = [1.0, 2.0, 3.0], [float(k) for k in range(30)]
    assert [three_trials(a, b, 1).exact for a, b in ((few, few), (few, many), (many, few))] == [True, False, False]
