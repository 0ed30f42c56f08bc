"""What judges no claim: other data, a reduced protocol, predictions that are not those of the metrics."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy
from jinja2 import Environment, FileSystemLoader
from judging import CELLS, answer, claim, errors, judged, one, results_of

from capsbench.report.claims_file import VERDICTS
from capsbench.report.html import TEMPLATES
from capsbench.report.verdicts.sides import why_not_run

PARAMETERS = {"metric": "parameters", "condition": None, "expected": 120_000, "delta": 5_000}


def test_one_side_on_other_data_judges_nothing(tmp_path: Path) -> None:
    """`collect` keeps one data set a task already; a verdict does not rest on that."""
    folder = results_of(tmp_path / "affnist", {"affnist": ["cnn-pool", "capsnet-r3-recon"]})
    said = claim(
        "direction", cell="affnist/capsnet-r3-recon", baseline="affnist/cnn-pool", condition="matched",
        metric="accuracy", direction="greater", data="affnist", test="welch",
    )  # fmt: skip
    found, results = judged(folder, said)
    judgement = found.judgements[0]
    official, synthetic = (
        [replace(side, dataset=name) for side in judgement.sides] for name in ("affnist", "affnist-synth")
    )
    assert why_not_run(results, judgement.claim, official) is None
    for sides in ([official[0], synthetic[1]], [synthetic[0], official[1]]):
        reason = why_not_run(results, judgement.claim, sides)
        assert reason == ("official data missing", "official data missing: scored on affnist and affnist-synth")


def test_runs_that_suggested_a_claim_do_not_judge_it(full: Path) -> None:
    """Whatever plan they stand in, and be it one of them among others."""
    for known, words in (([3, 4, 7], "runs of seeds 3 and 4 suggested it"), ([0, 9], "runs of seed 0 suggested it")):
        judgement = one(full, claim("direction", known_seeds=known))
        assert (judgement.verdict, judgement.reason) == ("not run", "suggested by runs")
        assert judgement.why == f"{words}; only other seeds judge it."
    assert one(full, claim("direction", known_seeds=[5, 6])).verdict != "not run"


def test_a_claim_that_these_runs_suggested_names_the_plan_of_other_seeds(full: Path) -> None:
    why = one(full, claim("direction", known_seeds=[3], plan="two-digit-again")).why
    assert why == "runs of seed 3 suggested it; only other seeds judge it (config/two-digit-again.yaml)."


def test_runs_that_all_failed_are_not_said_to_have_other_data(full: Path) -> None:
    for seed in range(5):
        toy.fail(full, "mnist", "capsnet-r3-recon", seed)
    judgement = one(full, claim("value"))
    assert (judgement.verdict, judgement.reason) == ("not run", "its runs failed or were not matched")


def test_a_plan_that_is_called_reduced_judges_no_published_number(tmp_path: Path) -> None:
    """Whether or not it says by how much; a comparison under one protocol it judges."""
    folder = results_of(tmp_path / "reduced", CELLS, budget="reduced", reduced={})
    value = one(folder, claim("value"))
    assert value.verdict == "not run"
    assert value.why == "reduced protocol: budget reduced; no published number is judged by that."
    assert one(folder, claim("direction", test="welch")).verdict != "not run"


def of_another_evaluation(folder: Path) -> None:
    """As if the plan had been edited after its runs were scored."""
    runs = json.loads((folder / "plan.json").read_text())["runs"]
    toy.change_json(folder / "plan.json", runs=[run | {"evaluation": "0" * 64} for run in runs])


def test_what_was_scored_on_fewer_images_than_the_plan_now_says_judges_nothing(full: Path) -> None:
    value, crossed = claim("value"), claim("direction")
    assert one(full, value).verdict != "not run"
    of_another_evaluation(full)
    judgement = one(full, value)
    assert (judgement.verdict, judgement.reason) == ("not run", "reduced protocol")
    assert "mnist/capsnet-r3-recon was scored on 2,000 images, which is not what the plan says now" in judgement.why
    assert one(full, crossed).verdict != "not run"  # it counts the chance in the images


def test_what_was_measured_on_fewer_pairs_than_the_plan_now_says_judges_nothing(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "pairs", {"multimnist": ["capsnet-r3-recon"]})
    of_another_evaluation(folder)
    said = {"cell": "multimnist/capsnet-r3-recon", "condition": "test", "expected": 5.0}

    def judged_on(pairs: int, metric: str) -> str:
        for seed in range(5):
            path = toy.run_folder(folder, "multimnist", "capsnet-r3-recon", seed) / "test" / "metrics.json"
            metrics = {name: {"value": 5.0 + seed, "unit": "%"} for name in ("error", "iou_true")}
            toy.change_json(path, metrics=metrics, images=pairs)
        return one(folder, claim("value", **said, metric=metric)).why

    assert "was scored on 100,000 images, which is not what the plan says now" in judged_on(100_000, "error")
    assert "what the plan says now" not in judged_on(10_000_000, "error")
    assert "was drawn on a number of pairs that may not be what the plan says now" in judged_on(10_000_000, "iou_true")


def test_what_was_matched_elsewhere_than_the_plan_now_says_judges_nothing(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "affnist", {"affnist": ["cnn-pool"]})
    said = claim(
        "value", cell="affnist/cnn-pool", condition="matched", metric="accuracy", data="affnist-synth", expected=66.0
    )
    for level, why in ((95.0, "was matched at 95.00 %"), (99.6, "was matched at 99.60 %"), (99.22, None)):
        of_another_evaluation(folder)
        for seed in range(5):
            path = toy.run_folder(folder, "affnist", "cnn-pool", seed) / "matched" / "metrics.json"
            metrics = json.loads(path.read_text())["metrics"]
            toy.change_json(
                path, metrics=metrics | {"held_out_accuracy": {"value": level, "unit": "%"}}, images=320_000
            )
        judgement = one(folder, said)
        assert (why or "") in judgement.why
        assert (judgement.verdict == "not run") is (why is not None)


def test_what_was_read_at_the_end_of_training_asks_for_no_level(tmp_path: Path) -> None:
    """Its held-out accuracy is what it came to, and not where it was matched."""
    folder = results_of(tmp_path / "affnist", {"affnist": ["cnn-pool"]})
    of_another_evaluation(folder)
    said = {"cell": "affnist/cnn-pool", "metric": "accuracy", "data": "affnist-synth", "expected": 70.0, "delta": 9.0}
    assert one(folder, claim("value", **said, condition="matched")).verdict == "not run"
    assert one(folder, claim("value", **said, condition="converged")).verdict == "reproduced"


@pytest.mark.parametrize("kind", ["training", "digits"])
def test_a_count_of_parameters_is_judged_after_any_training_and_on_any_test_digits(tmp_path: Path, kind: str) -> None:
    reduced = {f"mnist/{variant}": [{"kind": kind, "words": "less of it"}] for variant in CELLS["mnist"]}
    folder = results_of(tmp_path / "less", CELLS, reduced=reduced)
    assert one(folder, claim("value", **PARAMETERS)).verdict == "reproduced"
    assert one(folder, claim("value")).verdict == "not run"


@pytest.mark.parametrize(("kind", "test"), [("direction", "welch"), ("value", None)])
def test_less_of_another_metric_judges_as_if_it_were_not_there(tmp_path: Path, kind: str, test: str | None) -> None:
    """The error on 10,000 test digits knows nothing of how many the training error was measured on."""
    said = claim(kind, **({"test": test} if test else {}))
    reasons = {}
    for of in (["train_error", "train_test_gap"], ["error"], ["test"], []):
        entry = {"kind": "digits", "words": "on 2,000 digits", "of": of}
        reduced = {f"mnist/{variant}": [entry] for variant in CELLS["mnist"]}
        folder = results_of(tmp_path / "-".join(of or ["all"]), CELLS, reduced=reduced)
        reasons[tuple(of)] = one(folder, said).reason
    assert reasons == {
        ("train_error", "train_test_gap"): None,
        ("error",): "reduced protocol",
        ("test",): "reduced protocol",
        (): "reduced protocol",
    }


def test_cells_with_their_images_in_another_order_are_not_compared(full: Path) -> None:
    """Each seed agrees with the others of its cell; a draw of digits would be another one for either side."""
    order = np.random.default_rng(0).permutation(2_000)
    for seed in range(5):
        path = toy.run_folder(full, "mnist", "cnn", seed) / "test" / "predictions.npz"
        with np.load(path) as file:
            stored = {name: file[name][order] for name in ("labels", "predicted")}
        np.savez(path, **stored)
    judgement = one(full, claim("direction"))
    assert judgement.verdict == "not run"
    assert "is about other images than the other runs'" in judgement.why


def test_a_single_answer_that_is_not_the_metric_s_is_enough(full: Path) -> None:
    wrong = errors(0.9, stream=1)
    answer(full, "cnn", wrong)
    assert one(full, claim("direction")).verdict == "reproduced"
    path = toy.run_folder(full, "mnist", "cnn", 2) / "test" / "predictions.npz"
    with np.load(path) as file:
        stored = dict(file)
    image = int(wrong[2].argmax())
    stored["predicted"][image] = stored["labels"][image]
    np.savez(path, **stored)
    judgement = one(full, claim("direction"))
    assert judgement.verdict == "not run"
    assert "remove its metrics.json and evaluate the run again" in judgement.why


def test_a_cell_of_another_plan_is_said_to_be_there(full: Path) -> None:
    said = {"cell": "mnist/capsnet-r1", "plan": ["ablation", "paper-authors"]}
    assert one(full, claim("value", **said)).why == (
        "mnist/capsnet-r1 is not in this plan (it is in config/ablation.yaml and config/paper-authors.yaml)."
    )
    both = claim("no_difference", **said | {"plan": "ablation"}, baseline="mnist/capsnet-r3")
    assert one(full, both).why == (
        "mnist/capsnet-r1 and mnist/capsnet-r3 are not in this plan (they are in config/ablation.yaml)."
    )
    toy.change_json(full / "plan.json", name="ablation")  # an older one, which has not that row
    assert one(full, both).why == "mnist/capsnet-r1 and mnist/capsnet-r3 are not in this plan."


def test_what_is_not_trained_yet_is_told_from_what_gave_no_number(full: Path) -> None:
    for seed in range(5):
        values_of = toy.run_folder(full, "mnist", "capsnet-r3-recon", seed) / "test" / "metrics.json"
        toy.change_json(values_of, metrics={"correct": {"value": 1990.0, "unit": "images"}})
    trained = one(full, claim("value"))
    assert trained.why == "no run of mnist/capsnet-r3-recon has error yet (0 of 5)."
    shutil.rmtree(full / "runs" / "mnist" / "capsnet-r3-recon")
    idle = one(full, claim("value"))
    assert idle.why == "not trained yet: mnist/capsnet-r3-recon (0 of 5 seeds)."
    assert trained.reason == idle.reason == "no run has the number yet"
    shutil.rmtree(full / "runs" / "mnist" / "cnn")
    assert one(full, claim("direction")).why == (
        "not trained yet: mnist/capsnet-r3-recon (0 of 5 seeds) and mnist/cnn (0 of 5 seeds)."
    )


def test_the_page_says_in_words_what_a_verdict_means_and_why_claims_are_not_judged(judged_page: Path) -> None:
    page = judged_page.read_text(encoding="utf-8")
    for meaning in VERDICTS.values():
        assert f"<dd>{meaning}</dd>" in page
    template = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True).get_template("reasons.html.j2")
    kinds = inspect.getsource(inspect.getmodule(why_not_run) or why_not_run)
    assert [kind for kind in vars(template.module)["words"] if kind not in kinds] == []
