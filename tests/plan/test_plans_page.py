"""docs/plans.md names every key of a plan with its default, and its examples are plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from capsbench.plan import House
from capsbench.plan.schema import Plan, Training
from capsbench.plan.task import TaskPlan, TrainingPart
from capsbench.plan.tasks import TASKS
from capsbench.plan.tuning import Tuning

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "plans.md").read_text()
SECTIONS: dict[str, type[BaseModel]] = {
    "The plan": Plan,
    "`training`": Training,
    "A task": TaskPlan,
    "`tuning`": Tuning,
}


def rows(section: str, columns: int) -> list[list[str]]:
    """The rows of a section's tables that have so many columns, headings left out."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
    return [row for row in cells if len(row) == columns and "default" not in row and "---" not in row]


def default(model: type[BaseModel], key: str) -> str:
    """A key's default as the page says it."""
    field = model.model_fields[key]
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value == "" or (isinstance(value, BaseModel) and value == type(value)()):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_there_with_its_default(section: str) -> None:
    model = SECTIONS[section]
    told = {key: said.replace("1e-6", "1e-06") for key, said, _ in rows(section, 3)}
    ours = {key: default(model, key) for key in model.model_fields}
    if model is Plan:  # its name is the file's, and its costs are said as true or false
        ours |= {"name": "the file's", "cost": "true"}
    assert told == ours


def test_every_task_s_own_keys_are_there_with_their_defaults() -> None:
    told = {(task, key): said for task, key, said, _ in rows("A task", 4)}
    own = {name: [key for key in task.model_fields if key not in TaskPlan.model_fields] for name, task in TASKS.items()}
    assert told == {(name, key): default(TASKS[name], key) for name, keys in own.items() for key in keys}
    assert TrainingPart.model_fields.keys() == Training.model_fields.keys()  # "replaces single keys"


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_are_plans(tmp_path: Path, number: int) -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    assert len(examples) == 2
    (tmp_path / "my-plan.yaml").write_text(examples[number])
    house = House.load(tmp_path / "my-plan.yaml")
    assert house.plan.name == "my-plan"
    if number == 0:
        assert sum(len(cell.seeds) for cell in house.cells) == 6
    else:
        assert {"cnn+tuned", "cnn+n10", "capsnet-r3-recon+r5", "cnn+bf16"} <= {cell.variant for cell in house.cells}
