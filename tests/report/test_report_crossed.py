"""Statistics on simulated data whose truth is known: coverage, false positives, and against scipy and statsmodels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_ind

from capsbench.report.statistics import (
    Scored,
    crossed,
    difference,
    digit_effects,
    disagreements,
    holm,
    one_sample,
    pair_effects,
    summarise,
    three_trials,
)


def test_seeds_that_agree_are_no_spread_here_either() -> None:
    effects = np.random.default_rng(0).normal(size=(2, 100))
    same = Scored(np.array([1.5, 1.5]), effects)
    assert crossed(same, Scored(np.array([0.5, 0.5]), effects)) is None
    assert difference([1.5, 1.5], [0.5, 0.5]) is None
    assert crossed(same, Scored(np.array([0.5, 0.6]), effects)) is not None


def slack(share: float, trials: int) -> float:
    """Four standard errors of a share of so many trials: exceeded once in 16,000."""
    return 4 * float(np.sqrt(share * (1 - share) / trials))


def sides(rng: np.random.Generator, n: int, over_seeds: float, together: float, digits: int = 150) -> list[Scored]:
    """Two cells without a difference in truth, on the same digits, which they share in part."""
    shared, cells = rng.normal(0, 1, digits), []
    for _ in range(2):
        values = (
            rng.normal(0, over_seeds, (n, 1))
            + shared
            + rng.normal(0, 0.5, digits)
            + rng.normal(0, together, (n, digits))
        )  # [n, digits]
        bases = np.arange(digits)
        cells.append(Scored(values.mean(1), np.stack([digit_effects(row, bases, digits) for row in values])))
    return cells


# ---- coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "over_seeds", "together", "widest"),
    [
        (5, 0.2, 0.5, 0.965),  # seeds differ most, as on affNIST
        (3, 0.2, 0.1, 0.965),
        (5, 0.0, 2.0, 0.985),  # what a seed does to a digit weighs most, as on MNIST
        (5, 0.05, 0.5, 0.98),
        (2, 0.1, 0.5, 0.99),
    ],
)
def test_the_crossed_interval_covers_the_truth_as_it_says(
    n: int, over_seeds: float, together: float, widest: float
) -> None:
    rng, trials = np.random.default_rng(n), 500
    covered = []
    for _ in range(trials):
        estimate = crossed(*sides(rng, n, over_seeds, together))
        assert estimate is not None
        low, high = estimate.interval()
        covered.append(low < 0 < high)
    share = float(np.mean(covered))
    assert 0.95 - slack(0.95, trials) <= share <= widest + slack(widest, trials)


@pytest.mark.parametrize(
    ("n", "spreads", "trials"), [(2, (1.0, 1.0), 4_000), (3, (3.0, 1.0), 6_000), (5, (1.0,), 12_000)]
)
def test_the_crossed_test_keeps_its_level_in_the_tails(n: int, spreads: tuple[float, ...], trials: int) -> None:
    """The first step of Holm's over 8 claims, where the digits' variance is 0.15 of the seeds'.

    Satterthwaite's t alone rejects too often here: 2.2, 1.9 and 1.3 % instead of 0.625 %.
    """
    rng, digits, level = np.random.default_rng(n), 30, 0.05 / 8
    over_seeds = sum(spread**2 for spread in spreads) / n
    false = 0
    for _ in range(trials):
        cells = []
        for spread in spreads:
            each = rng.normal(0, np.sqrt(0.15 * over_seeds * digits / len(spreads)), digits)  # [D]
            effects = np.broadcast_to((each - each.mean()) / digits, (n, digits))
            cells.append(Scored(each.mean() + rng.normal(0, spread, n), effects))
        estimate = crossed(*cells)
        assert estimate is not None
        false += estimate.p() < level
    assert false / trials <= level + slack(level, trials)


@pytest.mark.parametrize("both", [True, False])
def test_a_crossed_interval_is_never_narrower_than_that_of_the_seeds_alone(both: bool) -> None:
    """And each p is the one that its interval shows: at the edge of an interval the p is the interval's level."""
    rng, narrower = np.random.default_rng(11), 0
    for _ in range(60):
        a, b = sides(rng, 2, 0.3, 0.1)
        estimate = crossed(a, b) if both else crossed(a)
        alone = difference(a.means, b.means) if both else one_sample(a.means)
        assert estimate is not None
        assert alone is not None
        (low, high), (inner_low, inner_high) = estimate.interval(), alone.interval()
        assert low <= inner_low + 1e-9
        assert high >= inner_high - 1e-9
        by_satterthwaite = float(stats.t.ppf(0.975, estimate.freedom)) * estimate.error
        narrower += by_satterthwaite < alone.interval()[1] - alone.value
        assert estimate._replace(value=(high - low) / 2).p() == pytest.approx(0.05)
        margin = 1 + abs(estimate.value) + estimate.reach(0.05)
        inside = estimate._replace(value=margin - estimate.reach(0.05))
        assert inside.p_equivalent(margin) == pytest.approx(0.05)
    assert narrower > 5  # without the wider of both it would have been


