"""How many digits and pairs a plan may ask for, by the data set that it is trained on, and what the stand-in has."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tools import mnist_folder

from capsbench.data.batch import DigitSet
from capsbench.data.digits import load_digits
from capsbench.data.pairing import Partners
from capsbench.data.source import find_source
from capsbench.data.uci import load_uci
from capsbench.errors import DataError, PlanError
from capsbench.plan import House
from capsbench.plan.digits import SMALLEST_CLASS, STAND_IN_IMAGES
from capsbench.training.digits import training_digits

PLAN = """
budget: reduced
seeds: [0]
dataset: {dataset}
training: {{epochs: 2}}
tasks:
  mnist: {{variants: [cnn], axes: {{per_class: [2, {most}]}}}}
"""


def house(folder: Path, dataset: str, most: int) -> House:
    """A plan with so many digits a class at the most, on that data set or with scikit-learn's in MNIST's place."""
    stand_in = dataset == "uci-digits"
    path = folder / "few.yaml"
    path.write_text(PLAN.format(dataset="mnist" if stand_in else dataset, most=most))
    return House.load(path, dataset if stand_in else None)


@pytest.mark.parametrize(("dataset", "all_of_them"), [("mnist", 6_000), ("uci-digits", 129)])
def test_a_base_stands_where_the_digits_of_its_data_set_are(tmp_path: Path, dataset: str, all_of_them: int) -> None:
    points = house(tmp_path, dataset, 5).describe({})["axes"]["mnist"]
    assert [(p["variant"], p["value"]) for p in points] == [("cnn+n2", 2), ("cnn+n5", 5), ("cnn", all_of_them)]


@pytest.mark.parametrize(
    ("dataset", "most", "why"),
    [
        ("mnist", 5_421, "names 5,422, but the smallest class of mnist has 5,421 training digits; ask for fewer."),
        ("fashion-mnist", 5_999, "names 6,000, which is all that its variants train on anyway; leave it out"),
        ("kmnist", 5_999, "names 6,000, which is all that its variants train on anyway; leave it out"),
        ("uci-digits", 124, "names 125, but the smallest class of uci-digits has 124 training digits; ask for fewer."),
    ],
)
def test_so_many_digits_of_each_class_as_the_data_set_has(tmp_path: Path, dataset: str, most: int, why: str) -> None:
    assert [cell.variant for cell in house(tmp_path, dataset, most).cells] == ["cnn", "cnn+n2", f"cnn+n{most}"]
    with pytest.raises(PlanError, match=f"tasks.mnist.axes.per_class {why}"):
        house(tmp_path, dataset, most + 1)


def test_the_smallest_classes_are_the_data_s_own() -> None:
    (_, stand_in), _ = load_uci()
    mnist = load_digits(find_source("mnist", mnist_folder())).train.labels.numpy()
    for dataset, labels in (("uci-digits", stand_in), ("mnist", mnist)):
        assert np.bincount(labels).min() == SMALLEST_CLASS[dataset], dataset
    assert len(stand_in) == STAND_IN_IMAGES["train_images"]


def test_the_stand_in_has_the_digits_and_pairs_that_its_runs_and_trials_ask_for(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("""
budget: reduced
seeds: [0]
dataset: mnist
training: {steps: 2}
tuning: {steps: 2, held_out: 10_000}
tasks:
  affnist: {variants: [capsnet-r3], train_images: 10_000, held_out: 500}
  multimnist: {variants: [capsnet-r3-recon], tuned: true}
  two_digit: {variants: [two-digit-kmeans], train_images: 10_000, tuned: true}
