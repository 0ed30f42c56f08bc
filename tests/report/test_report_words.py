"""Numbers in the sentences of verdicts: points, decimals, and intervals that end where shares of images do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toy
from judging import claim, judged, measure, results_of

from capsbench.report.verdicts import Judgement
from capsbench.report.verdicts.words import number, ours, possible


@pytest.fixture
def full(tmp_path: Path) -> Path:
    return results_of(tmp_path / "full", {"mnist": ["cnn", "capsnet-r3-recon"]})


def one(folder: Path, said: dict[str, object]) -> Judgement:
    return judged(folder, said)[0].judgements[0]


def values(folder: Path, variant: str, *found: float) -> None:
    for seed, value in enumerate(found):
        measure(folder, "mnist", variant, seed, "test", error=value)


def test_no_interval_is_shown_beyond_what_a_share_of_images_can_be(full: Path) -> None:
    values(full, "cnn", 0.5, 30.0, 0.2, 0.3, 0.1)
    judgement = one(full, claim("value", cell="mnist/cnn", expected=50.0, delta=1.0))
    assert judgement.estimate is not None
    low, high = judgement.estimate.interval()
    assert low < 0  # in claims.json as it is
    assert ours(judgement).endswith(f"(0.0 to {high:.1f}) %")
    assert f"Our 95 % interval, 0.0 to {high:.1f} %," in judgement.why
    values(full, "cnn", 0.0, 100.0, 0.0, 100.0, 50.0)
    values(full, "capsnet-r3-recon", 100.0, 0.0, 100.0, 0.0, 50.0)
    compared = one(full, claim("direction", test="welch"))
    assert ours(compared).endswith("(-72.9 to 72.9) points")
    assert possible(compared, -226.0, 228.0) == (-100.0, 100.0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((90.0, 91.7, 93.4, 91.7, 91.7), "91.7 (90.2 to 93.2) %"),
        ((34.0, 50.0, 42.0, 38.0, 46.0), "42.0 (34.1 to 49.9) %"),  # wide: one decimal all the same
        ((0.70, 0.72, 0.75, 0.66, 0.65), "0.70 (0.64 to 0.75) %"),
        ((0.7001, 0.7002, 0.7003, 0.7002, 0.7002), "0.70020 (0.70011 to 0.70029) %"),
    ],
)
def test_an_estimate_and_both_ends_have_the_same_decimals(full: Path, found: tuple[float, ...], said: str) -> None:
    values(full, "cnn", *found)
    judgement = one(full, claim("value", cell="mnist/cnn", expected=60.0, delta=1.0))
    assert ours(judgement) == said
    ends = said.partition("(")[2].removesuffix(") %")
    assert f"Our 95 % interval, {ends} %," in judgement.why


def test_no_end_is_rounded_onto_the_number_that_it_is_judged_by(full: Path) -> None:
    """An end at -0.04 is a verdict, one at 0.0 would be none: it gets a decimal more, and the whole claim with it."""
    values(full, "cnn", 10.0, 10.6, 11.2, 11.8, 12.4)
    values(full, "capsnet-r3-recon", 8.60, 9.20, 9.80, 10.40, 10.95)
    judgement = one(full, claim("direction", test="welch"))
    assert judgement.adjusted is not None
    assert -0.05 < judgement.adjusted[1] < 0
    assert judgement.verdict == "reproduced"
    assert f"{judgement.adjusted[0]:.2f} to {judgement.adjusted[1]:.2f} points, excludes 0" in judgement.why
    assert ours(judgement) == f"-1.41 ({judgement.adjusted[0]:.2f} to {judgement.adjusted[1]:.2f}) points"


def test_the_bounds_of_a_value_are_told_from_the_ends_too(full: Path) -> None:
    values(full, "cnn", 9.0, 10.0, 11.0, 10.0, 10.0)
    judgement = one(full, claim("value", cell="mnist/cnn", expected=10.0, delta=0.88))
    assert judgement.verdict == "reproduced"
    assert "9.122 to 10.878 %, lies inside the claimed 10 ± 0.88 %" in judgement.why  # 9.1 and 9.12 would not


def test_nothing_is_negative_and_zero() -> None:
    assert [number(value, 1) for value in (-0.04, 0.04, -0.05, -0.06)] == ["0.0", "0.0", "-0.1", "-0.1"]
    assert number(-1234.5678, 1) == "-1,234.6"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (claim("direction", test="welch", direction="greater"), "The difference is 0.200; its Holm-adjusted interval,"),
        (claim("value", expected=0.5, delta=0.1), "lies outside the claimed 0.5 ± 0.1 (on 5 seeds)"),
        (claim("no_difference", test="welch", delta=0.1), "lies beyond the margin of ± 0.1 (on 5 seeds)"),
    ],
)
def test_a_plain_number_has_no_space_where_its_unit_would_stand(full: Path, found: dict[str, Any], said: str) -> None:
    """As SSIM and IoU of digits drawn apart, which no published run has."""
    for variant, least in (("cnn", 0.7), ("capsnet-r3-recon", 0.9)):
        for seed in range(5):
            path = toy.run_folder(full, "mnist", variant, seed) / "test" / "metrics.json"
            toy.change_json(path, metrics={"error": {"value": least + 0.01 * (seed % 3), "unit": ""}})
    why = one(full, found).why
    assert said in why
    assert " ;" not in why
    assert " ," not in why
    assert "  " not in why