def test_a_percentile_interval_over_5_seeds_would_not() -> None:
    """Why the crossed bootstrap's standard error goes with Student's t: the plain percentiles miss too often."""
    rng, trials = np.random.default_rng(0), 2000
    values = rng.normal(0, 1, (trials, 5))
    drawn = values[:, rng.integers(0, 5, (400, 5))].mean(2)  # [trials, draws]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
    assert ((low < 0) & (high > 0)).mean() < 0.95 - slack(0.95, trials)
    ours = [summarise(row) for row in values]
    assert np.mean([s.low < 0 < s.high for s in ours]) == pytest.approx(0.95, abs=slack(0.95, trials))  # type: ignore[operator]


@pytest.mark.parametrize(("n", "spreads"), [((5, 3), (3, 1)), ((5, 3), (1, 3)), ((5, 2), (1, 3)), ((5, 5), (1, 3))])
@pytest.mark.parametrize("level", [0.05, 0.05 / 8])
def test_a_difference_keeps_its_level_with_unequal_seeds_and_spreads(
    n: tuple[int, int], spreads: tuple[int, int], level: float
) -> None:
    """Welch's own degrees of freedom give 10 and 3.9 % where two seeds of five have three times the spread."""
    rng, trials, false = np.random.default_rng(1), 6000, 0
    for _ in range(trials):
        estimate = difference(rng.normal(1, spreads[0], n[0]), rng.normal(1, spreads[1], n[1]))
        assert estimate is not None
        false += estimate.p() < level
    assert false / trials <= level + slack(level, trials)


def test_pairs_draw_both_their_digits_again() -> None:
    """Against the bootstrap that draws digits and weighs each pair by both: slow, and what the effects stand for."""
    rng = np.random.default_rng(2)
    digits, pairs = 60, 2000
    hard = rng.random(digits) < 0.2
    bases = np.array([rng.choice(digits, 2, replace=False) for _ in range(pairs)])
    wrong = 100.0 * (rng.random(pairs) < 0.1 + 0.3 * hard[bases].sum(1))
    effects = digit_effects(wrong, bases, digits)
    assert effects.sum() == pytest.approx(0, abs=1e-9)
    means = []
    for _ in range(4000):
        drawn = np.bincount(rng.integers(0, digits, digits), minlength=digits)
        weight = drawn[bases].prod(1)
        means.append((weight * wrong).sum() / weight.sum())
    assert np.sqrt((effects**2).sum()) == pytest.approx(np.std(means), rel=0.12)
    independent = np.std(wrong) / np.sqrt(pairs)
    assert np.std(means) > 1.5 * independent  # pairs taken as independent images would promise too much