""")
    house = House.load(path, "uci-digits").promised
    (images, labels), (test_images, test_labels) = load_uci()
    train, test = (
        DigitSet(torch.tensor(i), torch.tensor(y)) for i, y in ((images, labels), (test_images, test_labels))
    )
    trials = [trial for cell in house.cells if cell.waits for trial in house.trials(cell)]
    assert trials
    for cell in (*house.cells, *trials):
        digits = training_digits(cell, train, seed=0)
        assert len(digits.labels) > 1_000, cell.label
        if cell.task == "multimnist":
            Partners(digits.labels, seed=0, size=cell.options.train_pairs)
    options = house.cell("multimnist", "capsnet-r3-recon").options
    Partners(train.labels, seed=0, size=options.train_pairs)
    Partners(test.labels, seed=0, size=options.test_pairs)
    with pytest.raises(DataError, match="can have only"):
        Partners(train.labels, seed=0, size=options.train_pairs + 1)


@pytest.mark.parametrize(
    "task", ["mnist: {variants: [cnn], train_images: 12_800}", "affnist: {variants: [cnn], held_out: 10_000}"]
)
def test_the_stand_in_trains_as_many_steps(tmp_path: Path, task: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"budget: reduced\nseeds: [0]\ndataset: mnist\ntraining: {{epochs: 2}}\ntasks:\n  {task}\n")
    steps = []
    for house in (House.load(path), House.load(path, "uci-digits")):
        (cell,) = house.cells
        steps.append(cell.steps(house.epoch_images(cell.options)))
    digits = 12_800 if "mnist:" in task else 50_000
    assert steps == [math.ceil(2 * digits / 128)] * 2


def test_the_stand_in_says_its_training_in_steps_and_not_in_epochs_of_digits_that_it_has_not(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    text = "budget: reduced\nseeds: [0]\ndataset: mnist\ntraining: {epochs: 2}\n"
    text += "tasks:\n  mnist: {variants: [cnn], train_images: IMAGES}\n"
    digests = set()
    for images, steps in ((12_800, 200), (25_600, 400)):
        path.write_text(text.replace("IMAGES", str(images)))
        house = House.load(path, "uci-digits")
        (cell,) = house.cells
        assert f"{steps} steps instead of 300,000 steps" in house.reductions(cell)
        digests.add(cell.config_digest(0))
    assert len(digests) == 2  # the plan's digits decide how long is trained, though they are not there


MULTIMNIST = "multimnist: {variants: [multimnist-cnn], "


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (f"{MULTIMNIST}test_images: 100}}", r"test_pairs is [\d,]+, but 100 test digits make at most 9,000"),
        (
            f"{MULTIMNIST}train_per_class: 2, train_pairs: 361}}",
            "train_pairs is 361, but 20 training digits make at most 360",
        ),
        (
            f"{MULTIMNIST}axes: {{per_class: [10]}}}}",
            r"train_pairs is [\d,]+, but 100 training digits make at most 9,000",
        ),
        (
            "two_digit: {variants: [two-digit-kmeans], test_images: 1, pairs: 1}",
            "pairs is 1, but 1 test digit makes at most 0",
        ),
    ],
)
@pytest.mark.parametrize("dataset", [None, "uci-digits"])
def test_no_more_pairs_than_the_digits_can_make(tmp_path: Path, task: str, said: str, dataset: str | None) -> None:
    path = tmp_path / "pairs.yaml"
    head = "budget: reduced\nseeds: [0]\ndataset: mnist\ntraining: {steps: 2}\ntasks:\n  "
    path.write_text(head + task)
    with pytest.raises(PlanError, match=rf"^{re.escape(str(path))}: tasks\.\w+\.{said} pairs of two classes; ask"):
        _ = House.load(path, dataset).cells


@pytest.mark.parametrize("count", [20, 25, 100])
def test_so_many_pairs_can_be_made_where_no_class_is_larger(tmp_path: Path, count: int) -> None:
    labels = torch.arange(count) % 10
    most = count * (count - math.ceil(count / 10))
    Partners(labels, seed=0, size=most)
    path = tmp_path / "pairs.yaml"
    task = f"{MULTIMNIST}train_pairs: 20, test_images: {count}, test_pairs: {most}}}"
    path.write_text(f"budget: reduced\nseeds: [0]\ndataset: mnist\ntraining: {{steps: 2}}\ntasks:\n  {task}\n")
    assert House.load(path).cells
