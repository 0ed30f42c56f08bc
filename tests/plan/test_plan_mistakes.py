"""Every mistake in a plan is one sentence with the file, the key and the nearest valid word."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from capsbench.errors import PlanError
from capsbench.plan import House

MISTAKES = [
    (("batch: 64", "batchs: 64"), "unknown key 'batchs' in training; did you mean 'batch'?"),
    (("budget: reduced", "budget: shrt"), "budget is 'shrt'; did you mean 'short'?"),
    (("budget: reduced", "budgt: reduced"), "unknown key 'budgt'; did you mean 'budget'?"),
    (("seeds: [0, 1]", "seeds: []"), "seeds is [], but should have at least 1 item."),
    (("test_images: 100", "axes: {per_class: []}"), "per_class.values is [], but should have at least 1 item."),
    (("seeds: [0, 1]", "seeds: [0, -1]"), "seeds.1 is -1"),
    (("seeds: [0, 1]", "seeds: [0, 0]"), "name one seed twice"),
    (("test_images: 100", "seeds: [3, 3]"), "seeds [3, 3] name one seed twice"),
    (("test_images: 100", "test_images: 10_001"), "test_images is 10,001, and there are 10,000 test digits"),
    (("test_images: 100", "attack_images: 10_001"), "attack_images is 10,001, and there are 10,000 test digits"),
    (("test_images: 100", "axes: {iterations: }"), "iterations has no value; write one, or remove the key."),
    (("test_images: 100", "training: {rate: }"), "rate has no value; write one, or remove the key."),
    (
        ("test_images: 100", "train_per_class: 5_422"),
        "tasks.mnist.train_per_class is 5,422, but the smallest class of mnist has 5,421 training digits; ask for",
    ),
    (
        ("test_images: 100", "axes: {per_class: [10, 5_422]}"),
        "tasks.mnist.axes.per_class names 5,422, but the smallest class of mnist has 5,421 training digits",
    ),
    (
        ("test_images: 100", "train_images: 90\n    axes: {per_class: [10]}"),
        "tasks.mnist.axes.per_class names 10, but 90 training digits are 9 a class; ask for fewer.",
    ),
    (
        ("test_images: 100", "train_images: 50\n    axes: {per_class: [2, 5]}"),
        "tasks.mnist.axes.per_class names 5, which is all that its variants train on anyway; leave it out",
    ),
    (("test_images: 100", "reference: ''"), "tasks.mnist.reference"),
    (
        ("batch: 64", "floor: 1"),
        "mnist/cnn has the rate 0.001, below the floor 1, at which it would then train from the first step; choose",
    ),
    (
        (
            "tasks:\n  mnist:",
            "tuning: {steps: 2}\ntasks:\n  mnist:\n    tuned: true\n    training: {steps: 2, floor: 5.0e-4}",
        ),
        "mnist/cnn+tuned tries the rate 0.0003, below the floor 0.0005, at which it would then train from the first",
    ),
    (("test_images: 100", "tuned: cnn"), "'cnn' is neither true nor a list of variants"),
    (("test_images: 100", "bf16: []"), "[] is neither true nor a list of variants"),
    (("test_images: 100", "bf16: [cnn, 3]"), "tasks.mnist.bf16: ['cnn', 3] is neither true nor a list of variants."),
    (("batch: 64", "decay_period: 0"), "decay_period: 0 is neither scaled, published nor a number of steps above 0."),
    (("squash: half", "primary_squash: 3"), "primary_squash is 3; known: exp, half, hinton, none, ratio, tanh."),
    (("test_images: 100", "axes: {per_class: 3}"), "tasks.mnist.axes.per_class: 3 is not a list of numbers."),
    (("test_images: 100", "axes: 3"), "tasks.mnist.axes is 3, but should be a mapping of keys to values."),
    (("tasks:\n", "tasks:\n  affnist:\n"), "affnist is empty; name its variants, or remove the key"),
    (("tasks:\n", "cost:\ntasks:\n"), "cost: it has no value; write `cost: false`"),
    (
        ("squash: half", "routing: optimised, routing_options: {alpha: .nan}"),
        "alpha is nan; options are finite",
    ),
    (("squash: half", "routing: optimised, routing_options: {alpha: 2020-01-01}"), "alpha is 2020-01-01; options are"),
    (("seeds: [0, 1]", "seeds: [zero]"), "seeds.0 is 'zero'"),
    (("seeds: [0, 1]", "seeds: [true]"), "seeds.0 is True"),
    (("seeds: [0, 1]\n", ""), "key 'seeds' is missing"),
    (("squash: half", "trainig: {steps: 3}"), "unknown key 'trainig' in mine; did you mean 'training'?"),
    (
        ("batch: 64", "batch: 9999999999999"),
        "batch is 9999999999999, but should be less than or equal to 1000000",
    ),
    (
        ("tasks:\n", "tasks:\n  multimnist: {variants: [multimnist-cnn], segmentation_pairs: 2_000_000_000}\n"),
        "segmentation_pairs is 2000000000, but should be less than or equal to 1000000000",
    ),
    (("squash: half", "routing: my_routing"), "no routing 'my_routing'; outside the package it is my_file:my_routing."),
    (("batch: 64", "batch: '64'"), "training.batch is '64'"),
    (("batch: 64", "batch: -64"), "training.batch is -64"),
    (("epochs: 2", "epochs: 2\n  steps: 3"), "training must give either epochs or steps, not both."),
    (("epochs: 2", "rate: 1.0e-3"), "training gives no length; write epochs or steps."),
    (("test_images: 100", "seeds:"), "tasks.mnist: seeds has no value; write one, or remove the key."),
    (("test_images: 100", "ladder: [cnn]"), "tasks.mnist: ladder names only cnn; each row is compared with the one"),
    (("epochs: 2", "precision: fp32\n  epochs: 2"), "training.precision is 'fp32'; did you mean 'float32'?"),
    (("[cnn, mine]", "[cnn, capsnet-r9]"), "no variant 'capsnet-r9'; did you mean 'capsnet-r"),
    (("[cnn, mine]", "[cnn, cnn]"), "names a variant twice"),
    (("[cnn, mine]", "[cnn]"), "variants.mine is in no task's variants, so nothing trains it; name it in one."),
    (("[cnn, mine]", "[two-digit-kmeans]"), "cannot be trained on mnist"),
    (
        ("squash: half", "squash: half, train_on: pairs"),
        "has train_on: pairs, which only the two_digit task knows, not mnist",
    ),
    (
        ("tasks:\n  mnist:", "  bad: {base: cnn, train_on: pairs}\ntasks:\n  two_digit: {variants: [bad]}\n  mnist:"),
        "variant bad has train_on: pairs, images twice as large as digits, but its model takes images of one size only",
    ),
    (
        ("tasks:\n  mnist:", "tasks:\n  two_digit: {variants: [two-digit-control], squeezed: true}\n  mnist:"),
        "variant two-digit-control trains on whole pairs (train_on: pairs), but the task's squeezed: true would test",
    ),
    (
        (
            "tasks:\n  mnist:",
            "  bad: {base: convnet-avg, reconstruction: paper, train_on: pairs}\n"
            "tasks:\n  two_digit: {variants: [bad]}\n  mnist:",
        ),
        "variant bad has train_on: pairs and a decoder, which draws pictures of one digit's size; set reconstruction:",
    ),
    (("  mnist:", "  mnits:"), "unknown key 'mnits' in tasks; did you mean 'mnist'?"),
    (("test_images: 100", "test_images: -1"), "tasks.mnist.test_images is -1"),
    (("test_images: 100", "widths: {cnn: 2.0}"), "tasks.mnist.widths.cnn is 2.0"),
    (("test_images: 100", "widths: {cnn: 1.0e-309}"), "tasks.mnist.widths.cnn is 1e-309, but should be greater than"),
    (("width: 0.125", "width: 1.0e-309"), "width is 1e-309, but should be greater than or equal to 0.000001."),
    (
        ("  mnist:", f"  affnist:\n    transforms: {10**20}"),
        f"tasks.affnist.transforms is {10**20}, but should be less",
    ),
    (("test_images: 100", "training: {epochs: 1, steps: 2}"), "tasks.mnist.training: give either epochs or steps"),
    (("test_images: 100", "test_imges: 100"), "unknown key 'test_imges' in tasks.mnist; did you mean 'test_images'?"),
    (("base: capsnet-r3,", "base: capsnet-r33,"), "base 'capsnet-r33' does not exist; did you mean 'capsnet-r3'?"),
    (("base: capsnet-r3,", "base: mine,"), "variant mine is its own base; name the variant that it changes."),
    (("squash: half", "squash: hlf"), "mine.squash is 'hlf'; did you mean 'half'?"),
    (
        ("mine: {base: capsnet-r3, squash: half}", "mine: {base: two-digit-kmeans, share: type}"),
        "variant mine: share must be 'all', the only sharing that works with images of any size.",
    ),
    (("squash: half", "iterations: "), "variant mine: iterations has no value; write one, or remove the key."),
    (("squash: half", "squash: null"), "variant mine: squash has no value; write one, or remove the key."),
    (("squash: half", "normaliser: "), "variant mine: normaliser has no value; write one, or remove the key."),
    (("squash: half", "kernel: "), "mine.kernel is None, but should be a valid integer."),
    (("squash: half", "sqash: half"), "unknown key 'sqash' in mine; did you mean 'squash'?"),
    (("squash: half", "routing_options: {piror: true}"), "mine: routing_options: routing dynamic takes no option"),
    (("test_images: 100", "train_images: 100_000"), "tasks.mnist.train_images is 100,000, but there are 60,000"),
    (
        ("  mnist:", "  affnist:\n    test_images: 10\n    probe_images: 400\n    variants: [cnn-pool]\n  mnist:"),
        "tasks.affnist.probe_images is 400, but 10 test digits under 32 transforms are 320 images; ask for fewer, or",
    ),
    (
        ("  mnist:", "  affnist:\n    probe_images: 320_001\n    variants: [cnn-pool]\n  mnist:"),
        "tasks.affnist.probe_images is 320,001, but 10,000 test digits under 32 transforms are 320,000 images; ask for",
    ),
    (
        ("  mnist:", "  two_digit: {variants: [two-digit-kmeans], last_epochs: 3}\n  mnist:"),
        "tasks.two_digit.last_epochs is 3, but two-digit-kmeans trains for 2 epochs; ask for fewer, or train longer.",
    ),
    (
        (
            "  mnist:",
            "  two_digit: {variants: [two-digit-kmeans], train_images: 640, training: {steps: 11}, last_epochs: 3}\n"
            "  mnist:",
        ),
        "tasks.two_digit.last_epochs is 3, but two-digit-kmeans trains for 2 epochs; ask for fewer, or train longer.",
    ),
    (
        ("  mnist:", "  affnist:\n    held_out: 70_000"),
        "tasks.affnist.held_out is 70,000, but there are 60,000 training",
    ),
    (
        ("  mnist:", "  affnist:\n    held_out: 10_000\n    train_images: 50_001"),
        "tasks.affnist.train_images is 50,001 and tasks.affnist.held_out is 10,000, but there are 60,000 training",
    ),
    (
        ("tasks:\n  mnist:", "tuning: {steps: 2, held_out: 60_000}\ntasks:\n  mnist:\n    tuned: true"),
        "tuning.held_out is 60,000, but there are 60,000 training digits in all; ask for fewer.",
    ),
    (("squash: half", "training: {rate: -1}"), "variants.mine.training.rate is -1, but should be greater than 0."),
    (
        ("tasks:\n  mnist:", "tuning: {steps: 2, seeds: [7]}\ntasks:\n  mnist:\n    seeds: [7]\n    tuned: true"),
        "tuning.seeds names 7, which the plan's own runs use; choose another, such as 1000.",
    ),
    (
        ("tasks:\n  mnist:", "tuning: {steps: 2}\ntasks:\n  mnist:\n    seeds: [1000]\n    tuned: true"),
        "tuning.seeds names 1000, which the plan's own runs use; choose another, such as 1001.",
    ),
    (("base: capsnet-r3, ", ""), "variant mine names neither `base`, the variant that it changes, nor `model`."),
    (
        ("squash: half", "routing: my.file"),
        "there is no routing 'my.file'; outside the package it is my_file:my_routing",
    ),
    (("mine: {", "../x; rm: {"), "is not a name for a variant"),
    (("mine: {", "cnn: {"), "has the name of one of the suite's own variants"),
    (("mine: {", "cnn+n10: {"), "variants.cnn+n10 has the name of a row that a task makes of cnn itself"),
    (("mine: {", "capsnet-r3-recon+tuned: {"), "a row that a task makes of capsnet-r3-recon itself"),
    (("name: small", "name: ../../etc"), "is not a name"),
    (("width: 0.125", "width: 0.125\nwidth: 0.5"), "key 'width' appears twice"),
    (("budget: reduced", "budget: short"), "budget 'short' means epochs: 100"),
    (("budget: reduced", "budget: authors"), "budget 'authors' means steps: 300000"),
    (("tasks:", "tasks: [}"), "not valid YAML"),
]


@pytest.mark.parametrize(("replacement", "sentence"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_one_sentence(plan, replacement: tuple[str, str], sentence: str) -> None:
    path = plan(replacement)
    with pytest.raises(PlanError) as caught:
        House.load(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_file_whose_name_is_none(plan) -> None:
    path = plan(("name: small\n", ""))
    with pytest.raises(PlanError, match=f"{path.parent} is a folder; name a file in it."):
        House.load(path.parent)
    with pytest.raises(PlanError, match=f"{path} is a plan for mnist, not for kmnist."):
        House.load(path, "kmnist")
    odd = path.rename(path.parent / "my plan.yaml")
    with pytest.raises(PlanError, match="a plan is named after its file, but 'my plan' is no valid name; add"):
        House.load(odd)


def test_a_folder_whose_name_is_not_utf_8_is_a_sentence(plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plan()
    (folder := tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    words = r"caf\\udce9\S* has a name that is not UTF-8, which no record could hold; rename its folder"
    with pytest.raises(PlanError, match=words):
        House.load(Path(shutil.copy(path, folder)))
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(folder))
    with pytest.raises(PlanError, match=words):
        House.load(path)


def test_a_key_that_does_nothing_may_say_its_default(plan) -> None:
    """It changes nothing, and a file that writes every key out says no falsehood."""
    House.load(plan(("base: capsnet-r3, squash: half", "base: cnn, down_weight: 0.5")))
    House.load(plan(("squash: half", "routing: em-vector, squash: null, normaliser: null")))  # which it has not
