"""Verdicts at the bounds of their rules: what an interval reaches into is open, and what it leaves behind is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import toy
from judging import claim, judged, measure, one, values

from capsbench.report.statistics import seeds_to_decide
from capsbench.report.verdicts.words import claimed, possible

SPREAD = np.array([-0.1, 0.1, -0.05, 0.05, 0.0])


def errors_apart(folder: Path, apart: float, times: float = 1.0) -> None:
    """The CNN errs on 3 % on average, CapsNet on `apart` points more; `times` the spread over seeds."""
    values(folder, "cnn", *(3 + times * SPREAD))
    values(folder, "capsnet-r3-recon", *(3 + apart + times * SPREAD[::-1]))


# ---- no difference ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
def test_an_interval_over_a_margin_leaves_an_equivalence_open(full: Path, sign: int) -> None:
    """It holds no 0, and that is not the question."""
    errors_apart(full, sign * 0.5)
    judgement = one(full, claim("no_difference", delta=0.5, test="welch"))
    assert judgement.estimate is not None
    near, far = sorted(abs(end) for end in judgement.estimate.interval())
    assert 0 < near < 0.5 < far < 1
    assert judgement.verdict == "undecided"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_difference_beyond_either_margin_is_no_equivalence(full: Path, sign: int) -> None:
    errors_apart(full, sign * 2.0)
    judgement = one(full, claim("no_difference", delta=0.5, test="welch"))
    assert judgement.verdict == "not reproduced"
    assert "lies beyond the margin of ± 0.5 points" in judgement.why


def test_an_open_equivalence_inside_its_margin_needs_the_seeds_that_tell_it_from_both_bounds(full: Path) -> None:
    errors_apart(full, 0.3, times=4)
    judgement = one(full, claim("no_difference", delta=0.5, test="welch"))
    assert judgement.estimate is not None and judgement.verdict == "undecided"  # noqa: PT018
    rooms = (0.2, 0.8)
    assert judgement.seeds_needed == seeds_to_decide(judgement.estimate, rooms, 0.05, tails=1)
    assert judgement.seeds_needed != seeds_to_decide(judgement.estimate, rooms, 0.05, tails=2)


def test_an_open_equivalence_beyond_its_margin_needs_the_seeds_that_leave_the_nearer_bound_behind(full: Path) -> None:
    """By the 95 % interval, which is what refutes it, whatever the family's other claims are."""
    errors_apart(full, 0.7, times=4)
    said = claim("no_difference", delta=0.5, test="welch")
    missing = [said | {"id": f"missing-{k}", "cell": "mnist/capsnet-r1"} for k in range(3)]
    judgement = judged(full, said, *missing)[0].judgements[0]
    assert judgement.estimate is not None and judgement.verdict == "undecided"  # noqa: PT018
    assert judgement.level < 0.05
    assert judgement.seeds_needed == seeds_to_decide(judgement.estimate, (0.2,), 0.05, tails=2)
    assert judgement.seeds_needed != seeds_to_decide(judgement.estimate, (0.2,), 0.05, tails=1)
    assert judgement.seeds_needed != seeds_to_decide(judgement.estimate, (0.2,), judgement.level, tails=2)


# ---- value -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [1.45, 2.55])
def test_a_mean_outside_the_bounds_refutes_no_value_that_its_interval_reaches(full: Path, mean: float) -> None:
    values(full, "capsnet-r3-recon", *(mean + SPREAD))
    judgement = one(full, claim("value"))
    assert judgement.estimate is not None
    assert judgement.estimate.value == pytest.approx(mean)  # the claim is 2 +- 0.5
    assert judgement.verdict == "undecided"
    assert "lies only partly inside" in judgement.why


def test_a_value_is_no_test_of_its_family(full: Path) -> None:
    """It has no p, and its neighbours' are not corrected for it."""
    value, direction = judged(full, claim("value"), claim("direction"))[0].judgements
    assert value.p_holm is None
    assert direction.p is not None
    assert direction.p_holm == direction.p > 0


# ---- what is said of it ----------------------------------------------------------------------------------------------


def test_a_verdict_says_on_which_side_of_0_it_was_found_and_on_how_many_seeds(full: Path) -> None:
    errors_apart(full, -1.0)
    for direction, verdict, side in (("less", "reproduced", "claimed"), ("greater", "not reproduced", "other")):
        judgement = one(full, claim("direction", direction=direction, test="welch"))
        assert judgement.verdict == verdict
        assert f"excludes 0 on the {side} side (on 5 seeds)" in judgement.why
        assert claimed(judgement) == ("< 0" if direction == "less" else "> 0")


def test_a_run_that_failed_is_counted_once_where_two_metrics_of_its_cell_are_compared(full: Path) -> None:
    toy.fail(full, "mnist", "capsnet-r3-recon", 4)
    for seed in range(4):
        measure(full, "mnist", "capsnet-r3-recon", seed, "test", error=2.0 + seed, ece=1.0 + 1.01 * seed)
    said = claim("direction", baseline=None, baseline_metric="ece", direction="greater", test="paired")
    assert one(full, said).why.endswith(", 1 run failed or not matched.")


def test_claims_json_tells_a_p_from_its_family_s_and_the_ends_of_their_intervals(full: Path) -> None:
    errors_apart(full, -0.2)
    said = claim("direction", test="welch")
    found, results = judged(full, said, said | {"id": "again", "cell": "mnist/capsnet-r1"})
    judgement, told = found.judgements[0], found.judgements[0].as_json(results, ())
    assert judgement.estimate is not None
    assert told["p"] == judgement.estimate.p()
    assert told["p_holm"] == pytest.approx(2 * told["p"])
    assert told["adjusted_low"] < told["ci_low"] < told["effect"] < told["ci_high"] < told["adjusted_high"]


def test_claims_json_has_the_seeds_of_the_cell_that_has_fewer(full: Path) -> None:
    errors_apart(full, -1.0)
    toy.fail(full, "mnist", "cnn", 4)
    found, results = judged(full, claim("direction", test="welch"))
    told = found.judgements[0].as_json(results, ())
    assert told["n"] == 4
    assert [cell["n"] for cell in told["cells"]] == [5, 4]


@pytest.mark.parametrize("constant", [1.0, 98.0])
def test_a_cell_that_is_to_beat_a_constant_is_shown_between_0_and_100(full: Path, constant: float) -> None:
    values(full, "capsnet-r3-recon", *(constant + 10 * SPREAD * 4))
    judgement = one(full, claim("direction", baseline=None, expected=constant, test="student"))
    assert possible(judgement, -200.0, 200.0) == (-constant, 100.0 - constant)


def test_the_interval_of_a_claim_behind_a_larger_adjusted_p_is_as_wide_as_that_p(full: Path) -> None:
    """Its own step alone would grant it an interval without 0, beside a p that decides nothing."""
    values(full, "capsnet-r3-recon", *(2 + SPREAD))
    beaten = claim("direction", baseline=None, test="student")
    nearby = [beaten | {"id": f"under-{k}", "expected": constant} for k, constant in enumerate((2.1166, 2.106))]
    surer, other = judged(full, *nearby)[0].judgements
    assert surer.p is not None
    assert other.p is not None
    assert 0.025 < surer.p < other.p < 0.05
    for judgement in (surer, other):
        assert judgement.p_holm == pytest.approx(2 * surer.p)
        assert judgement.adjusted is not None
        assert judgement.adjusted[1] > 0
        assert judgement.verdict == "undecided"
