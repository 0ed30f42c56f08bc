"""A verdict looks at both cells of its claim: at the runs, the digits and the reductions of either."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from judging import CELLS, claim, judged, measure, one, results_of, values

from capsbench.report.collect import collect
from capsbench.report.verdicts.sides import side_of


def planned(folder: Path, *keep: tuple[str, str, int], drop: tuple[tuple[str, str, int], ...] = ()) -> None:
    """Take runs out of plan.json, or add some that were never trained, by task, variant and seed."""
    runs = json.loads((folder / "plan.json").read_text())["runs"]
    left = [run for run in runs if (run["task"], run["variant"], run["seed"]) not in drop]
    more = [runs[0] | {"task": task, "variant": variant, "seed": seed} for task, variant, seed in keep]
    toy.change_json(folder / "plan.json", runs=[*left, *more])


# ---- what judges nothing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduced", CELLS["mnist"])
def test_a_baseline_that_is_another_experiment_judges_nothing_either(tmp_path: Path, reduced: str) -> None:
    entry = {"kind": "experiment", "words": "width 1/8"}
    folder = results_of(tmp_path / "narrow", CELLS, reduced={f"mnist/{reduced}": [entry]})
    judgement = one(folder, claim("direction", test="welch"))
    assert (judgement.verdict, judgement.reason) == ("not run", "reduced protocol")
    assert "width 1/8, which makes it a different experiment from the claim's" in judgement.why


def test_a_plan_that_names_reductions_by_cell_reduces_no_other_cell(tmp_path: Path) -> None:
    """What plan.json says of a whole task then stands for readers alone."""
    entry = {"kind": "experiment", "words": "width 1/8"}
    tasks = {"mnist": [*CELLS["mnist"], "capsnet-r1"]}
    folder = results_of(
        tmp_path / "narrow", tasks, reductions={"mnist": ["width 1/8"]}, reduced={"mnist/capsnet-r1": [entry]}
    )
    assert one(folder, claim("direction", test="welch")).verdict == "reproduced"
    assert one(folder, claim("value", cell="mnist/capsnet-r1")).reason == "reduced protocol"


@pytest.mark.parametrize("variant", CELLS["mnist"])
def test_a_baseline_that_was_scored_on_fewer_images_judges_nothing_either(full: Path, variant: str) -> None:
    runs = json.loads((full / "plan.json").read_text())["runs"]
    edited = [run | ({"evaluation": "0" * 64} if run["variant"] == variant else {}) for run in runs]
    toy.change_json(full / "plan.json", runs=edited)
    judgement = one(full, claim("direction", test="welch"))
    assert (judgement.verdict, judgement.reason) == ("not run", "reduced protocol")
    assert f"mnist/{variant} was scored on 2,000 images, which is not what the plan says now" in judgement.why


def test_a_run_of_the_baseline_that_suggested_a_claim_does_not_judge_it(full: Path) -> None:
    planned(full, ("mnist", "cnn", 7))
    said = claim("direction", known_seeds=[7])
    judgement = one(full, said)
    assert (judgement.verdict, judgement.reason) == ("not run", "suggested by runs")
    assert judgement.why == "runs of seed 7 suggested it; only other seeds judge it."


@pytest.mark.parametrize("variant", CELLS["mnist"])
def test_one_run_of_either_cell_gives_no_spread(full: Path, variant: str) -> None:
    for seed in (1, 2, 3, 4):
        shutil.rmtree(toy.run_folder(full, "mnist", variant, seed))
    for test in ("welch", "crossed"):
        judgement = one(full, claim("direction", test=test))
        assert (judgement.verdict, judgement.n, judgement.p) == ("undecided", 1, None)
        assert judgement.why.startswith("One seed gives no spread to judge by")


# ---- how many runs there are, and which are lost -------------------------------------------------------------------


def test_a_cell_has_the_seeds_that_its_own_task_plans(tmp_path: Path) -> None:
    """The same variant may be trained over more seeds on another task."""
    folder = results_of(tmp_path / "both", {"mnist": ["cnn"], "affnist": ["cnn"]})
    planned(folder, ("affnist", "cnn", 5), ("affnist", "cnn", 6), drop=(("mnist", "cnn", 4),))
    results = collect(folder)
    assert side_of(results, "claimed", "mnist", "cnn", "test", "error").planned == 4
    assert side_of(results, "claimed", "affnist", "cnn", "final", "accuracy").planned == 7


AFFNIST: dict[str, Any] = {
    "cell": "affnist/cnn-pool", "condition": "matched", "metric": "accuracy", "data": "affnist-synth", "expected": 66.0,
}  # fmt: skip


def test_a_cell_that_never_came_to_the_accuracy_at_which_models_are_compared_says_so(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "affnist", {"affnist": ["cnn-pool"]})
    for seed in range(5):
        toy.unmatch(folder, "cnn-pool", seed)
    judgement = one(folder, claim("value", **AFFNIST))
    assert (judgement.verdict, judgement.reason) == ("not run", "its runs failed or were not matched")
    assert judgement.why == "every run of affnist/cnn-pool (5) failed or was not matched."
    assert judgement.sides[0].failed == 5
    at_the_end = one(folder, claim("value", **AFFNIST | {"condition": "converged"}))
    assert at_the_end.sides[0].failed == 0


def test_some_runs_that_failed_are_not_all_that_there_are(full: Path) -> None:
    toy.fail(full, "mnist", "capsnet-r3-recon", 0)
    for seed in range(1, 5):
        shutil.rmtree(toy.run_folder(full, "mnist", "capsnet-r3-recon", seed) / "test")
    judgement = one(full, claim("value"))
    assert (judgement.verdict, judgement.reason) == ("not run", "no run has the number yet")
    assert judgement.why == "no run of mnist/capsnet-r3-recon has error yet (0 of 5, 1 failed or not matched)."


# ---- which values are compared -------------------------------------------------------------------------------------


def test_pairs_are_those_of_one_seed_where_either_cell_lacks_some(full: Path) -> None:
    seeds = np.array([1.0, 30.0, 2.0, 40.0, 25.0])  # far apart by seed
    values(full, "cnn", *seeds)
    values(full, "capsnet-r3-recon", *(seeds - np.array([1.0, 1.1, 0.9, 1.0, 1.05])))
    shutil.rmtree(toy.run_folder(full, "mnist", "cnn", 0))
    shutil.rmtree(toy.run_folder(full, "mnist", "capsnet-r3-recon", 3))
    judgement = one(full, claim("no_difference", delta=2.0, test="paired"))
    assert judgement.estimate is not None
    assert judgement.estimate.value == pytest.approx(-(1.1 + 0.9 + 1.05) / 3)
    assert judgement.n == 3


@pytest.mark.parametrize("direction", ["less", "greater"])
def test_what_three_seeds_would_have_said_of_a_constant_is_said_of_that_constant(full: Path, direction: str) -> None:
    values(full, "capsnet-r3-recon", 1.9, 2.0, 2.1, 2.0, 2.05)
    said = claim("direction", baseline=None, expected=3.0, direction=direction, test="student")
    judgement = one(full, said)
    assert judgement.trials is not None
    assert judgement.trials[0] == (1.0 if direction == "less" else 0.0)


def test_welch_is_told_with_the_sign_of_the_difference(full: Path) -> None:
    values(full, "cnn", 2.9, 3.0, 3.1, 3.0, 3.05)
    values(full, "capsnet-r3-recon", 1.9, 2.0, 2.1, 2.0, 2.0)
    judgement, results = judged(full, claim("direction", test="welch"))
    told = judgement.judgements[0].as_json(results, ())["welch"]
    assert told["effect"] == pytest.approx(-1.01)
    assert told["ci_low"] < -1.01 < told["ci_high"] < 0


@pytest.mark.parametrize("off", [-1000.0, 1000.0])
def test_a_value_on_the_very_bound_is_inside(full: Path, off: float) -> None:
    count = {"metric": "parameters", "condition": None, "delta": 1000.0}
    parameters = one(full, claim("value", **count, expected=1.0)).sides[0].values[0]
    assert one(full, claim("value", **count, expected=parameters + off)).verdict == "reproduced"
    assert one(full, claim("value", **count, expected=parameters + 1.001 * off)).verdict == "not reproduced"


def test_two_metrics_of_one_cell_have_their_own_answers(tmp_path: Path) -> None:
    """Both are read from the same predictions, each from its own answers."""
    variants = ["two-digit-average-mlp", "two-digit-kmeans"]
    folder = results_of(tmp_path / "pairs", {"two_digit": variants})
    rng = np.random.default_rng(0)
    bases = np.array([rng.choice(50, 2, replace=False) for _ in range(500)], np.uint16)
    rates = {"top2_accuracy": (0.5, 0.9), "both_above_half_accuracy": (0.3, 0.1)}
    for k, variant in enumerate(variants):
        for seed in range(5):
            answers = {metric: rng.random(500) < rate[k] for metric, rate in rates.items()}
            place = toy.run_folder(folder, "two_digit", variant, seed) / "56x28" / "predictions.npz"
            np.savez(place, bases=bases, **{name: right.astype(np.uint8) for name, right in answers.items()})
            measured = {name: 100 * float(right.mean()) for name, right in answers.items()}
            measure(folder, "two_digit", variant, seed, "56x28", **measured)
    both = [
        claim("direction", id=metric.replace("_", "-"), cell=f"two_digit/{variants[1]}",
              baseline=f"two_digit/{variants[0]}", condition="56x28", metric=metric, direction="greater")
        for metric in rates
    ]  # fmt: skip
    together = judged(folder, *both)[0].judgements
    assert [j.verdict for j in together] == ["reproduced", "not reproduced"]
    for judgement, said in zip(together, both, strict=True):
        alone = one(folder, said)
        assert judgement.mcnemar == alone.mcnemar
        assert judgement.estimate == alone.estimate
        assert {found["p"] for found in judgement.mcnemar} == {None}  # pairs that share digits are not independent


def test_of_an_overlaid_pair_both_digits_must_be_right(tmp_path: Path) -> None:
    variants = ["multimnist-cnn", "capsnet-r3-recon"]
    folder = results_of(tmp_path / "pairs", {"multimnist": variants})
    missed = {"multimnist-cnn": np.tile([0, 1, 2, 1], 25), "capsnet-r3-recon": np.tile([0, 0, 1, 2], 25)}
    pairs = np.array([(k % 10, (k + 1 + k // 10 % 9) % 10) for k in range(100)])
    for variant, found in missed.items():
        counts = np.zeros((10, 3), np.uint32)
        np.add.at(counts, (pairs, found[:, None]), 1)
        for seed in range(5):
            place = toy.run_folder(folder, "multimnist", variant, seed) / "test" / "predictions.npz"
            np.savez(place, missed=found.astype(np.uint8), digits=counts)
            measure(folder, "multimnist", variant, seed, "test", error=100 * float((found > 0).mean()))
    said = claim("direction", cell="multimnist/capsnet-r3-recon", baseline="multimnist/multimnist-cnn")
    found = one(folder, said).mcnemar
    assert [(m["only_claimed"], m["only_baseline"], m["p"]) for m in found] == [(25, 0, None)] * 5


def test_images_made_of_one_digit_have_no_p_of_independent_ones(tmp_path: Path) -> None:
    variants = ["cnn-pool", "capsnet-r3-recon"]
    folder = results_of(tmp_path / "affnist", {"affnist": variants})
    for variant in variants:
        for seed in range(5):
            measure(folder, "affnist", variant, seed, "converged", accuracy=92.5)  # as its predictions have it
    said = claim(
        "direction", cell="affnist/capsnet-r3-recon", baseline="affnist/cnn-pool", condition="converged",
        metric="accuracy", data="affnist-synth", direction="greater",
    )  # fmt: skip
    assert [found["p"] for found in one(folder, said).mcnemar] == [None] * 5
