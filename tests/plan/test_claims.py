"""config/claims.yaml is whole, and every mistake in a claims file is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from capsbench.errors import PlanError
from capsbench.evaluation import segmentation
from capsbench.plan import House
from capsbench.plan.claims import CROSSED, METRICS, load_claims
from capsbench.plan.load import config_folder
from capsbench.plan.tasks import TASKS
from capsbench.provenance import digest_of

BEATS: dict[str, Any] = {
    "id": "beats", "sentence": "A beats B.", "source": "nobody", "kind": "direction", "family": "one",
    "cell": "mnist/capsnet-r3-recon", "baseline": "mnist/cnn", "condition": "test", "metric": "error", "data": "mnist",
    "direction": "less", "test": "crossed",
}  # fmt: skip
VALUE = {key: BEATS[key] for key in ("sentence", "source", "family", "cell", "condition", "metric", "data")} | {
    "id": "value", "kind": "value", "expected": 0.25, "delta": 0.05, "test": "student",
}  # fmt: skip


def written(folder: Path, *claims: dict[str, Any], families: Any = None) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "claims.yaml"
    path.write_text(yaml.safe_dump({"families": families or {"one": "A family"}, "claims": list(claims)}))
    return path


def test_the_suite_s_claims_hold_together() -> None:
    claims = load_claims()
    assert claims.path == config_folder() / "claims.yaml"
    assert {claim.kind for claim in claims.claims} == {"value", "direction", "no_difference"}
    assert all(claim.sentence.endswith(".") and claim.source for claim in claims.claims)


def test_every_claim_has_a_shipped_plan_that_can_decide_it() -> None:
    """All cells of a claim are rows of one plan, on its data: of two plans nothing is compared."""
    names = ("paper", "paper-authors", "ablation", "ladder", "precision", "fashion-mnist", "kmnist", "two-digit-again")
    houses = {name: House.load(config_folder() / f"{name}.yaml") for name in names}
    rows = {
        name: {(cell.task, cell.variant, data) for cell in house.cells for data in data_of(house, cell.task)}
        for name, house in houses.items()
    }
    claims = [claim for claim in load_claims().claims if claim.untested is None]
    wanted = {claim.id: {(*side, claim.data) for side in claim.sides()} for claim in claims}
    assert len(claims) > 80
    assert [claim.id for claim in claims if not any(wanted[claim.id] <= plan for plan in rows.values())] == []
    assert [claim.id for claim in claims for home in claim.plans if not wanted[claim.id] <= rows[home]] == []
    assert {claim.family for claim in claims if claim.plan is None} == {"parameters"}


def test_no_plan_does_less_than_its_claims_are_about() -> None:
    """Rows of an axis are what their claims ask for; shorter training leaves a published value unjudged."""
    claims = [claim for claim in load_claims().claims if claim.untested is None and claim.plans]
    homes = {name for claim in claims for name in claim.plans}
    houses = {name: House.load(config_folder() / f"{name}.yaml") for name in homes}
    assert any("+n10" in variant for claim in claims for _, variant in claim.sides())
    for claim in claims:
        barred = {"experiment"} | ({"training"} if claim.kind == "value" else set())
        for house in map(houses.__getitem__, claim.plans):
            reduced = [found for task, variant in claim.sides() for found in house.reduced(house.cell(task, variant))]
            assert barred.isdisjoint(found.kind for found in reduced), claim.id


def data_of(house: House, task: str) -> tuple[str, ...]:
    """What a task's runs may be scored on."""
    return ("affnist", "affnist-synth") if task == "affnist" else (house.dataset,)


def test_every_published_figure_is_a_claim() -> None:
    published = yaml.safe_load((config_folder() / "published.yaml").read_text())["values"]
    claims = [claim for claim in load_claims().claims if claim.kind == "value"]
    for figure in published:
        place = f"{figure['task']}/{figure['variant']}", figure["condition"], figure["metric"]
        values = [c.expected for c in claims if (c.cell, c.condition, c.metric) == place]
        exact = 0.08 if figure["variant"] == "cnn-valid" else 0  # 66 in the paper, 66.08 in the claim's source
        assert any(value == pytest.approx(figure["value"], rel=1e-9, abs=1e-9 + exact) for value in values), place


