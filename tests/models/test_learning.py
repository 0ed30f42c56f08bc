"""Every variant learns in a short narrow run: a few hundred steps on MNIST, or on scikit-learn's digits without it.

Some minutes on one core. The bounds say that a variant learns, not how well: chance is 90 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from capsbench.data.digits import Digits, load_digits
from capsbench.data.mnist import test_images as unshifted
from capsbench.data.source import find_source
from capsbench.data.two_digit import TwoDigitPairs
from capsbench.plan import House, load_variants
from capsbench.training.exact_set import exactly
from capsbench.training.run import Setting, make_stream, new_model
from capsbench.training.schedule import rate_at
from capsbench.training.scoring import scores_of
from capsbench.training.step import Step


class Short(NamedTuple):
    """A short narrow run, and the error that shows it learns."""

    steps: int = 120
    width: float = 0.125
    bound: float = 25.0  # percent
    batch: int = 32
    rate: float = 2e-3


VARIANTS = load_variants()
SHOWN = 500
LOOKS, APART = 5, 50  # at the error, at least, and steps between them, at most: two good ones in a row are enough
GENTLE = 1e-3  # where at the other rate it is stuck at chance, or on the edge of it: a CPU's rounding then decides
OTHERS = {  # what learns more slowly, or not at this width, or takes a while for a step
    **dict.fromkeys(("cnn", "cnn-recon", "cnn-valid"), Short(width=0.0625)),
    "cnn-pool": Short(200, 0.0625),
    **dict.fromkeys(("cnn-margin", "cnn-recon-margin"), Short(250, 0.0625, rate=GENTLE)),
    **dict.fromkeys(
        ("cnn-vectors", "cnn-valid-margin", "cnn-valid-recon-margin", "cnn-valid-vectors"),
        Short(400, 0.0625, rate=GENTLE),
    ),
    **dict.fromkeys(("em-matrix", "em-matrix-margin"), Short(250, 0.375, 40.0, batch=16)),
    **dict.fromkeys(("capsnet-self-routing", "capsnet-self-routing-margin"), Short(500)),
    **dict.fromkeys(("resnet-parameters", "resnet-flops", "convnet-avg"), Short(300, batch=16)),
    **dict.fromkeys(
        ("capsnet-share-all", "capsnet-share-all-uniform", "capsnet-share-all-learned"),
        Short(450, bound=40.0, batch=16, rate=GENTLE),
    ),
    "convnet-avg-5": Short(400, bound=40.0),
}
OTHERS |= {name: Short(500, 0.25, 60.0) for name in VARIANTS if name.startswith("two-digit-")}
OTHERS["two-digit-average-mlp"] = Short(1000, 0.25, 60.0)
OTHERS["two-digit-cross-entropy"] = Short(1500, 0.25, 60.0)
OTHERS["two-digit-control"] = Short(1000, 0.25, 85.0)  # it is trained on pairs, where chance is 98 %
PLAN = """
budget: reduced
seeds: [0]
uci_digits: true
width: {width}
training: {{steps: {steps}, batch: {batch}, rate: {rate}, decay_period: 2000, precision: float32}}
tasks:
  {task}: {{variants: [{name}]}}
"""


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(find_source("mnist", None, fallback=True, download=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_learns(name: str, digits: Digits, tmp_path: Path) -> None:
    short = OTHERS.get(name, Short())
    task = "two_digit" if VARIANTS[name].home == "two_digit" else "mnist"
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.format(task=task, name=name, **short._asdict()))
    house = House.load(path)
    cell = house.cells[0]
    setting = Setting(house, cell, digits, {}, torch.device("cpu"), 1, print)
    model = new_model(setting, 0)
    step = Step(model, cell.spec, make_stream(cell, digits.train, 0), 0, "float32", cell.training.rate)
    errors = [100.0]
    for number in range(short.steps):
        step(number, rate_at(number, short.steps, cell.training), number / short.steps)
        if (number + 1) % min(short.steps // LOOKS, APART) == 0:
            errors.append(error_of(model, cell.spec.train_on == "pairs", digits))
            print(f"{name}: {errors[-1]:.1f} % after {number + 1} steps")
            if max(errors[-2:]) < short.bound:
                break
    assert errors[-1] < short.bound, errors


def error_of(model: torch.nn.Module, on_pairs: bool, digits: Digits) -> float:
    """Percent of test images that a model in training gets wrong."""
    model.eval()
    with torch.inference_mode():
        error = error_on_pairs(model, digits) if on_pairs else error_on_digits(model, digits)
    model.train()
    return error


def error_on_digits(model: torch.nn.Module, digits: Digits) -> float:
    """Percent of the first test digits that are misread."""
    labels = digits.test.labels[:SHOWN]
    scores = torch.cat([scores_of(model, unshifted(digits.test, n, n + 100)) for n in range(0, len(labels), 100)])
    return 100 * (scores.argmax(1)[: len(labels)] != labels).float().mean().item()


def error_on_pairs(model: torch.nn.Module, digits: Digits) -> float:
    """Percent of pairs of test digits whose two highest scores are not the true set; chance is 98 %."""
    pairs = TwoDigitPairs(digits.test, seed=1, size=500).make(torch.arange(500))
    return 100 * (~exactly(scores_of(model, pairs.images), pairs.labels)).float().mean().item()