def test_pairs_counted_by_digit_have_the_same_effects() -> None:
    rng = np.random.default_rng(5)
    digits, pairs = 30, 500
    bases = np.array([rng.choice(digits - 1, 2, replace=False) for _ in range(pairs)])  # the last is in no pair
    missed = rng.integers(0, 3, pairs)
    counts = np.zeros((digits, 3), int)
    np.add.at(counts, (bases, missed[:, None]), 1)
    levels = np.array([0.0, 50.0, 100.0])
    assert np.allclose(pair_effects(counts, levels), digit_effects(levels[missed], bases, digits))


def test_images_of_one_digit_count_as_one() -> None:
    rng = np.random.default_rng(3)
    digits, copies = 200, 32
    hard = rng.random(digits) < 0.3
    bases = np.repeat(np.arange(digits), copies)
    wrong = 100.0 * hard[bases]  # every copy of a hard digit is wrong: 200 answers, not 6,400
    effects = digit_effects(wrong, bases, digits)
    assert np.sqrt((effects**2).sum()) == pytest.approx(100 * hard.std() / np.sqrt(digits))


@pytest.mark.parametrize("both", [True, False])
def test_the_variance_is_that_of_a_bootstrap_that_draws_seeds_and_digits(both: bool) -> None:
    rng, digits, draws = np.random.default_rng(12), 150, 20_000
    means = np.array([-0.2, -0.1, 0.1, 0.2])
    cells = [cell._replace(means=means) for cell in sides(rng, 4, 0.0, 1.5, digits)[: 1 + both]]
    estimate = crossed(*cells)
    assert estimate is not None
    again = rng.multinomial(digits, np.full(digits, 1 / digits), size=draws) - 1  # [draws, digits]
    replicates, together = np.zeros(draws), 0.0
    for sign, cell in zip((1, -1), cells, strict=False):
        n = len(cell.means)
        drawn = rng.multinomial(n - 1, np.full(n, 1 / n), size=draws) / (n - 1)  # one seed fewer than there are
        replicates += sign * (drawn * (cell.means + again @ cell.effects.T)).sum(1)
        together += cell.effects.var(0, ddof=1).sum() / n
    assert estimate.error**2 == pytest.approx(replicates.var() - 2 * together, rel=0.05)
    assert together > 0.1 * estimate.error**2  # what the seeds do together with the digits is enough to see


def test_a_single_test_digit_is_still_an_interval_over_seeds() -> None:
    effects = np.zeros((3, 1))  # of one digit: its share of a cell's mean is all of it
    cells = [Scored(np.array(means), effects) for means in ([0.0, 100.0, 100.0], [0.0, 0.0, 100.0])]
    estimate = crossed(*cells)
    welch = difference(*(list(cell.means) for cell in cells))
    assert estimate is not None
    assert welch is not None
    assert estimate.value == pytest.approx(100 / 3)
    assert estimate.error == pytest.approx(welch.error)


def test_one_seed_is_no_estimate_and_other_digits_are_refused() -> None:
    a, b = sides(np.random.default_rng(4), 5, 0.1, 0.5)
    assert crossed(Scored(a.means[:1], a.effects[:1]), b) is None
    with pytest.raises(ValueError, match="same test digits"):
        crossed(a, Scored(b.means, b.effects[:, 1:]))


# ---- families --------------------------------------------------------------------------------------------------------


def test_a_family_without_any_truth_is_rarely_believed() -> None:
    """12 true null hypotheses a family: without correction 46 % of families have a false claim, with Holm under 5 %."""
    rng, trials, claims = np.random.default_rng(5), 1500, 12
    a, b = rng.normal(0, 1, (2, trials, claims, 5))
    p = stats.ttest_ind(a, b, axis=2, equal_var=False).pvalue  # [trials, claims]
    believed = np.array([min(holm(row)) < 0.05 for row in p.tolist()])
    assert believed.mean() <= 0.05 + slack(0.05, trials)
    assert (p.min(1) < 0.05).mean() > 0.3