def test_the_metrics_are_those_that_evaluation_writes() -> None:
    assert {task: set(METRICS[task]) for task in METRICS} == {name: set(t.CONDITIONS) for name, t in TASKS.items()}
    drawn = {name.format(m) for m in segmentation.UNITS for name in ("{}_true", "{}_predicted", "baseline_{}")}
    assert drawn | {"error", "half_credit_error", "leakage"} == set(METRICS["multimnist"]["test"])
    assert {metric for _, _, metric in CROSSED} == {
        "error", "accuracy", "half_credit_error", "top2_accuracy", "both_above_half_accuracy",
        "final_top2_accuracy", "final_both_above_half_accuracy",
    }  # fmt: skip


def test_the_digest_is_of_what_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, BEATS, VALUE)
    first = load_claims(path)
    again = tmp_path / "again.yaml"
    again.write_text("# a comment\n" + path.read_text())
    assert load_claims(again).digest == first.digest
    other = tmp_path / "other.yaml"
    other.write_text(path.read_text().replace("0.05", "0.06"))
    assert load_claims(other).digest != first.digest
    assert first.digest == digest_of([first.families, [claim.model_dump() for claim in first.claims]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metrik": "error"}, ["claims.beats", "unknown key 'metrik'", "did you mean 'metric'"]),
        ({"kind": "directoin"}, ["claims.beats.kind", "'directoin'", "did you mean 'direction'"]),
        (
            {"cell": "mnist/capsnet-r3-recom"},
            ["claims.beats.cell", "capsnet-r3-recom", "did you mean 'capsnet-r3-recon'"],
        ),
        ({"baseline": "mnits/cnn"}, ["claims.beats.baseline", "no task 'mnits'", "did you mean 'mnist'"]),
        ({"baseline": "mnist/cnn+x9"}, ["claims.beats.baseline", "not a row of an axis", "mnist/cnn+n100"]),
        ({"baseline": "cnn"}, ["claims.beats.baseline", "not task/variant"]),
        ({"baseline": "mnist/two-digit-kmeans"}, ["claims.beats.baseline", "cannot be trained on mnist"]),
        ({"baseline": "affnist/cnn"}, ["claims.beats", "different tasks, affnist and mnist"]),
        ({"metric": "eror"}, ["claims.beats.metric", "'eror'", "did you mean 'error'"]),
        ({"condition": "tset"}, ["claims.beats.condition", "'tset'", "did you mean 'test'"]),
        ({"family": "on"}, ["claims.beats.family", "'on'", "did you mean 'one'"]),
        ({"data": "affnist"}, ["claims.beats.data", "'affnist'", "scored on mnist"]),
        ({"direction": None}, ["claims.beats", "a direction claim needs direction"]),
        ({"delta": 0.1}, ["claims.beats", "a direction claim takes no delta"]),
        ({"expected": 0.3}, ["claims.beats", "one of baseline, baseline_metric and expected"]),
        ({"test": "student"}, ["claims.beats", "test must be welch or crossed", "not student"]),
        ({"untested": "why"}, ["claims.beats", "untested takes no"]),
        ({"sentence": 5}, ["claims.beats.sentence", "5"]),
        ({"id": "../up"}, ["number 1", "'../up'", "letters, digits, '_', '-', '+' and single dots only."]),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, change: dict[str, Any], words: list[str]) -> None:
    values = {key: value for key, value in (BEATS | change).items() if value is not None}
    with pytest.raises(PlanError) as caught:
        load_claims(written(tmp_path, values))
    sentence = str(caught.value)
    for word in [str(tmp_path / "claims.yaml"), *words]:
        assert word in sentence
    assert "\n" not in sentence
    assert sentence[-1] in ".?"


def test_a_test_that_has_no_predictions_is_refused(tmp_path: Path) -> None:
    matched = BEATS | {
        "cell": "affnist/capsnet-r3-recon", "baseline": "affnist/cnn-pool", "condition": "matched",
        "metric": "accuracy", "data": "affnist",
    }  # fmt: skip
    with pytest.raises(PlanError, match="no stored answers to single images; use welch"):
        load_claims(written(tmp_path, matched))
    assert load_claims(written(tmp_path / "second", matched | {"test": "welch"})).claims[0].test == "welch"


def test_a_claim_counts_in_the_plan_of_its_family_or_its_own(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    other = VALUE | {"plan": "ablation"}

    def plans(said: Any) -> list[Any]:
        path.write_text(yaml.safe_dump({"families": {"one": "A family"}, "plans": said, "claims": [BEATS, other]}))
        load_claims.cache_clear()
        return [claim.plan for claim in load_claims(path).claims]

    assert plans({"one": "paper"}) == ["paper", "ablation"]
    assert plans({"one": ["paper", "ladder"]}) == [("paper", "ladder"), "ablation"]
    assert plans({}) == [None, "ablation"]
    for said, words in (
        ({"two": "paper"}, "plans.two: no family 'two'"),
        ({"one": "papre"}, "claims.beats.plan: there is no config/papre.yaml"),
        (
            {"one": ["paper", "paper"]},
            "claims.beats.plan: plan must be the name of a plan, or a list",
        ),
        ([], "plans must be a mapping"),
        ({"one": None}, "plans must be a mapping of families to one plan or a list of plans"),
    ):
        with pytest.raises(PlanError, match=words):
            plans(said)
    other["plan"] = ["paper", "paper-authors"]
    assert plans({}) == [None, ("paper", "paper-authors")]
    for said in ([], ["paper", 1], ["paper", "paper"], 3):
        other["plan"] = said
        with pytest.raises(PlanError, match="plan must be the name of a plan, or a list of names without repetition"):
            plans({})


def test_a_claim_that_runs_suggested_counts_in_a_plan_of_other_seeds() -> None:
    suggested = [claim for claim in load_claims().claims if claim.known_seeds]
    assert {claim.family for claim in suggested} == {"two-digit-again"}
    for claim in suggested:
        for cell in House.load(config_folder() / f"{claim.plans[0]}.yaml").cells:
            assert set(cell.seeds).isdisjoint(claim.known_seeds or ())


def test_seeds_that_suggested_a_claim_are_named_where_they_have_an_effect(tmp_path: Path) -> None:
    untested = {key: BEATS[key] for key in ("id", "sentence", "source", "kind", "family")} | {
        "untested": "no such data"
    }
    with pytest.raises(PlanError, match=r"a claim that is untested takes no known_seeds"):
        load_claims(written(tmp_path / "untested", untested | {"known_seeds": [0]}))
    with pytest.raises(PlanError, match=r"claims\.beats\.known_seeds"):
        load_claims(written(tmp_path / "none", BEATS | {"known_seeds": []}))
    assert load_claims(written(tmp_path / "said", BEATS | {"known_seeds": [0, 3]})).claims[0].known_seeds == [0, 3]


def test_ids_and_families_are_used_once_and_all(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"claims\.beats appears twice"):
        load_claims(written(tmp_path, BEATS, BEATS))
    with pytest.raises(PlanError, match=r"families\.two has no claim"):
        load_claims(written(tmp_path / "second", BEATS, families={"one": "A family", "two": "Another"}))


@pytest.mark.parametrize(
    "text", ["claims: 5\nfamilies: {}\n", "families: []\nclaims: []\n", "- 1\n", "claim: []\n", "a: [\n"]
)
def test_another_form_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"claims\.yaml"):
        load_claims(path)
