"""Code beside a plan that is edited while a command works: no run is of one file and known by another's digest."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from places import REPOSITORY, Place
from rich.console import Console

from capsbench.cli.inputs import in_words_of_its_routing, refuse_edited
from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.errors import RoutingError
from capsbench.pipeline import open_house
from capsbench.plan import House
from capsbench.plan.custom import forget_others

MODEL = """
from torch import nn

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Linear(784, 10)

    def forward(self, images):
        return self.classes(images.flatten(1)).softmax(1)
"""
EDITED = MODEL.replace(".softmax", ".mul(0).softmax")
VARIANT = "variants: {mine: {model: 'MODULE:Mine', loss: margin}}\ncost: false"


def own_plan(folder: Path, module: str) -> Path:
    """A plan with a model of its own in `folder`/`module`.py, which no other test imports."""
    (folder / f"{module}.py").write_text(MODEL)
    plan = Place(folder, REPOSITORY).plan(variants="[mine]")
    text = plan.read_text().replace("width: 0.0625\n", "")
    plan.write_text(text.replace("cost: false", VARIANT.replace("MODULE", module)))
    return plan


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_what_is_edited_before_its_import_is_neither_trained_nor_evaluated(
    tmp_path: Path, no_data, results, monkeypatch, stage: str
) -> None:
    module = f"edited_before_{stage}"
    plan = own_plan(tmp_path, module)
    house, source = open_house(plan)
    quiet = Console(quiet=True)
    if stage == "evaluate":
        train_cells(quiet, house, source, house.cells, "cpu", 1)
        monkeypatch.delitem(sys.modules, module)  # as in another process
        house, source = open_house(plan)
    from capsbench.data import digits

    load = digits.load_digits

    def edit_and_load(*given):  # the digest is taken, nothing of the user's imported
        (tmp_path / f"{module}.py").write_text(EDITED)
        return load(*given)

    monkeypatch.setattr(digits, "load_digits", edit_and_load)
    work = train_cells if stage == "train" else partial(evaluate_cells, done=None)
    with pytest.raises(RoutingError, match=f"mnist/mine: model '{module}:Mine' was edited after this command began"):
        work(quiet, house, source, house.cells, "cpu", 1)
    assert not list(results.rglob("metrics.json"))
    assert stage == "evaluate" or not list(results.rglob("manifest.json"))


def test_what_is_imported_stays_as_it_was_until_another_plan_s_file_takes_its_name(tmp_path: Path) -> None:
    houses = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        houses.append(House.load(own_plan(tmp_path / name, "edited_later")))
    first, second = houses
    from capsbench.models import build_model

    for house in houses:
        with in_words_of_its_routing(house, house.cells[0]):
            build_model(house.cells[0].spec, 28, house.path.parent)
    (second.path.parent / "edited_later.py").write_text(EDITED)
    refuse_edited(second, second.cells[0])  # it goes on with what it has imported
    (first.path.parent / "edited_later.py").write_text(EDITED)
    forget_others("edited_later:Mine", first.path.parent)  # which the other plan's took the place of
    with pytest.raises(RoutingError, match="was edited after this command began; say it again"):
        refuse_edited(first, first.cells[0])
