"""What a run's seed decides: the weights it starts from, and what dropout leaves out at each step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from stand_ins import coded_digits

from capsbench.data.batch import Batch
from capsbench.data.digits import Digits
from capsbench.plan import House
from capsbench.training.checkpoint import tensor_digest
from capsbench.training.run import Run, Setting, new_model, prepare

PLAN = """
budget: reduced
seeds: [0, 1]
uci_digits: true
width: 0.0625
training: {steps: 4, batch: 8, precision: float32}
tasks:
  mnist: {variants: [capsnet-r3-recon, cnn]}
"""
DIGITS = Digits(coded_digits(40), coded_digits(20))
DATASET = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "d"}
IMAGES = torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))


class SameBatch:
    """A stream of one batch: two steps then differ in nothing but what they draw themselves."""

    size, height, width = 8, 28, 28

    def batch(self, step: int) -> Batch:
        return Batch(IMAGES, torch.arange(8)[:, None], IMAGES)


@pytest.fixture
def house(tmp_path: Path, results: Path, no_data: dict[str, str]) -> House:
    (tmp_path / "small.yaml").write_text(PLAN)
    return House.load(tmp_path / "small.yaml", "uci-digits")


def setting_of(house: House, variant: str) -> Setting:
    return Setting(house, house.cell("mnist", variant), DIGITS, DATASET, torch.device("cpu"), 1, lambda _: None)


@pytest.mark.parametrize("variant", ["capsnet-r3-recon", "cnn"])
def test_each_seed_starts_from_weights_of_its_own_and_always_from_the_same(house: House, variant: str) -> None:
    """Seeds that began alike would understate the spread between runs, although batches make them end apart."""
    setting = setting_of(house, variant)
    first, other, again = (tensor_digest(new_model(setting, seed).state_dict()) for seed in (0, 1, 0))
    assert first != other
    assert first == again


def losses_of(setting: Setting, seed: int, *steps: int) -> list[float]:
    """What a run of `seed` loses at these steps, on weights and a batch that are the same for all seeds and steps."""
    run = prepare(setting, seed)
    assert isinstance(run, Run)
    step, weights = run.loop.step, new_model(setting, 7).state_dict()
    step.stream = SameBatch()
    found = []
    for number in steps:
        step.model.load_state_dict(weights)
        step(number, 1e-3)
        found.append(step.sums[0].item())
        step.sums.zero_()
    return found


def test_dropout_differs_from_seed_to_seed_and_from_step_to_step_and_repeats(house: House) -> None:
    setting = setting_of(house, "cnn")
    first, next_step, again = losses_of(setting, 0, 0, 1, 0)
    (next_seed,) = losses_of(setting, 1, 0)
    assert len({first, next_step, next_seed}) == 3
    assert again == first


def test_without_dropout_neither_seed_nor_step_changes_the_loss_of_a_batch(house: House) -> None:
    """So it is dropout that the test above sees."""
    setting = setting_of(house, "capsnet-r3-recon")
    assert len({*losses_of(setting, 0, 0, 1), *losses_of(setting, 1, 0)}) == 1
