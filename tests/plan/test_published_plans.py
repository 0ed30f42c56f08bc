"""What the published plan.json files say follows from today's plans: what differs, what is reduced, notes, families."""

from __future__ import annotations

import json

import pytest
from published import PUBLISHED

from capsbench.files import write_json
from capsbench.plan import House, config_folder

OF_A_MACHINE = {"file", "dataset", "cost", "runs"}  # paths, the digest of data, of costs (its own test), of runs


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_plan_says_today_what_its_published_report_says(name: str, tmp_path, monkeypatch) -> None:
    """Of 109 rows of the ablation: each factor that differs, its value here and there, and what came with a routing."""
    monkeypatch.delenv("CAPSBENCH_RESULTS", raising=False)  # tuned rows are described by what tuning chose
    stored = json.loads((config_folder().parent / "results" / name / "plan.json").read_text())
    write_json(tmp_path / "today.json", House.load(config_folder() / f"{name}.yaml").describe({}))
    today = json.loads((tmp_path / "today.json").read_text())
    kept = today.keys() - OF_A_MACHINE
    assert kept > {"axes", "comparisons", "digest", "notes", "reduced", "reductions", "seeds", "tasks", "titles"}
    for key in sorted(kept):
        assert stored[key] == today[key], key
