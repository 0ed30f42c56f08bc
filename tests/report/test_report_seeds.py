"""Statistics over seeds where there is no spread: seeds that agree, and counts."""

from __future__ import annotations

from pathlib import Path

from judging import claim, measure, one, results_of
from toy import run_folder

from capsbench.report.statistics import difference, exact, one_sample, paired, summarise
from capsbench.report.verdicts.words import ours

SHORT = {"mnist/capsnet-r3-recon": [{"words": "100 steps of 300", "kind": "budget"}]}


def test_seeds_that_agree_are_no_certainty() -> None:
    """Two seeds of a good model often have as many images wrong; an interval of width 0 would decide anything."""
    assert one_sample([5.0, 5.0, 5.0], against=5.0) is None
    assert difference([5.0, 5.0], [4.0, 4.0]) is None
    assert paired([0.3, 0.4], [0.1, 0.2]) is None  # both differ by 0.2, but for rounding
    assert summarise([5.0, 5.0]) == (2, 5.0, 0.0, None, None)
    one_sided = difference([5.0, 5.1], [4.0, 4.0])
    assert one_sided is not None
    assert one_sided.freedom == 1


def test_one_image_of_ten_thousand_tells_two_seeds_apart() -> None:
    assert one_sample([79.01, 79.02]) is not None
    assert difference([79.01, 79.02], [78.0, 78.0]) is not None
    assert summarise([79.01, 79.02]).low is not None


def test_what_is_taken_off_is_a_constant_or_the_same_run_s_other_metric() -> None:
    less, gap = one_sample([1.0, 2.0, 3.0], against=0.5), paired([3.0, 5.0], [1.0, 2.0])
    assert less is not None
    assert gap is not None
    assert (less.value, gap.value) == (1.5, 2.5)


def test_a_count_has_no_interval_and_is_certain() -> None:
    count = exact(5.0)
    assert count.interval() == (5.0, 5.0)
    assert (count.p_equivalent(6.0), count.p_equivalent(4.0)) == (0.0, 1.0)
    assert count.p_equivalent(5.0) == 1.0  # on the margin is not inside
    assert (exact(0.0).p(), exact(0.1).p()) == (1.0, 0.0)


def test_seeds_that_agree_leave_a_claim_undecided(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "full", {"mnist": ["capsnet-r3-recon"]}, seeds=2)
    for seed in range(2):
        measure(folder, "mnist", "capsnet-r3-recon", seed, "test", error=9.0)
    judgement = one(folder, claim("value"))
    assert judgement.verdict == "undecided"
    assert judgement.why == (
        "The seeds agree to the last digit, which leaves no spread to judge by (more seeds are needed)."
    )
    assert ours(judgement) == "9 % (no interval)"


def test_one_seed_is_shown_with_what_its_training_had_less_and_decides_nothing(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "full", {"mnist": ["capsnet-r3-recon"]}, seeds=1, reduced=SHORT)
    measure(folder, "mnist", "capsnet-r3-recon", 0, "test", error=0.27)
    judgement = one(folder, claim("value"))
    assert judgement.verdict == "undecided"
    assert judgement.why == (
        "One seed gives no spread to judge by (every cell needs at least 2 seeds, and should have 5), "
        "under the budget short (100 steps of 300)."
    )
    assert ours(judgement) == "0.27 % (no interval)"


def test_one_run_has_the_number_of_parameters_however_long_it_trained(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "full", {"mnist": ["capsnet-r3-recon"]}, seeds=1, reduced=SHORT)
    said = claim("value", metric="parameters", condition=None, expected=120_000, delta=5_000)
    judgement = one(folder, said)
    assert judgement.verdict == "reproduced"
    assert judgement.why == "Ours, 123,456 parameters, lies inside the claimed 120,000 ± 5,000 parameters."
    assert one(folder, said | {"delta": 1_000}).verdict == "not reproduced"


def test_a_count_of_parameters_waits_for_no_further_seed(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "full", {"mnist": ["capsnet-r3-recon"]}, seeds=3)
    for seed in (1, 2):
        (run_folder(folder, "mnist", "capsnet-r3-recon", seed) / "manifest.json").unlink()
    judgement = one(folder, claim("value", metric="parameters", condition=None, expected=120_000, delta=5_000))
    assert not judgement.is_complete
    assert judgement.verdict == "reproduced"
