"""Which evidence a verdict may stand on: all planned seeds, all test digits, a whole training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import toy
from judging import CELLS, claim, judged, one, results_of, values


def test_a_shorter_training_judges_no_published_number_but_says_so_beside_a_direction(full: Path) -> None:
    reduced = {f"mnist/{v}": [{"kind": "training", "words": "2 epochs"}] for v in CELLS["mnist"]}
    toy.change_json(full / "plan.json", budget="reduced", reduced=reduced)
    level = claim("direction", id="level", baseline=None, expected=3.0, test="student")
    value, published, direction = judged(full, claim("value"), level, claim("direction"))[0].judgements
    assert (value.verdict, published.verdict, direction.verdict) == ("not run", "not run", "reproduced")
    for judgement in (value, published):
        assert "reduced protocol: 2 epochs; no published number is judged by that" in judgement.why
    assert "after reduced training (2 epochs)" in direction.why


def test_fewer_measurements_do_not_stop_a_verdict(full: Path) -> None:
    reduced = {f"mnist/{v}": [{"kind": "measuring", "words": "4 of 5 seeds"}] for v in CELLS["mnist"]}
    toy.change_json(full / "plan.json", reduced=reduced)
    assert {j.verdict for j in judged(full, claim("value"), claim("direction"))[0].judgements} == {"reproduced"}


def test_fewer_test_digits_judge_what_is_drawn_over_digits_alone(full: Path) -> None:
    """Of five seeds with exactly 0.25 % on 1,000 digits a quarter would refute 0.25 +- 0.05 by Student's t alone."""
    reduced = {f"mnist/{v}": [{"kind": "digits", "words": "2,000 of 10,000 test digits"}] for v in CELLS["mnist"]}
    toy.change_json(full / "plan.json", reduced=reduced)
    said = [claim("value"), claim("direction", id="welch", test="welch"), claim("direction")]
    *seeds_alone, crossed = judged(full, *said)[0].judgements
    assert crossed.verdict == "reproduced"
    for judgement in seeds_alone:
        assert judgement.verdict == "not run"
        assert "2,000 of 10,000 test digits; an interval over seeds alone" in judgement.why


def test_one_seed_is_not_judged_and_few_seeds_are_said(full: Path, tmp_path: Path) -> None:
    assert "(on 5 seeds)" in one(full, claim("direction")).why
    for seed in (2, 3, 4):
        toy.fail(full, "mnist", "cnn", seed)
    two = one(full, claim("direction"))
    assert "(on 2 of 5 planned seeds), 3 runs failed or not matched." in two.why
    assert two.trials is None
    toy.fail(full, "mnist", "cnn", 1)
    single = one(full, claim("direction"))
    assert (single.verdict, single.estimate, single.n) == ("undecided", None, 1)
    assert "needs at least 2 seeds" in single.why


@pytest.mark.parametrize("lost", ["missing", "failed", "not matched"])
@pytest.mark.parametrize("said", [claim("value"), claim("direction"), claim("no_difference", delta=5)])
def test_a_decision_waits_for_every_planned_seed(full: Path, said: dict[str, object], lost: str) -> None:
    """A look after each seed would be a test more; those that came so far are chosen by their result."""
    assert one(full, said).verdict == "reproduced"
    place = toy.run_folder(full, "mnist", "capsnet-r3-recon", 4)
    if lost == "failed":
        toy.fail(full, "mnist", "capsnet-r3-recon", 4)
    elif lost == "missing":
        (place / "manifest.json").unlink()
    else:
        toy.change_json(place / "test" / "metrics.json", status="not matched", metrics={}, reason="not matched")
    judgement = one(full, said)
    assert judgement.verdict == "undecided"
    assert judgement.estimate is not None
    assert "no verdict until every planned seed has its number (on 4 of 5 planned seeds)" in judgement.why


def test_what_may_still_change_takes_no_verdict_of_its_family_with_it(full: Path) -> None:
    """A complete claim passes the step that it will have if the others, once complete, are far from decided."""
    extra = results_of(full.parent / "more", {"mnist": [*CELLS["mnist"], "capsnet-r1"]})
    values(extra, "cnn", 4.0, 4.1, 3.9, 4.2, 3.8)
    values(extra, "capsnet-r3-recon", 3.4, 4.0, 3.6, 3.5, 3.7)
    values(extra, "capsnet-r1", 1.0, 1.1, 0.9, 1.0, 1.1)
    complete = claim("direction", test="welch")
    other = claim("direction", id="other", cell="mnist/capsnet-r1", test="welch")
    first, second = judged(extra, complete, other)[0].judgements
    assert first.p is not None
    assert second.p is not None
    assert second.p < first.p < 0.05
    assert first.p_holm == pytest.approx(first.p)  # the last step, since the other is surer
    (toy.run_folder(extra, "mnist", "capsnet-r1", 4) / "manifest.json").unlink()
    first, second = judged(extra, complete, other)[0].judgements
    assert first.p_holm == pytest.approx(2 * first.p)
    assert second.verdict == "undecided"
    assert second.p_holm is not None
    assert second.p_holm < 0.05


def test_a_number_is_named_at_the_level_that_holm_grants(full: Path) -> None:
    """Of two claims with nearly the same p the second must pass the first one's step: it needs no fewer seeds."""
    values(full, "cnn", 4.0, 4.1, 3.9, 4.2, 3.8)
    values(full, "capsnet-r3-recon", 3.4, 4.2, 3.5, 4.3, 3.6)
    twins = [claim("direction", id=name, test="welch") for name in ("one", "two")]
    needed = [judgement.seeds_needed for judgement in judged(full, *twins)[0].judgements]
    assert needed[0] == needed[1]
    assert one(full, twins[0]).seeds_needed != needed[0]  # alone in its family it would need fewer


def test_images_in_another_order_are_found(full: Path) -> None:
    """Labels and predictions moved together leave every metric as it is, and pair each digit with another."""
    path = toy.run_folder(full, "mnist", "cnn", 1) / "test" / "predictions.npz"
    stored = dict(np.load(path).items())
    order = np.random.default_rng(0).permutation(len(stored["labels"]))
    np.savez_compressed(path, **{name: array[order] for name, array in stored.items()})
    judgement = one(full, claim("direction"))
    assert judgement.verdict == "not run"
    assert "is about other images than the other runs'" in judgement.why


def test_a_run_that_is_listed_twice_is_planned_once(full: Path) -> None:
    runs = json.loads((full / "plan.json").read_text())["runs"]
    toy.change_json(full / "plan.json", runs=[*runs, runs[0]])
    assert one(full, claim("direction")).verdict == "reproduced"


def test_cells_of_unequal_seeds_are_complete_with_their_own(full: Path) -> None:
    runs = json.loads((full / "plan.json").read_text())["runs"]
    toy.change_json(full / "plan.json", runs=[run for run in runs if run["variant"] != "cnn" or run["seed"] < 3])
    judgement = one(full, claim("direction"))
    assert judgement.verdict == "reproduced"
    assert "(on only 3 seeds)" in judgement.why


def test_no_fewer_seeds_are_named_than_are_planned(full: Path) -> None:
    values(full, "capsnet-r3-recon", 2.0, 2.9, 2.0, 2.0, 2.0)
    for seed in (2, 3, 4):
        (toy.run_folder(full, "mnist", "capsnet-r3-recon", seed) / "manifest.json").unlink()
    judgement = one(full, claim("value", expected=2.45, delta=5.0, test="student"))
    assert (judgement.verdict, judgement.n) == ("undecided", 2)
    assert judgement.seeds_needed == 5
