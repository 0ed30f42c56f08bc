"""Holm's correction over a family of claims, and the intervals and verdicts that follow from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from judging import claim, judged, one, results_of, values
from scipy import stats

from capsbench.report.verdicts import Judgement

FOUND = np.array([1.9, 2.0, 2.15, 2.0, 2.0])


def of_p(p: float, **changes: Any) -> dict[str, Any]:
    """A claim that CapsNet's errors, FOUND, are under a constant: just the one that gives this two-sided p."""
    error = FOUND.std(ddof=1) / np.sqrt(len(FOUND))
    constant = FOUND.mean() + stats.t.isf(p / 2, len(FOUND) - 1) * error
    return claim("direction", baseline=None, expected=float(constant), test="student", **changes)


def family(folder: Path, *p: float) -> list[Judgement]:
    """One family of claims of CapsNet's errors, by their p."""
    values(folder, "capsnet-r3-recon", *FOUND)
    return judged(folder, *(of_p(each, id=f"claim-{k}") for k, each in enumerate(p)))[0].judgements


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ((0.03, 0.04), (0.06, 0.06)),  # the second alone would pass its own step of 0.05
        ((0.04, 0.03), (0.06, 0.06)),
        ((0.02, 0.04), (0.04, 0.04)),
        ((0.01, 0.04), (0.02, 0.04)),
        ((0.001, 0.026, 0.03), (0.003, 0.052, 0.052)),
    ],
)
def test_an_adjusted_interval_decides_as_the_adjusted_p_does(
    full: Path, p: tuple[float, ...], adjusted: tuple[float, ...]
) -> None:
    judgements = family(full, *p)
    assert [j.p for j in judgements] == pytest.approx(p)
    assert [j.p_holm for j in judgements] == pytest.approx(adjusted)
    for judgement in judgements:
        assert judgement.p_holm is not None
        assert judgement.adjusted is not None
        low, high = judgement.adjusted
        assert (low < 0 < high) is (judgement.p_holm > 0.05)
        assert judgement.verdict == ("undecided" if judgement.p_holm > 0.05 else "reproduced")


def test_a_p_too_small_for_a_float_is_adjusted_too(tmp_path: Path) -> None:
    """Sixty seeds that agree to a millionth of a per cent, far below the constant."""
    folder = results_of(tmp_path / "sixty", {"mnist": ["capsnet-r3-recon"]}, seeds=60)
    values(folder, "capsnet-r3-recon", *(2 + 1e-6 * np.tile(FOUND, 12)))
    judgement = one(folder, claim("direction", baseline=None, expected=90.0, test="student"))
    assert judgement.verdict == "reproduced"
    assert judgement.p_holm == judgement.p == 0.0
    assert judgement.level == pytest.approx(0.05)


def test_a_claim_that_waits_for_its_seeds_counts_as_not_run_for_the_others(full: Path) -> None:
    """Its p may still grow, and would take the others' verdicts back."""
    values(full, "capsnet-r3-recon", *FOUND)
    own = of_p(0.03)
    clear = claim("direction", id="waits", test="welch")
    both = judged(full, own, clear)[0].judgements
    assert both[1].p is not None
    assert both[1].p < 0.0001
    assert (both[0].p_holm, both[0].verdict) == (pytest.approx(0.03), "reproduced")
    shutil.rmtree(toy.run_folder(full, "mnist", "cnn", 4))
    first, waiting = judged(full, own, clear)[0].judgements
    assert waiting.why.endswith(
        "there is no verdict until every planned seed has its number (on 4 of 5 planned seeds)."
    )
    assert waiting.p is not None
    assert waiting.p_holm == pytest.approx(2 * waiting.p)  # by what is known of all
    assert (first.p_holm, first.verdict) == (pytest.approx(0.06), "undecided")


def test_an_equivalence_is_judged_by_its_adjusted_p_and_the_interval_of_two_one_sided_tests(full: Path) -> None:
    spread = np.array([-0.1, 0.1, -0.05, 0.05, 0.0])
    values(full, "cnn", *(3 + spread))
    values(full, "capsnet-r3-recon", *(3.35 + spread[::-1]))
    said = claim("no_difference", delta=0.5, test="welch")
    alone = one(full, said)
    assert alone.p is not None
    assert 0.005 < alone.p < 0.05
    assert (alone.p_holm, alone.verdict) == (alone.p, "reproduced")
    assert alone.estimate is not None
    assert alone.adjusted == pytest.approx(alone.estimate.interval(0.90))  # 5 % for either test
    missing = [claim("direction", id=f"missing-{k}", cell="mnist/capsnet-r1") for k in range(9)]
    among = judged(full, said, *missing)[0].judgements[0]
    assert among.p == alone.p
    assert among.p_holm == pytest.approx(10 * alone.p)
    assert among.verdict == "undecided"
    assert among.adjusted == pytest.approx(alone.estimate.interval(0.99))