@pytest.mark.parametrize("n", [2, 4])
def test_a_crossed_family_without_any_truth_is_rarely_believed(n: int) -> None:
    """By Satterthwaite's t alone 12 % of the families with 2 seeds a cell would have a false claim."""
    rng, trials = np.random.default_rng(6), 1000
    believed = 0
    for _ in range(trials):
        p = [crossed(*sides(rng, n, 0.25, 0.1)).p() for _ in range(5)]  # type: ignore[union-attr]
        believed += min(holm(p)) < 0.05
    assert believed / trials <= 0.05 + slack(0.05, trials)


def test_equivalence_is_not_found_at_the_margin() -> None:
    rng, trials = np.random.default_rng(7), 2000
    found = 0
    for _ in range(trials):
        estimate = difference(rng.normal(0.5, 0.2, 5), rng.normal(0, 0.2, 5))  # in truth just not equivalent
        assert estimate is not None
        found += estimate.p_equivalent(0.5) < 0.05
    assert found / trials <= 0.05 + slack(0.05, trials)


# ---- against scipy and statsmodels -----------------------------------------------------------------------------------


def test_welch_and_equivalence_are_theirs() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(1, 1, 5), rng.normal(0.5, 2, 5)
    ours, theirs = difference(a, b), stats.ttest_ind(a, b, equal_var=False)
    assert ours is not None
    assert ours.p() == pytest.approx(theirs.pvalue)
    assert ours.freedom == pytest.approx(theirs.df)
    assert ours.interval() == pytest.approx(tuple(theirs.confidence_interval()))
    assert ours.p_equivalent(3.0) == pytest.approx(ttost_ind(a, b, -3.0, 3.0, usevar="unequal")[0])
    assert ours.p_equivalent(3.0) < 0.2 < ours.p_equivalent(0.1)


def test_holm_is_theirs() -> None:
    rng = np.random.default_rng(9)
    for count in (1, 2, 7, 12):
        p = rng.random(count).round(1).tolist()  # some are equal
        assert holm(p) == pytest.approx(multipletests(p, method="holm")[1].tolist())
    assert holm([0.02, 0.01, 0.5]) == pytest.approx([0.04, 0.03, 0.5])
    assert holm([]) == []


def test_mcnemar_is_binomial_and_silent_on_dependent_images() -> None:
    a = np.array([True] * 9 + [False] * 3 + [True] * 50)
    b = np.array([False] * 9 + [True] * 3 + [True] * 50)
    assert disagreements(a, b, independent=True) == (9, 3, pytest.approx(stats.binomtest(3, 12).pvalue))
    assert disagreements(a, b, independent=False) == (9, 3, None)


# ---- would three trials have told ------------------------------------------------------------------------------------


def test_three_trials_are_enumerated_by_hand() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0]
    means = [np.mean(three) for three in itertools.combinations(a, 3)]  # 2, 7/3, 8/3, 3 against 3
    assert three_trials(a, b, -1) == (sum(m < 3 for m in means) / 4, 4, True) == (0.75, 4, True)
    assert three_trials(a, b, 1) == (0.0, 4, True)  # a tie shows nothing
    assert three_trials(a, 2.5, 1) == (0.5, 4, True)
    assert three_trials([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], 1) == (0.0, 1, True)  # and rounding makes none
    assert three_trials([0.1, 0.2, 0.3], 0.2, 1) == three_trials([0.1, 0.2, 0.3], 0.2, -1) == (0.0, 1, True)
    assert three_trials(a[:2], b, 1) is None
    assert three_trials(a, b[:2], 1) is None


def test_many_seeds_are_drawn_in_the_place_of_all() -> None:
    a = np.random.default_rng(11).normal(0, 1, 40)
    found = three_trials(a.tolist(), 0.0, 1)
    assert found is not None
    exact = np.mean([np.mean(three) > 0 for three in itertools.combinations(a, 3)])
    assert not found.exact
    assert found.share == pytest.approx(exact, abs=slack(0.5, found.draws))
    assert found == three_trials(a.tolist(), 0.0, 1)
