"""A model outside the package in a plan: its words, which files are part of its runs' digest, mistakes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capsbench.errors import PlanError
from capsbench.pipeline.copies import sources_outside
from capsbench.plan import House
from capsbench.plan.done import run_digests, training_roots
from capsbench.plan.outside import code_named, code_of
from capsbench.plan.variants import Spec
from capsbench.report.results import Run
from capsbench.training.probe_two_digit import takes_any_size

PLAN = """
budget: reduced
seeds: [0]
width: 0.5
training: {steps: 1}
variants:
  mine: {model: 'my_file:MyModel', loss: margin, title: Mine}
  mine-deeper: {base: mine, title: Deeper, model_options: {depth: 3}}
tasks:
  mnist: {variants: [capsnet-r3, mine, mine-deeper], reference: mine}
"""
MODEL = """
import layers
from torch import nn

class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "my_file.py").write_text(MODEL)
    (tmp_path / "layers.py").write_text("x = 1")
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path / "plan.yaml"


def digests(plan: Path) -> list[str]:
    house = House.load(plan)
    return [run_digests(house, cell, 0, "data")["run"] for cell in house.cells]


@pytest.mark.parametrize("file", ["my_file.py", "layers.py"])
def test_its_files_are_part_of_the_digest_of_its_runs_and_of_no_other(plan: Path, file: str) -> None:
    paper, mine, deeper = digests(plan)
    assert mine != deeper
    path = plan.parent / file
    path.write_text(path.read_text() + "# a comment\n")
    assert digests(plan) == [paper, mine, deeper]
    path.write_text(path.read_text() + "more = 2\n")
    assert digests(plan)[0] == paper
    assert not {mine, deeper} & set(digests(plan))


def test_what_the_suite_puts_around_it_is_part_of_it_too(plan: Path) -> None:
    paper, mine, _ = House.load(plan).cells
    assert "capsbench.models.outside" in training_roots(mine)
    assert "capsbench.models.outside" not in training_roots(paper)


def test_its_files_are_copied_with_the_plan(plan: Path) -> None:
    assert set(sources_outside(House.load(plan))) == {"plan.yaml", "my_file.py", "layers.py"}


def test_its_variant_has_its_words_and_the_plan_s_width(plan: Path) -> None:
    house = House.load(plan)
    _, mine, deeper = house.cells
    assert mine.spec.width == 0.5
    assert mine.config()["variant"]["model"] == "my_file:MyModel"
    assert deeper.config()["variant"]["model_options"] == {"depth": 3}
    assert (code_named(mine.spec), code_of(mine.config()["variant"])) == (
        "model 'my_file:MyModel'",
        "model my_file:MyModel",
    )
    assert code_of(house.cells[0].config()["variant"]) == ""
    row = next(row for row in house.describe({})["comparisons"]["ablation"]["mnist"] if row["variant"] == "mine-deeper")
    assert [(each["factor"], each["reference"]) for each in row["differs"]] == [("model_options", "none")]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("my_file:MyModel", "my_fil:MyModel", "variant mine: model 'my_fil:MyModel': there is no my_fil.py in "),
        ("my_file:MyModel", "my_file:MyModl", "my_file.py has no 'MyModl'; did you mean 'MyModel'?"),
        (
            "my_file:MyModel",
            "my-file:MyModel",
            "there is no model 'my-file:MyModel'; outside the package it is my_file",
        ),
        ("my_file:MyModel", "../my_file:MyModel", "there is no model '../my_file:MyModel'; outside the package it is"),
        ("my_file:MyModel", "capsnt", "variant mine: model is 'capsnt'; did you mean 'capsnet'?"),
        ("my_file:MyModel", "my_file.MyModel", "model is 'my_file.MyModel'; one of your own is my_file:MyModel."),
        (
            "loss: margin",
            "loss: margin, width: 0.5",
            "variant mine: its width is the plan's or its task's; say it there",
        ),
        ("loss: margin", "routing: dynamic", "unknown key 'routing' in mine"),
        (", loss: margin", "", "key 'mine.loss' is missing."),
        ("loss: margin", "loss: margin, dim: 8", "variant mine: dim does nothing, since reconstruction is none"),
        ("loss: margin", "loss: nll, down_weight: 0.3", "down_weight does nothing, since loss nll has no lambda"),
        ("depth: 3", "depth: .nan", "model_options: depth is nan; options are finite numbers, words, lists, mappings"),
        ("model: 'my_file:MyModel'", "base: cnn, model: 'my_file:MyModel'", "and its base is not; leave `base` out."),
    ],
)
def test_a_mistake_is_a_sentence_before_anything_is_imported(plan: Path, old: str, new: str, sentence: str) -> None:
    plan.write_text(PLAN.replace(old, new))
    with pytest.raises(PlanError) as caught:
        House.load(plan)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(str(plan))


