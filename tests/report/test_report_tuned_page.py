"""What docs/two-digits-routing.md says of the rows whose rate and decay tuning chose follows from results/ablation."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from pages import NUMBER, RESULTS, ROUTING, TO, has_its_seeds, rows_of, said, words_of

TUNING = RESULTS / "ablation" / "tuning" / "two_digit"
SECTION = "Rate and schedule, tuned"
MODELS = {"dynamic routing": "two-digit-dynamic", "CNN": "two-digit-average-mlp"}
RATES, DECAYS = (0.0003, 0.001, 0.003), (0.96, 0.98, 1.0)


def test_the_trials_and_what_they_chose_are_as_the_page_says() -> None:
    firsts = [f"{name}, {rate:g}" for name in MODELS for rate in RATES]
    rows = rows_of(ROUTING, firsts, 4, SECTION)
    for name, variant in MODELS.items():
        choice = json.loads((TUNING / f"{variant}.json").read_text())
        errors = {(point["rate"], point["decay"]): point["mean"] for point in choice["grid"]}
        assert [*errors] == [(rate, decay) for rate in RATES for decay in DECAYS]
        best = min(errors, key=lambda point: errors[point])  # the first of those that tie
        assert (choice["chosen"]["rate"], choice["chosen"]["decay"]) == best
        for rate in RATES:
            cells = rows[f"{name}, {rate:g}"]
            told = [f"{errors[rate, decay]:.2f}" for decay in DECAYS]
            bold = [f"**{text}**" if (rate, decay) == best else text for text, decay in zip(told, DECAYS, strict=True)]
            assert cells == bold
        for point in choice["grid"]:  # the choice has the trials' own figures
            place = TUNING / variant / f"rate-{point['rate']:g}-decay-{point['decay']:g}" / "seed-1000"
            assert json.loads((place / "held-out.json").read_text())["error"] == pytest.approx(point["mean"])


def test_the_tuned_rows_have_their_seeds_and_their_differences() -> None:
    rows = {
        "Capsules, dynamic routing, squash 1, tuned": "two-digit-dynamic+tuned",
        "CNN, average pooling, MLP, tuned": "two-digit-average-mlp+tuned",
    }
    has_its_seeds(ROUTING, rows, RESULTS / "ablation" / "runs" / "two_digit", SECTION)
    frame = pd.read_csv(RESULTS / "ablation" / "tables" / "ablation.csv")
    frame = frame[(frame["task"] == "two_digit") & (frame["metric"] == "top2_accuracy")].set_index(
        ["variant", "condition"]
    )
    text, pair = words_of(ROUTING), rf"{NUMBER} (?:points )?(?:one above the other )?\({TO}\)"
    for variant, begins, sign in (
        ("two-digit-dynamic+tuned", rf"dynamic routing has less by {pair} and {NUMBER} side by side \({TO}\)", -1),
        ("two-digit-average-mlp+tuned", rf"no gain is shown: {pair} and {NUMBER} \({TO}\)", 1),
    ):
        expected = []
        for condition in ("56x28", "28x56"):
            row = frame.loc[(variant, condition)]
            expected += [sign * row["difference"], *sorted((sign * row["ci_low"], sign * row["ci_high"]))]
        assert said(begins, text) == pytest.approx(expected, abs=0.0501)


def test_the_trials_took_what_the_page_says() -> None:
    manifests = [json.loads(path.read_text()) for path in TUNING.rglob("manifest.json")]
    assert len(manifests) == 18
    minutes = [manifest["seconds"] / 60 for manifest in manifests]
    told = said(r"has the trials, .* in (\d+) to (\d+) minutes each on a core of an Intel Xeon", words_of(ROUTING))
    assert told == pytest.approx([min(minutes), max(minutes)], abs=0.501)
    assert {manifest["steps"] for manifest in manifests} == {4_700}
    assert all("Intel" in manifest["machine"]["processor"] for manifest in manifests)
