"""The cost of a plan's variants as a job: measured once, again for other models or options, not at all if unwanted."""

from __future__ import annotations

import json

import pandas as pd
import pytest

COST, DRAW = "Measure what each variant costs", "Draw tables, figures and the report"
OPTIONS = "{batch: 4, repetitions: 1}"


@pytest.mark.slow
def test_cost_is_measured_once_and_again_only_for_other_models(done) -> None:
    before = done.manifests()
    done.plan(cost=OPTIONS)
    said = done.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert said.jobs == {COST, DRAW}
    assert done.manifests() == before
    table = pd.read_csv(done.results / "tables" / "cost.csv")
    assert table["variant"].tolist() == ["cnn", "capsnet-r3-recon", "diverging"]
    stored = json.loads((done.results / "cost.json").read_text())
    assert stored["digest"] == json.loads((done.results / "plan.json").read_text())["cost"]
    assert done.would_run() == set()

    done.plan(cost="{batch: 5, repetitions: 1}")
    assert done.would_run() == {COST, DRAW}
    done.plan(cost=OPTIONS)
    again = done.snakemake("--configfile", "tiny.yaml")
    assert "Nothing to be done" in again.text  # what was measured is not lost to a look at another plan
    assert json.loads((done.results / "cost.json").read_text()) == stored
    (done.results / "cost.json").write_text("{")
    assert done.would_run() == {COST, DRAW}
    (done.results / "cost.json").write_text(json.dumps(stored))
    assert done.snakemake("--configfile", "tiny.yaml").code == 0
    done.plan(cost=OPTIONS, test_images=30)
    assert COST not in done.would_run()


def test_costs_that_a_plan_does_not_want_are_refused_in_a_sentence(place) -> None:
    place.plan()
    said = place.capsbench("cost", "tiny.yaml")
    assert said.code == 2
    assert said.err.startswith("capsbench: tiny.yaml has `cost: false`;")
    assert "Traceback" not in said.text
