"""A run's metrics, counted again from the answers that are stored beside them: a number edited by hand shows here.

Some have no answers to be counted from: errors on training and on single digits, how digits are drawn, and all that
the diagnostics `attacked` and `routing` measure. A second training tells of these (`capsbench verify`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capsbench.errors import DataError
from capsbench.evaluation.curve import NotMatchedError, read_curve, read_off
from capsbench.plan.task import TaskPlan
from capsbench.plan.tasks import AffnistTask
from capsbench.report.contract import Metrics, read
from capsbench.report.readers import load_arrays

AGAIN = "copy the run again from where it was made"
WITHIN = 1e-9  # relative: sums of another order, or of single precision's exact counts


class Counted(NamedTuple):
    """What a file of the run tells: metrics by their names in metrics.json, and of how many images, None if of none."""

    file: str
    metrics: dict[str, float]
    images: int | None = None


Count = Callable[[Path, Metrics, TaskPlan], Counted]


def altered(run: Path, options: TaskPlan) -> str:
    """What a metrics.json of a sound and evaluated run says that its answers do not, with its name; empty if nothing.

    options: of the run's task, those that it was evaluated with.
    """
    for path in sorted(run.glob("*/metrics.json")):
        metrics = read(path, Metrics)
        if metrics.status == "done" and (told := _told_otherwise(path.parent, metrics, options)):
            return f"{path.relative_to(run).as_posix()} {told}"
    return ""


def _told_otherwise(condition: Path, metrics: Metrics, options: TaskPlan) -> str:
    """The same of one condition's folder."""
    stored = {name: value.value for name, value in metrics.metrics.items()}
    for count in _counts(options.NAME, condition.name):
        try:
            counted = count(condition, metrics, options)
        except (DataError, NotMatchedError, ArithmeticError, KeyError, OSError, ValueError, TypeError) as error:
            said = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            return f"cannot be counted again from the answers that are stored with it ({said}); {AGAIN}"
        of_images = {} if counted.images is None else {"images": float(counted.images)}
        for name, value in (counted.metrics | of_images).items():
            found = metrics.images if name == "images" else stored.get(name)
            if found is None or not math.isclose(found, value, rel_tol=WITHIN, abs_tol=WITHIN):
                is_said = f"says no {name}" if found is None else f"says {found:.10g} for {name}"
                return f"{is_said} where its {counted.file} gives {value:.10g}; one of the two was altered, so {AGAIN}"
    return ""


def _counts(task: str, condition: str) -> Sequence[Count]:
    """What there is to count of a condition; nothing of diagnostics, nor of a task that is none of these."""
    if task == "two_digit":
        return (_two_digits, _two_digits_along)
    of_others: dict[tuple[str, str], Sequence[Count]] = {
        ("mnist", "test"): (_mnist, _calibration),
        ("affnist", "matched"): (_matched,),
        ("affnist", "converged"): (_converged,),
        ("multimnist", "test"): (_multimnist,),
    }
    return of_others.get((task, condition), ())


def _mnist(condition: Path, metrics: Metrics, _: TaskPlan) -> Counted:
    answers = load_arrays(condition / "predictions.npz", ["labels", "predicted"])
    count, correct = len(answers["labels"]), int((answers["predicted"] == answers["labels"]).sum())
    error = 100 * (count - correct) / count
    counted = {"error": error, "correct": float(correct)}
    learnt = metrics.metrics.get("train_error")
    if learnt is not None and learnt.value is not None:
        counted["train_test_gap"] = error - learnt.value
    return Counted(f"{condition.name}/predictions.npz", counted, count)


def _calibration(condition: Path, metrics: Metrics, _: TaskPlan) -> Counted:
    """By the bins of the diagram, whose answers must be those of the predictions too."""
    if not {"ece", "overconfidence"} & metrics.metrics.keys():  # an evaluation that did not measure them yet
        return Counted(f"{condition.name}/reliability.csv", {})
    import pandas as pd

    from capsbench.evaluation.calibration import calibration_error, overconfidence  # which imports torch

    bins = pd.read_csv(condition / "reliability.csv")
    error = 100 * (1 - float(np.average(bins["accuracy"], weights=bins["images"])))
    counted = {"ece": calibration_error(bins), "overconfidence": overconfidence(bins), "error": error}
    return Counted(f"{condition.name}/reliability.csv", counted, int(bins["images"].sum()))


def _converged(condition: Path, _: Metrics, __: TaskPlan) -> Counted:
    answers = load_arrays(condition / "predictions.npz", ["labels", "predicted"])
    right = answers["predicted"] == answers["labels"]
    return Counted(f"{condition.name}/predictions.npz", {"accuracy": 100 * int(right.sum()) / len(right)}, len(right))


def _matched(condition: Path, _: Metrics, options: TaskPlan) -> Counted:
    assert isinstance(options, AffnistTask)
    curve = read_curve(condition.parent, ["held_out_accuracy", "affnist_accuracy"])
    held_out, measured = (curve[name].to_numpy() for name in ("held_out_accuracy", "affnist_accuracy"))
    value = read_off(held_out, measured, options.matched_at)
    return Counted("curve.csv", {"accuracy": 100 * value, "held_out_accuracy": 100 * options.matched_at})


def _multimnist(condition: Path, _: Metrics, __: TaskPlan) -> Counted:
    """Of all pairs, each of which is counted by both of its digits."""
    digits = load_arrays(condition / "predictions.npz", ["digits"])["digits"].astype(np.int64)  # [D, 3]
    none, one, both = (int(count) for count in digits.sum(0))
    every = none + one + both
    counted = {"error": 100 * (one + both) / every, "half_credit_error": 50 * (one + 2 * both) / every}
    return Counted(f"{condition.name}/predictions.npz", counted, every // 2)


RULES = ("top2_accuracy", "both_above_half_accuracy")


def _two_digits(condition: Path, _: Metrics, __: TaskPlan) -> Counted:
    answers = load_arrays(condition / "predictions.npz", RULES)
    count = len(answers[RULES[0]])
    return Counted(
        f"{condition.name}/predictions.npz",
        {f"final_{rule}": 100 * int(answers[rule].sum()) / count for rule in RULES},
        count,
    )


def _two_digits_along(condition: Path, _: Metrics, __: TaskPlan) -> Counted:
    curve = read_curve(condition.parent, [f"{condition.name}.{rule}" for rule in RULES])
    return Counted("curve.csv", {rule: 100 * float(curve[f"{condition.name}.{rule}"].mean()) for rule in RULES})
