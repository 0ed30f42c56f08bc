"""How many digits the data sets have, and plans that ask for more of them."""

from __future__ import annotations

import math
from pathlib import Path

from capsbench.errors import PlanError, counted
from capsbench.plan.schema import Plan
from capsbench.plan.task import CLASSES, TEST_DIGITS, TRAINING_DIGITS, TaskPlan
from capsbench.plan.tasks import AffnistTask

# Training digits of the class that has fewest: MNIST's fives, scikit-learn's eights
SMALLEST_CLASS = {"mnist": 5_421, "fashion-mnist": 6_000, "kmnist": 6_000, "uci-digits": 124}
# what scikit-learn's digits have at the most, and what tasks take of them where a plan asks for more
STAND_IN_IMAGES = {
    "train_images": 1_297,
    "test_images": 500,
    "held_out": 200,
    "routing_images": 500,
    "attack_images": 500,
}
STAND_IN_PAIRS = {"test_pairs": 500 * (500 - 50)}  # each test digit with all but the largest class
LARGEST_CLASS = 133  # of the 1,297: whichever of them are left, no digit has more of its own class


def of_stand_in(task: TaskPlan) -> TaskPlan:
    """A task on scikit-learn's digits: no more of them than there are."""
    most = STAND_IN_IMAGES | STAND_IN_PAIRS
    said = {key: getattr(task, key, None) for key in most}
    task = task.model_copy(update={key: min(value, most[key]) for key, value in said.items() if value})
    return beside_held_out(task, getattr(task, "held_out", 0))


def beside_held_out(task: TaskPlan, held_out: int) -> TaskPlan:
    """A task on scikit-learn's digits that trains on no more digits and pairs than are left when these are held out."""
    left = STAND_IN_IMAGES["train_images"] - held_out
    digits = min(task.train_images or left, left)
    most = {"train_images": left, "train_pairs": digits * max(digits - LARGEST_CLASS, 1)}
    said = {key: getattr(task, key, None) for key in most}
    return task.model_copy(update={key: min(value, most[key]) for key, value in said.items() if value})


def digits_there(task: TaskPlan, dataset: str) -> int:
    """How many digits a task can train on: all that the data set has, or as many as it says, less those held out."""
    every = STAND_IN_IMAGES["train_images"] if dataset == "uci-digits" else TRAINING_DIGITS
    held_out: int = getattr(task, "held_out", 0)
    return task.train_images or every - held_out


def check_training_digits(plan: Plan, name: str, task: TaskPlan, path: Path) -> None:
    """Raise PlanError where a task asks for more training digits than there are, to train on or to hold out."""
    own: int | None = getattr(task, "held_out", None)
    asked = {f"tasks.{name}.train_images": task.train_images or 1}  # at least one is left to train on
    if own is not None:
        asked[f"tasks.{name}.held_out"] = own
    elif task.tuned and plan.tuning is not None:
        asked["tuning.held_out"] = plan.tuning.held_out
    if sum(asked.values()) > TRAINING_DIGITS:
        if task.train_images is None:
            del asked[f"tasks.{name}.train_images"]
        said = " and ".join(f"{key} is {value:,}" for key, value in asked.items())
        raise PlanError(f"{path}: {said}, but there are {TRAINING_DIGITS:,} training digits in all; ask for fewer.")


def check_probe_images(name: str, task: TaskPlan, path: Path) -> None:
    """Raise PlanError where a task asks to be measured along training on more affNIST images than it has of them.

    What it does not say is as many as there are, however few. Official files have as many of each digit as the plan
    asks for transforms, or are refused when they are read.
    """
    if not isinstance(task, AffnistTask) or "probe_images" not in task.model_fields_set:
        return
    digits = task.test_images or TEST_DIGITS
    if task.probe_images > digits * task.transforms:
        raise PlanError(
            f"{path}: tasks.{name}.probe_images is {task.probe_images:,}, but {counted(digits, 'test digit')} under "
            f"{counted(task.transforms, 'transform')} are {digits * task.transforms:,} images; ask for fewer, or leave "
            "the key out for all."
        )


def check_digits_a_class(task: TaskPlan, dataset: str, path: Path) -> None:
    """Raise PlanError where so many digits of each class are not there, or are all that the variants train on anyway.

    Which digits are among the first of a file is not known here: what passes may still be too many for one class, which
    is said when the data are read.
    """
    there, smallest = digits_there(task, dataset), SMALLEST_CLASS[dataset]
    axis = dict.fromkeys(task.axes.per_class.values, "axes.per_class names") if task.axes.per_class else {}
    alone = {task.train_per_class: "train_per_class is"} if task.train_per_class is not None else {}
    for value, key in (axis | alone).items():
        said = f"{path}: tasks.{task.NAME}.{key} {value:,}"
        if value > there // CLASSES:
            raise PlanError(f"{said}, but {there:,} training digits are {there // CLASSES:,} a class; ask for fewer.")
        if value > smallest:
            raise PlanError(
                f"{said}, but the smallest class of {dataset} has {smallest:,} training digits; ask for fewer."
            )
        if key in axis.values() and value == there // CLASSES:
            raise PlanError(
                f"{said}, which is all that its variants train on anyway; leave it out, since that row exists already."
            )


def check_pairs(task: TaskPlan, dataset: str, path: Path) -> None:
    """Raise PlanError where so many distinct pairs cannot be made of a row's digits, whichever digits these are.

    The largest class has at least a tenth of them, and its digits find no partners there. What passes may still be too
    much where classes differ in size, which is said when the data are read.
    """
    tested = task.test_images or (STAND_IN_IMAGES["test_images"] if dataset == "uci-digits" else TEST_DIGITS)
    trained = CLASSES * task.train_per_class if task.train_per_class is not None else digits_there(task, dataset)
    for key, what, digits in (
        ("train_pairs", "training", trained),
        ("test_pairs", "test", tested),
        ("pairs", "test", tested),
    ):
        asked, most = getattr(task, key, 0), digits * (digits - math.ceil(digits / CLASSES))
        if asked > most:
            make = f"{counted(digits, f'{what} digit')} make{'s' if digits == 1 else ''}"
            raise PlanError(
                f"{path}: tasks.{task.NAME}.{key} is {asked:,}, but {make} at most {most:,} pairs of two classes; "
                "ask for fewer, or for more digits."
            )
