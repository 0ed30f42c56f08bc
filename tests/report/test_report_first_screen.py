"""The first screen: counts, answers, strips and verdicts."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import pytest
import toy
import toy_claims

from capsbench.plan.claims import load_claims
from capsbench.report import tables
from capsbench.report.claims_file import ClaimsFile
from capsbench.report.collect import collect
from capsbench.report.experiments import CAPSULES, VALUE_CLAIMS, experiments, is_baseline
from capsbench.report.questions import QUESTIONS, answers, outcome, untested
from capsbench.report.statistics import summarise
from capsbench.report.strips import strips
from capsbench.report.wide import wide_table


def judged(verdicts: dict[str, str], effect: float = -0.2) -> ClaimsFile:
    claims = [toy_claims.claim(name, verdict, ["a", "b"], effect=effect) for name, verdict in verdicts.items()]
    return toy_claims.claims_file(claims)


def test_verdicts_are_counted() -> None:
    found = toy_claims.claims_file()
    counts = [found.count(verdict) for verdict in ("reproduced", "not reproduced", "undecided", "not run")]
    assert counts == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("verdicts", "short", "sentence"),
    [
        (["reproduced", "reproduced"], "Yes", "Of 2 comparisons: better in 2."),
        (["not reproduced", "not reproduced"], "No", "Of 2 comparisons: worse in 2."),
        (["reproduced", "not reproduced"], "In part", "Of 2 comparisons: better in 1 and worse in 1."),
        (["undecided", "not run"], "Undecided", "Of 2 comparisons: undecided in 1 and not run in 1."),
        (["not run", "not run"], "Not tested", "None of its 2 comparisons has been run."),
        (
            ["reproduced", "not run"],
            "Yes in 1 of 2, open in the others",
            "Of 2 comparisons: better in 1 and not run in 1. "
            "Decided: Sentence of mnist-capsnet-beats-fair-cnn: reproduced.",
        ),
    ],
)
def test_does_capsnet_beat_the_best_fair_cnn(verdicts: list[str], short: str, sentence: str) -> None:
    names = ("mnist-capsnet-beats-fair-cnn", "multimnist-capsnet-beats-fair-cnn")
    (answer,) = answers(judged(dict(zip(names, verdicts, strict=True))))
    assert (answer.short, answer.sentence.partition(" Fair: ")[0]) == (short, sentence)
    assert answer.sentence.endswith(" the paper's own CNN is none of these.")


def test_what_these_runs_suggested_is_not_left_as_if_nobody_had_asked() -> None:
    said = judged({"two-digit-routing-helps": "undecided", "two-digit-dynamic-harms": "not run"})
    decided, suggested = said.claims
    other = suggested.model_copy(update={"reason": "suggested by runs"})
    (answer,) = answers(said.model_copy(update={"claims": [decided, other]}))
    assert answer.sentence == (
        "Of 2 comparisons: undecided in 1 and not run in 1. These runs suggested 1 of the latter, which other "
        "seeds judge, in the plan that is named beside the claim."
    )


def test_what_is_about_other_data_leaves_no_question_open_beside_what_is_not() -> None:
    said = judged({"affnist-average-beats-capsnet": "reproduced", "affnist-synth-average-beats-capsnet": "not run"})
    official, synthetic = said.claims
    other = synthetic.model_copy(update={"reason": "other data"})
    (answer,) = answers(said.model_copy(update={"claims": [official, other]}))
    assert answer.short == "No"
    (answer,) = answers(said.model_copy(update={"claims": [other]}))
    assert answer.short == "Not tested"


def test_a_claim_that_the_other_is_better_is_turned_round() -> None:
    (answer,) = answers(judged({"affnist-average-beats-capsnet": "reproduced"}))
    assert answer.short == "No"
    (answer,) = answers(judged({"affnist-routing-harms": "not reproduced"}))
    assert answer.short == "Yes"
    (answer,) = answers(judged({"affnist-routing-harms": "reproduced"}))
    assert answer.short == "Yes, for the worse"


def test_no_difference_is_no_and_a_difference_goes_by_its_sign() -> None:
    assert answers(judged({"mnist-routing-alone": "reproduced"}))[0].short == "No"
    assert answers(judged({"mnist-routing-alone": "not reproduced"}, effect=-0.2))[0].short == "Yes"
    assert answers(judged({"mnist-routing-alone": "not reproduced"}, effect=0.2))[0].short == "Yes, for the worse"


def test_an_answer_in_part_says_how_many_are_open() -> None:
    said = {"two-digit-routing-helps": "reproduced", "two-digit-dynamic-harms": "reproduced", "mnist-routing-helps": ""}
    decided = judged(said | {"mnist-routing-helps": "reproduced"})
    assert answers(decided)[0].short == "In part"
    undecided = judged(said | {"mnist-routing-helps": "undecided"})
    assert answers(undecided)[0].short == "In part: 2 of 3 decided, open in the others"


def test_reasons_for_not_running_are_put_together() -> None:
    whys = [("no such cell", "It has no a."), ("no such cell", "It has no b."), ("reduced", "It has width 1/8.")]
    claims = [toy_claims.claim(f"c{k}", "not run", [], reason=r, why=why) for k, (r, why) in enumerate(whys)]
    claims.append(toy_claims.claim("run", "reproduced", ["a"]))
    found = untested(ClaimsFile.model_validate({"schema": 1, "claims": claims}))
    assert [(u.kind, u.count) for u in found] == [("no such cell", 2), ("reduced", 1)]
    assert found[0].reasons == [("It has no a", 1), ("It has no b", 1)]


def test_every_claim_that_the_page_asks_for_is_declared(repository: Path) -> None:
    path = repository / "config" / "claims.yaml"
    text = path.read_text()
    for name in [*VALUE_CLAIMS.values(), *(name for question in QUESTIONS for name in question.claims)]:
        assert f"{{id: {name}," in text, name


def test_a_strip_has_ours_the_strongest_baseline_and_the_paper(folder: Path) -> None:
    results = collect(folder)
    mnist, affnist, multimnist, two_digit = experiments(results, toy_claims.claims_file())
    assert mnist.ours is not None
    assert mnist.baseline is not None
    assert (mnist.ours.variant, mnist.ours.n, mnist.baseline.variant) == ("capsnet-r3-recon", 3, "cnn")
    assert (mnist.paper_words, mnist.comparable) == ("0.25 %", False)
    assert mnist.paper is not None
    assert mnist.paper < mnist.ours.mean < mnist.baseline.mean  # 0.25, 1.7 and 2.4 %
    assert mnist.verdicts == [
        ("value", "not run", "mnist-r3-recon-value"),
        ("against CNN (Table 1)", "reproduced", "mnist-capsnet-beats-fair-cnn"),
    ]
    means = results.frame.query("condition == 'matched' and metric == 'accuracy'").groupby("variant")["value"].mean()
    assert affnist.baseline is not None
    assert affnist.baseline.variant == means.drop("capsnet-r3-recon").idxmax()
    assert affnist.badge == "affnist-synth"
    assert "matched" in affnist.metric
    assert multimnist.verdicts == []
    assert two_digit.ours is not None
    assert (two_digit.ours.variant, two_digit.paper) == ("two-digit-kmeans", None)
    assert two_digit.paper_words == "gives no figure"


def test_of_several_baselines_none_is_the_strongest_where_no_table_says_which_mean_is_better(
    folder: Path, monkeypatch
) -> None:
    results = collect(folder)
    monkeypatch.delitem(tables.SPECS, "affnist")  # as of a new task: plain, of accuracies the greatest is the best
    affnist = experiments(results, toy_claims.claims_file())[1]
    assert affnist.metric.startswith("accuracy")
    assert (affnist.scored, affnist.baseline) == (True, None)
    monkeypatch.delitem(tables.SPECS, "mnist")
    mnist = experiments(results, toy_claims.claims_file())[0]
    assert mnist.baseline is not None  # the only one


def test_a_strip_shows_the_claim_that_was_judged_and_says_which_of_the_two_it_calls_better(folder: Path) -> None:
    ours, rival = "capsnet-r3-recon", "cnn"
    claims = [
        toy_claims.claim("official", "not run", [rival, ours]),
        toy_claims.claim("elsewhere", "reproduced", [ours, rival], condition="converged"),
        toy_claims.claim("judged", "reproduced", [rival, ours]),
    ]
    for count, said in ((3, "judged"), (1, "official")):
        mnist = experiments(collect(folder), toy_claims.claims_file(claims[:count]))[0]
        assert [(label, name) for label, _, name in mnist.verdicts] == [("CNN (Table 1) is better", said)]


def test_capsules_are_those_that_the_task_s_claim_is_about() -> None:
    claims = {claim.id: claim for claim in load_claims().claims}
    assert {task: claims[name].cell for task, name in VALUE_CLAIMS.items()} == {
        task: f"{task}/{variant}" for task, variant in CAPSULES.items()
    }


def test_a_capsnet_beside_the_capsules_of_two_digits_does_not_hide_them(tmp_path: Path) -> None:
    tasks = {"two_digit": ["two-digit-average-mlp", "capsnet-r3-recon", "two-digit-kmeans"]}
    results = collect(toy.write_toy(tmp_path / "both", tasks=tasks))
    (found,) = experiments(results, toy_claims.claims_file([]))
    assert found.ours is not None
    assert (found.ours.variant, found.ours.n) == ("two-digit-kmeans", 3)
    tasks = {"two_digit": ["two-digit-average-mlp", "capsnet-r3-recon"]}
    (found,) = experiments(collect(toy.write_toy(tmp_path / "one", tasks=tasks)), None)
    assert found.ours is None


def test_rows_that_no_strip_draws_are_not_called_unscored(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "own", tasks={"mnist": ["capsnet-r1"]})
    page = html.unescape(toy_claims.write_page(folder, folder / "report.html").read_text())
    assert "other rows than the paper's: see the table" in page
    assert "nothing scored yet" not in page


def test_the_scale_holds_intervals_but_those_that_would_press_all_else_together(folder: Path) -> None:
    def scale(*errors: float) -> tuple[str, str]:
        for seed, error in enumerate(errors):
            path = toy.run_folder(folder, "mnist", "cnn", seed) / "test" / "metrics.json"
            toy.change_json(path, metrics={"error": {"value": error, "unit": "%"}})
        return experiments(collect(folder), toy_claims.claims_file())[0].scale

    assert scale(2.1, 2.4, 2.9) == ("0", "3.47")  # 2.47 ± 1.00; means and the paper's 0.25 alone would end it at 3.24
    assert scale(0.4, 2.4, 4.6) == ("0", "3.24")  # 2.47 ± 5.22


def test_the_first_screen_says_n_of_both_bars_and_how_the_cnn_was_chosen(folder: Path) -> None:
    shutil.rmtree(toy.run_folder(folder, "mnist", "cnn", 2))
    page = " ".join(toy_claims.write_page(folder, folder / "report.html").read_text().split())
    strip = page[page.index('<div class="experiments"') :]
    assert re.search(r'title="CapsNet">CapsNet r=3, reconstruction: [0-9.]+ ± [0-9.]+ % \(n = 3\)<', strip)
    assert re.search(r'title="the only CNN with runs">CNN \(Table 1\): [0-9.]+ ± [0-9.]+ % \(n = 2\)<', strip)
    assert "chosen by its mean on test data" in strip


def test_capsules_and_the_positive_control_are_no_baselines(folder: Path) -> None:
    specs = {
        "two-digit-average-mlp": {"model": "two-digit", "head": "pool", "train_on": "task"},
        "two-digit-uniform": {"model": "two-digit", "head": "capsules", "train_on": "task"},
        "two-digit-kmeans": {"model": "two-digit", "head": "pool", "train_on": "pairs"},
    }
    for variant, spec in specs.items():
        for seed in (0, 1, 2):
            path = toy.run_folder(folder, "two_digit", variant, seed) / "manifest.json"
            toy.change_json(path, config={"variant": spec})
    results = collect(folder)
    assert [name for name in specs if is_baseline(results, "two_digit", name)] == ["two-digit-average-mlp"]


def test_the_strongest_capsules_from_outside_have_a_bar_and_other_models_from_outside_are_baselines(
    tmp_path: Path,
) -> None:
    outside = {
        "capsnet-r1": {"model": "capsnet", "routing": "my_file:my_routing"},
        "capsnet-r3": {"model": "my_file:MyCapsules", "capsules": True},
        "cnn": {"model": "my_file:MyBaseline", "capsules": False},
    }
    tasks = {"mnist": [*outside, "capsnet-r3-recon"]}
    folder = toy.write_toy(tmp_path / "outside", tasks=tasks)
    (before,) = experiments(collect(folder), toy_claims.claims_file([]))
    assert before.own is None
    assert 'class="key own"' not in toy_claims.write_page(folder, folder / "report.html").read_text()
    for variant, spec in outside.items():
        for seed, error in enumerate((1.0, 1.1, 1.2)):
            run = toy.run_folder(folder, "mnist", variant, seed)
            toy.change_json(run / "manifest.json", config={"variant": spec})
            value = error + (variant == "capsnet-r1")
            toy.change_json(run / "test" / "metrics.json", metrics={"error": {"value": value, "unit": "%"}})
    (found,) = experiments(collect(folder), toy_claims.claims_file([]))
    assert found.ours is not None
    assert found.own is not None
    assert found.baseline is not None
    assert (found.ours.variant, found.ours.role) == ("capsnet-r3-recon", "CapsNet")
    assert (found.own.variant, found.own.role) == ("capsnet-r3", "best of 2 from outside the suite")  # 1.1 % and 2.1 %
    assert (found.baseline.variant, found.baseline.role) == ("cnn", "the only baseline with runs")
    assert found.own.mean == found.baseline.mean < found.ours.mean
    page = " ".join(toy_claims.write_page(folder, folder / "report.html").read_text().split())
    strip = page[page.index('<div class="experiments"') :]
    words = r'class="own" title="best of 2 from outside the suite">CapsNet r=3: 1\.10 ± [0-9.]+ % \(n = 3\)<'
    assert re.search(words, strip)
    assert 'class="own mean"' in strip
    assert 'class="key own"' in strip


def test_an_experiment_without_runs_has_no_strip_but_a_line(folder: Path) -> None:
    shutil.rmtree(folder / "runs" / "multimnist")
    results = collect(folder)
    found = experiments(results, toy_claims.claims_file([]))[2]
    assert (found.ours, found.baseline, found.verdicts) == (None, None, [])
    assert found.paper_words == "5.2 %"


def test_claims_are_escaped(folder: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"
    dirty = toy_claims.claim(
        "mnist-r3-recon-value", "not run", ["cnn"], sentence=evil, why=evil, source=evil, unit=evil
    )
    claims = [dirty | {"id": f'x" onclick="{evil}'}, dirty]
    said = toy_claims.claims_file(claims, families={evil: evil}, edited=evil)
    text = toy_claims.write_page(folder, folder / "report.html", said).read_text()
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert text.count("<script>") == 1
    assert html.escape(evil, quote=False)[:40] in text


def test_of_two_cnns_the_one_that_errs_less_is_the_rival_and_bars_lie_in_their_intervals(tmp_path: Path) -> None:
    tasks = {"mnist": ["cnn", "cnn-wide", "capsnet-r3-recon"]}
    (found,) = experiments(collect(toy.write_toy(tmp_path / "two", tasks=tasks)), toy_claims.claims_file([]))
    assert found.baseline is not None
    assert (found.baseline.variant, found.baseline.role) == ("cnn-wide", "best of 2 CNNs")  # 1.7 % and 2.4 %
    for bar in (found.ours, found.baseline):
        assert bar is not None
        assert bar.low is not None
        assert bar.high is not None
        assert bar.low < bar.mean < bar.high


def test_a_row_s_strip_has_its_own_numbers_on_the_scale_of_its_condition(healthy: Path) -> None:
    results = collect(healthy)
    table = wide_table(results, "affnist")
    places: dict[str, list[float]] = {"matched": [], "converged": []}
    for row, strip in zip(table.rows, strips(results, table), strict=True):
        found = summarise(results.values("affnist", row.condition, "accuracy", row.variant))
        assert strip is not None
        assert strip.low is not None
        assert strip.high is not None
        assert strip.low <= strip.mean <= strip.high
        paper = {"cnn-valid": ", paper 66", "cnn-pool": ", paper 66", "capsnet-r3-recon": ", paper 79"}[row.variant]
        interval = f"{found.mean:.4g} %, 95 % interval {found.low:.4g} to {found.high:.4g}"
        assert strip.words == interval + (paper if row.condition == "matched" else "")
        places[row.condition] += strip.seeds + ([] if strip.paper is None else [strip.paper])
    for of in places.values():  # each condition fills its own scale, with as much room on either side
        assert min(of) + max(of) == pytest.approx(100, abs=0.02)
        assert 0 < min(of) < 25


@pytest.mark.parametrize(("effect", "said"), [(0.2, "better"), (-0.2, "worse")])
def test_an_accuracy_that_grows_is_better(effect: float, said: str) -> None:
    (claim,) = judged({"two-digit-alone": "not reproduced"}, effect=effect).claims
    assert outcome(claim.model_copy(update={"metric": "top2_accuracy"}), "no different") == said
