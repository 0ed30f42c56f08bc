"""Every model of the ablation and of the ladder can be trained, with its own loss on its task's stream, narrow.

Rows that differ only in what does not reach a step here (few digits, a tuned rate, bf16) are one model.
"""

from __future__ import annotations

import pytest
import torch
from stand_ins import coded_digits

from capsbench.data.digits import Digits
from capsbench.plan import Cell, House, config_folder
from capsbench.training.run import Setting, make_stream, new_model
from capsbench.training.step import Step

WIDTH, TWO_DIGIT_WIDTH = 1 / 32, 1 / 8  # two channels of ReLU may all be dead
HOUSES = {name: House.load(config_folder() / f"{name}.yaml") for name in ("ablation", "ladder")}


def once() -> dict[str, tuple[House, Cell]]:
    """The first row of each model on each task, by plan and label."""
    found: dict[tuple[str, str], tuple[str, House, Cell]] = {}
    for name, house in HOUSES.items():
        for cell in house.cells:
            model = cell.spec.model_dump_json(exclude=set(cell.spec.WORDS))
            found.setdefault((cell.task, model), (f"{name}:{cell.label}", house, cell))
    return {label: (house, cell) for label, house, cell in found.values()}


CELLS = once()


@pytest.fixture(scope="module")
def digits() -> Digits:
    return Digits(coded_digits(11_000), coded_digits(50))


@pytest.mark.slow
@pytest.mark.parametrize("label", CELLS)
def test_every_model_of_ablation_and_ladder_trains_a_step(label: str, digits: Digits) -> None:
    house, cell = CELLS[label]
    narrow = Cell(**{**vars(cell), "spec": cell.spec.scaled(TWO_DIGIT_WIDTH if cell.task == "two_digit" else WIDTH)})
    setting = Setting(house, narrow, digits, {}, torch.device("cpu"), 1, print)
    model = new_model(setting, 0)
    # a few pairs of the sixty million: what is tried is the row, not the number
    train = digits.train if cell.task != "multimnist" else coded_digits(200)
    if hasattr(narrow.options, "train_pairs"):
        options = narrow.options.model_copy(update={"train_pairs": 1000})
        narrow = Cell(**{**vars(narrow), "options": options})
    step = Step(model, narrow.spec, make_stream(narrow, train, 0), 0, "float32", 1e-3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for number in range(2):
        step(number, 1e-3, 0.5)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    moved = [bool((old != new).any()) for old, new in zip(before, model.parameters(), strict=True)]
    assert all(moved), [name for (name, _), m in zip(model.named_parameters(), moved, strict=True) if not m]
