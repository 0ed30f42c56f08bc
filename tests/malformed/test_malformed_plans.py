"""Malformed plans: each is a plan, or one sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from malformed import PLAN, damaged, many, one_sentence, torn

from capsbench.errors import PlanError
from capsbench.plan import House


def read_plan(path: Path) -> None:
    """All that a plan is asked before anything is trained."""
    count("plans")
    try:
        house = House.load(path)
    except PlanError as error:
        one_sentence(error, str(path))
        return
    described = house.describe({"name": "mnist", "badge": "MNIST", "digest": "0" * 64})
    json.dumps(described, allow_nan=False)
    for cell in house.cells:
        assert cell.steps() > 0
        assert house.run_folder(cell, cell.seeds[0]).resolve().is_relative_to(house.folder.resolve())


@many(2_000)
@given(value=damaged(yaml.safe_load(PLAN)))
def test_plans_with_values_that_do_not_belong(folder: Path, value: Any) -> None:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=True), encoding="utf-8")
    read_plan(path)


@many(1_500)
@given(content=torn(PLAN.encode()))
def test_plans_with_bytes_that_do_not_belong(folder: Path, content: bytes) -> None:
    path = folder / "plan.yaml"
    path.write_bytes(content)
    read_plan(path)


@many(500)
@given(name=st.text(max_size=30) | st.sampled_from(["../x; rm", "..", ".", "a/b", "a b", "$(rm)", "-rf", "a\n", "é:é"]))
def test_names_never_lead_out_of_the_results_and_are_no_shell_words(folder: Path, name: str) -> None:
    count("plans")
    value = yaml.safe_load(PLAN)
    value["variants"][name] = {"base": "cnn"}
    value["tasks"]["mnist"]["variants"].append(name)
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=True), encoding="utf-8")
    try:
        House.load(path)
    except PlanError:
        return
    assert shlex.quote(name) == name
    assert Path(name).name == name


def test_a_plan_that_aliases_would_blow_up_is_refused_at_once(folder: Path) -> None:
    path = folder / "bomb.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path.write_text("\n".join(lines))
    with pytest.raises(PlanError, match="stands for more than 100,000 values"):
        House.load(path)
    path.write_text("name: &a [*a]")
    with pytest.raises(PlanError, match="contains itself"):
        House.load(path)
