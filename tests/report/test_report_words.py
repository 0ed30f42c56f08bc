"""Numbers in the sentences of verdicts: points, and intervals that end where shares of images do."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import claim, judged, measure, results_of

from capsbench.report.verdicts import Judgement
from capsbench.report.verdicts.words import ours, possible


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
    assert ours(judgement).endswith(f"(0 to {high:.3g}) %")
    assert f"Our 95 % interval, 0 to {high:.3g} %," in judgement.why
    values(full, "cnn", 0.0, 100.0, 0.0, 100.0, 50.0)
    values(full, "capsnet-r3-recon", 100.0, 0.0, 100.0, 0.0, 50.0)
    compared = one(full, claim("direction", test="welch"))
    assert ours(compared).endswith("(-72.9 to 72.9) points")
    assert possible(compared, -226.0, 228.0) == (-100.0, 100.0)
