"""Verdicts by their rules, on results whose truth is known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from judging import CELLS, IMAGES, answer, claim, errors, judged, one, results_of, values

from capsbench.files import write_json
from capsbench.report.collect import collect
from capsbench.report.verdicts.words import claimed, ours

# ---- value -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        ((1.9, 2.0, 2.1, 2.0, 2.0), "reproduced", "lies inside the claimed 2 ± 0.5 %"),
        ((2.9, 3.0, 3.1, 3.0, 3.0), "not reproduced", "lies outside"),
        ((1.2, 1.1, 1.3, 1.2, 1.2), "not reproduced", "lies outside"),
        ((2.3, 2.6, 2.4, 2.5, 2.3), "undecided", "lies only partly inside"),
    ],
)
def test_a_value_is_judged_by_the_interval_over_seeds(
    full: Path, found: tuple[float, ...], verdict: str, words: str
) -> None:
    values(full, "capsnet-r3-recon", *found)
    judgement = one(full, claim("value"))
    assert judgement.verdict == verdict
    assert words in judgement.why
    assert judgement.estimate is not None
    assert judgement.estimate.value == pytest.approx(np.mean(found))
    assert (judgement.seeds_needed is not None) == (verdict == "undecided")
    assert judgement.p is None


def test_an_undecided_value_says_how_many_seeds_would_decide_it(full: Path) -> None:
    values(full, "capsnet-r3-recon", 2.3, 2.6, 2.4, 2.5, 2.3)
    judgement = one(full, claim("value"))
    needed = judgement.seeds_needed
    assert needed is not None and needed > 5  # noqa: PT018
    assert f"a new trial of {needed} seeds per cell would have an 80 % chance of deciding it" in judgement.why
    values(full, "capsnet-r3-recon", 2.4, 2.6, 2.5, 2.5, 2.5)  # on the bound: no number of seeds leaves it
    judgement = one(full, claim("value"))
    assert (judgement.verdict, judgement.seeds_needed) == ("undecided", None)
    assert "no trial of up to 10,000 seeds has an 80 % chance of deciding it" in judgement.why


# ---- direction -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["crossed", "welch"])
@pytest.mark.parametrize(("direction", "verdict"), [("less", "reproduced"), ("greater", "not reproduced")])
def test_a_direction_is_judged_by_which_side_of_0(full: Path, test: str, direction: str, verdict: str) -> None:
    judgement = one(full, claim("direction", direction=direction, test=test))
    assert judgement.verdict == verdict
    assert judgement.estimate is not None and judgement.estimate.value < -1.5  # noqa: PT018
    assert judgement.p_holm == judgement.p  # alone in its family
    assert judgement.adjusted is not None and judgement.adjusted[1] < 0  # noqa: PT018
    assert judgement.trials is not None
    assert judgement.trials == (1.0 if direction == "less" else 0.0, 100, True)


def test_no_difference_in_truth_leaves_a_direction_undecided(full: Path) -> None:
    answer(full, "cnn", errors(0.02, stream=3))
    judgement = one(full, claim("direction"))
    assert judgement.verdict == "undecided"
    assert "contains 0" in judgement.why
    assert judgement.adjusted is not None and judgement.adjusted[0] < 0 < judgement.adjusted[1]  # noqa: PT018


def test_mcnemar_counts_who_alone_was_right(full: Path) -> None:
    wrong = np.zeros((5, IMAGES), dtype=bool)
    cnn, caps = wrong.copy(), wrong.copy()
    cnn[:, :30] = True
    caps[:, 25:35] = True
    answer(full, "cnn", cnn)
    answer(full, "capsnet-r3-recon", caps)
    found = one(full, claim("direction")).mcnemar
    assert [(m["seed"], m["only_claimed"], m["only_baseline"]) for m in found] == [(s, 25, 5) for s in range(5)]
    assert found[0]["p"] == pytest.approx(0.000325, abs=1e-6)  # 2 P(X <= 5), X binomial(30, 1/2)


def test_a_family_is_corrected_with_what_is_not_run(full: Path) -> None:
    answer(full, "cnn", errors(0.0285, stream=1))
    alone = one(full, claim("direction"))
    assert alone.p is not None and 0.001 < alone.p < 0.04, alone.p  # noqa: PT018
    missing = [claim("direction", id=f"missing-{k}", cell="mnist/capsnet-r1") for k in range(60)]
    among = judged(full, claim("direction"), *missing)[0].judgements
    assert among[0].p == alone.p
    assert among[0].p_holm == pytest.approx(min(1, 61 * alone.p))
    assert (alone.verdict, among[0].verdict) == ("reproduced", "undecided")
    assert among[0].adjusted is not None and among[0].adjusted[1] > 0  # noqa: PT018
    assert {j.verdict for j in among[1:]} == {"not run"}
    assert all(j.p is None and j.p_holm is None for j in among[1:])


def test_a_p_of_one_is_adjusted_for_its_whole_family_wherever_it_stands_in_the_file(full: Path) -> None:
    """Claims that are not run count with p = 1 too, and equal p stand on the strictest step of theirs."""
    values(full, "cnn", 1.9, 2.0, 2.1, 2.0, 2.0)
    values(full, "capsnet-r3-recon", 2.0, 2.0, 1.8, 2.1, 2.1)  # the same mean
    own = claim("direction", test="welch")
    missing = [claim("direction", id=f"missing-{k}", cell="mnist/capsnet-r1") for k in range(4)]
    first, last = (
        next(j for j in judged(full, *said)[0].judgements if j.claim.id == "direction")
        for said in ([own, *missing], [*missing, own])
    )
    assert first.p == last.p == pytest.approx(1.0)
    assert first.estimate is not None
    assert first.adjusted == last.adjusted == pytest.approx(first.estimate.interval(1 - 0.05 / 5))


def test_a_constant_to_be_beaten(full: Path) -> None:
    said = claim("direction", baseline=None, expected=3.0, test="student")
    judgement = one(full, said)
    assert judgement.verdict == "reproduced"
    assert judgement.estimate is not None and judgement.estimate.value == pytest.approx(-1, abs=0.3)  # noqa: PT018
    assert one(full, said | {"expected": 1.0}).verdict == "not reproduced"
    assert claimed(judgement) == "< 3"
    assert ours(judgement).startswith(f"{judgement.estimate.value + 3:.2f} (")
    shown = {"ours": ours(judgement), "claimed": "< 3", "value": judgement.estimate.value + 3}
    assert judgement.as_json(collect(full), ())["shown"] == shown
    assert judgement.why.startswith("Ours minus 3 is -0.")
    assert " points; its Holm-adjusted interval" in judgement.why


# ---- no difference ---------------------------------------------------------------------------------------------------


def test_equivalence_needs_both_one_sided_tests_and_never_a_large_p(full: Path) -> None:
    answer(full, "cnn", errors(0.02, stream=3))
    assert one(full, claim("no_difference", delta=1.5)).verdict == "reproduced"
    tight = one(full, claim("no_difference", delta=0.02))
    assert tight.verdict == "undecided"  # though a test of the difference has a large p
    assert tight.welch is not None and tight.welch.p() > 0.2  # noqa: PT018
    answer(full, "cnn", errors(0.06, stream=3))
    assert one(full, claim("no_difference", delta=0.5)).verdict == "not reproduced"


def test_equivalence_over_paired_seeds_sees_through_what_the_seeds_share(full: Path) -> None:
    seeds = np.array([1.0, 3.0, 2.0, 4.0, 2.5])
    values(full, "cnn", *seeds)
    values(full, "capsnet-r3-recon", *(seeds + np.array([0.01, -0.01, 0.0, 0.02, -0.02])))
    said = claim("no_difference", delta=0.05)
    judgement = one(full, said | {"test": "paired"})
    assert judgement.verdict == "reproduced"
    assert judgement.estimate is not None and judgement.estimate.interval()[1] < 0.05  # noqa: PT018
    assert one(full, said | {"test": "welch"}).verdict == "undecided"  # it has the spread between seeds against it


def test_pairs_need_two_seeds_that_both_cells_have(full: Path) -> None:
    for seed in (1, 2, 3, 4):
        shutil.rmtree(full / "runs" / "mnist" / "cnn" / f"seed-{seed}")
    shutil.copytree(full / "runs" / "mnist" / "cnn" / "seed-0", full / "runs" / "mnist" / "cnn" / "seed-7")
    judgement = one(full, claim("no_difference", delta=0.05, test="paired"))
    assert (judgement.verdict, judgement.n) == ("undecided", 1)
    assert judgement.why.startswith("At most one seed in common gives no spread to judge by")


def test_of_pairs_n_is_how_many_seeds_both_cells_have(full: Path) -> None:
    for seed in (0, 1, 2):
        shutil.rmtree(full / "runs" / "mnist" / "cnn" / f"seed-{seed}")
    judgement = one(full, claim("no_difference", delta=0.05, test="paired"))
    assert judgement.n == 2
    assert "(on 2 of 5 planned seeds)" in judgement.why


# ---- not run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["value", "direction", "no_difference"])
def test_another_experiment_judges_nothing(tmp_path: Path, kind: str) -> None:
    reduced = {"mnist/capsnet-r3-recon": [{"kind": "experiment", "words": "width 1/8"}]}
    judgement = one(results_of(tmp_path / "narrow", CELLS, reduced=reduced), claim(kind))
    assert judgement.verdict == "not run"
    assert "reduced protocol: width 1/8" in judgement.why


def test_the_short_budget_judges_and_is_named(full: Path) -> None:
    reduced = {f"mnist/{v}": [{"kind": "budget", "words": "46,875 steps"}] for v in CELLS["mnist"]}
    toy.change_json(full / "plan.json", budget="short", reduced=reduced)
    for judgement in judged(full, claim("value"), claim("direction"))[0].judgements:
        assert judgement.verdict == "reproduced"
        assert "under the budget short (46,875 steps)" in judgement.why


def test_a_verdict_that_another_plan_gives_for_good_says_which(full: Path) -> None:
    toy.change_json(full / "plan.json", name="paper")
    for home in ("precision", "paper", None):
        why = one(full, claim("direction", plan=home)).why
        said = "the verdict that counts is the one on the results of config/precision.yaml"
        assert (said in why) is (home == "precision"), home
        assert ("the verdict that counts" in why) is (home == "precision"), home


def test_a_plan_that_names_no_reduction_by_cell_counts_all_as_another_experiment(full: Path) -> None:
    toy.change_json(full / "plan.json", reductions={"mnist": ["2 epochs"]}, reduced={})
    assert "2 epochs, which makes it a different experiment" in one(full, claim("direction")).why


def test_substitute_and_other_data_judge_nothing(full: Path) -> None:
    for name, badge, words in (
        ("uci-digits", "UCI digits, not MNIST", "substitute data: this plan has UCI digits, not MNIST"),
        ("fashion-mnist", "Fashion-MNIST", "other data: this plan has Fashion-MNIST, but the claim is about mnist"),
    ):
        toy.change_json(full / "plan.json", dataset={"name": name, "badge": badge})
        judgement = one(full, claim("direction"))
        assert judgement.verdict == "not run"
        assert words in judgement.why


def test_synthetic_affnist_judges_its_own_claims_alone(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "affnist", {"affnist": ["cnn-pool", "capsnet-r3-recon"]})
    said: dict[str, Any] = {
        "cell": "affnist/capsnet-r3-recon", "condition": "matched", "metric": "accuracy", "data": "affnist",
    }  # fmt: skip
    against = said | {"baseline": "affnist/cnn-pool", "direction": "greater", "test": "welch"}
    value, direction, own = judged(
        folder,
        claim("value", **said, expected=79.0, delta=2.0),
        claim("direction", **against),
        claim("direction", **against | {"data": "affnist-synth"}, id="own"),
    )[0].judgements
    assert value.why == direction.why == "official data missing: scored on affnist-synth."
    assert value.reason == "official data missing"
    assert {value.verdict, direction.verdict} == {"not run"}
    assert own.verdict == "reproduced"


def test_what_is_missing_is_named(full: Path) -> None:
    judgement = one(full, claim("value", cell="mnist/capsnet-r1"))
    assert judgement.why == "mnist/capsnet-r1 is not in this plan."
    assert judgement.reason == "this plan has no such cell"
    for seed in range(5):
        toy.fail(full, "mnist", "cnn", seed)
    judgement = one(full, claim("direction"))
    assert judgement.verdict == "not run"
    assert judgement.why == "every run of mnist/cnn (5) failed or was not matched."
    assert judgement.reason == "its runs failed or were not matched"
    untested = {key: claim("value")[key] for key in ("id", "sentence", "source", "kind", "family")}
    judgement = one(full, untested | {"untested": "the suite has no CIFAR-10"})
    assert (judgement.verdict, judgement.why) == ("not run", "not tested here: the suite has no CIFAR-10.")


@pytest.mark.parametrize("change", ["none", "truncated", "altered", "older"])
def test_predictions_that_are_not_the_metric_s_judge_nothing(full: Path, change: str) -> None:
    path = toy.run_folder(full, "mnist", "cnn", 2) / "test" / "predictions.npz"
    if change == "none":
        path.unlink()
    elif change == "truncated":
        toy.truncate(path)
    elif change == "older":
        np.savez(path, labels=np.zeros(IMAGES, np.uint8), margin=np.zeros(IMAGES, np.float16))
    else:
        np.savez(path, labels=np.zeros(IMAGES, np.uint8), predicted=np.zeros(IMAGES, np.uint8))
    crossed, welch = judged(full, claim("direction"), claim("direction", id="welch", test="welch"))[0].judgements
    assert crossed.verdict == "not run"
    assert crossed.why.startswith("predictions.npz of mnist/cnn/seed-2 ")
    assert welch.verdict == "reproduced"  # it needs no predictions


# ---- the file --------------------------------------------------------------------------------------------------------


def test_claims_json_says_it_all(full: Path, tmp_path: Path) -> None:
    found, results = judged(full, claim("value"), claim("direction"), claim("no_difference", cell="mnist/capsnet-r1"))
    write_json(tmp_path / "claims.json", found.as_json(results, {"mnist_error"}))
    said = json.loads((tmp_path / "claims.json").read_text())
    assert said["counts"] == {"reproduced": 2, "not reproduced": 0, "undecided": 0, "not run": 1}
    value, direction, missing = said["claims"]
    assert (value["paper"], value["delta"], value["effect"]) == (2.0, 0.5, value["cells"][0]["mean"])
    assert direction["effect"] == pytest.approx(direction["cells"][0]["mean"] - direction["cells"][1]["mean"])
    assert direction["ci_low"] < direction["effect"] < direction["ci_high"] < 0
    assert [cell["role"] for cell in direction["cells"]] == ["claimed", "baseline"]
    for run in direction["cells"][1]["runs"]:
        assert (full / run / "manifest.json").exists()
    assert (direction["tables"], direction["figures"]) == (["mnist"], ["mnist_error"])
    assert (direction["dataset"], direction["budget"], direction["n"]) == (
        {"name": "mnist", "badge": "MNIST"},
        "short",
        5,
    )
    assert [missing[key] for key in ("effect", "ci_low", "p", "p_holm", "seeds_needed", "welch")] == [None] * 6
    again, results = judged(full, claim("value"), claim("direction"), claim("no_difference", cell="mnist/capsnet-r1"))
    write_json(tmp_path / "again.json", again.as_json(results, {"mnist_error"}))
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "claims.json").read_bytes()
    assert again.as_json(results, {"claims"})["claims"][1]["figures"] == []  # a figure that was not drawn has no link


def test_claims_edited_after_the_runs_are_marked(full: Path) -> None:
    first = judged(full, claim("value"))[0]
    assert "10 of 10 runs have no record of the claims" in str(first.edited)
    for variant in CELLS["mnist"]:
        for seed in range(5):
            path = toy.run_folder(full, "mnist", variant, seed) / "manifest.json"
            digests = json.loads(path.read_text())["digests"] | {"claims": first.claims.digest}
            toy.change_json(path, digests=digests)
    assert judged(full, claim("value"))[0].edited is None
    assert "10 of 10 runs were trained before the claims were last edited" in str(
        judged(full, claim("value", delta=0.6))[0].edited
    )