PAIRS = """
budget: reduced
seeds: [0]
training: {steps: 1}
variants:
  control: {model: 'my_file:MyModel', loss: margin, any_size: true, train_on: pairs}
  fixed: {model: 'my_file:MyModel', loss: margin}
tasks:
  two_digit: {variants: [control, fixed]}
"""


def test_a_model_of_any_size_sees_whole_pairs_and_can_train_on_them(plan: Path) -> None:
    plan.write_text(PAIRS)
    specs = [cell.spec for cell in House.load(plan).cells]
    assert [spec.takes_any_size() for spec in specs] == [True, False]
    assert [takes_any_size(spec) for spec in specs] == [True, False]
    assert [read_by_the_report(spec).sees_squeezed_pairs for spec in specs] == [False, True]
    plan.write_text(PAIRS.replace("any_size: true, ", ""))
    with pytest.raises(PlanError, match="has train_on: pairs, images twice as large as digits, but its model takes"):
        House.load(plan)


def test_a_report_takes_it_for_what_its_variant_says_and_not_for_its_name(plan: Path) -> None:
    spec = House.load(plan).cells[1].spec
    assert read_by_the_report(spec).has_capsules
    baseline = spec.model_copy(update={"capsules": False, "model": "my_caps:CapsNet"})
    assert not read_by_the_report(baseline).has_capsules


def read_by_the_report(spec: Spec) -> Run:
    """A run of a spec as the report has it from its manifest."""
    manifest: Any = SimpleNamespace(config={"variant": spec.model_dump()})
    key: Any = None
    return Run(key, Path(), manifest)


def test_capsules_of_one_s_own_train_as_long_as_the_source_s_capsules(plan: Path) -> None:
    text = PAIRS.replace("reduced", "short").replace("steps: 1", "epochs: 100").replace("[0]", "[0, 1, 2, 3, 4]")
    text = text.replace("two_digit: {", "two_digit: {training: {epochs: 10, decay: 1.0}, ")
    plan.write_text(text.replace("{model: 'my_file:MyModel', loss: margin}", "{base: control, capsules: false}"))
    capsules, baseline = House.load(plan).cells
    house = House.load(plan)
    assert house.reductions(capsules) == []
    assert house.reductions(baseline) == ["4,688 steps, less than the source's 20 epochs"]


def test_whether_it_has_capsules_is_no_factor(plan: Path) -> None:
    plan.write_text(PLAN.replace("model_options: {depth: 3}", "capsules: false, model_options: {depth: 3}"))
    row = next(
        row
        for row in House.load(plan).describe({})["comparisons"]["ablation"]["mnist"]
        if row["variant"] == "mine-deeper"
    )
    assert [each["factor"] for each in row["differs"]] == ["model_options"]


def test_passes_of_routing_are_not_asked_of_it(plan: Path) -> None:
    plan.write_text(PLAN.replace("reference: mine", "axes: {iterations: {values: [1], variants: [mine]}}"))
    with pytest.raises(PlanError, match="variant mine has no routing"):
        House.load(plan)
