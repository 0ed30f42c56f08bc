"""The tasks: what each measures on, and the options a plan may set.

Options in `TRAINING` change training and are part of a run's digest; any other evaluates again and trains nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from capsbench.plan.spec import Fraction, Spec
from capsbench.plan.task import CLASSES as CLASSES  # models have it from here, by whose source published runs count
from capsbench.plan.task import TEST_DIGITS, TRAINING_DIGITS, Pairs, Reduction, TaskPlan

PAPER_PAIRS = 60_000_000  # MultiMNIST's training pairs, section 6
TEST_PAIRS = 10_000_000  # its test pairs, section 6
DRAWN_PAIRS = 10_000  # of them, those whose digits are drawn apart and measured
DRAWN_METRICS = ("leakage", "*_true", "*_predicted", "baseline_*")  # what is measured of these; `*`: any letters
LAST_EPOCHS = 5  # of the two-digit transfer, whose mean is reported
MATCHED_AT = 0.9922  # section 5.2: the CNN's accuracy where both were stopped
AFFNIST_EPOCHS = 50  # ours; the paper gives no length
SOURCE_EPOCHS = {"CNN": 20, "capsules": 10}  # of its models in the source


class MnistTask(TaskPlan):
    """Table 1: 28x28, shifts up to 2 px in training, last epoch, 10,000 test images."""

    NAME = "mnist"
    IMAGE = (28, 28)
    CONDITIONS = ("test",)

    train_error_images: PositiveInt = TEST_DIGITS  # training digits for `train_error`, at most as many as are tested
    routing_images: NonNegativeInt = TEST_DIGITS  # test digits for the diagnostics of routing; 0: none of it
    attack_images: NonNegativeInt = 0  # test digits that are attacked; 0: none

    def conditions(self, spec: Spec) -> tuple[str, ...]:
        """Variants that route are looked at under the microscope too; all are attacked where the plan says so."""
        asked = {"routing": self.routing_images and spec.routes(), "attacked": self.attack_images}
        return (*self.CONDITIONS, *(name for name, images in asked.items() if images))

    def reductions(self) -> list[Reduction]:
        """Those of every task, and this one's own."""
        words = super().reductions()
        seen = min(self.train_error_images, self.test_images or TEST_DIGITS)
        if seen < TEST_DIGITS:
            words.append(Reduction("digits", f"training error on {seen:,} digits", ("train_error", "train_test_gap")))
        return words


class AffnistTask(TaskPlan):
    """Training on 40x40 at all 169 places; tested under affine transforms, matched and converged."""

    NAME = "affnist"
    IMAGE = (40, 40)
    CONDITIONS = ("matched", "converged")
    # what decides curve.csv decides a run; `matched_at` only reads it
    TRAINING = (*TaskPlan.TRAINING, "test_images", "held_out", "probe_every", "probe_images", "transforms")

    held_out: PositiveInt = 10_000  # the first training digits, never trained on: where `matched` is read off
    matched_at: Fraction = MATCHED_AT
    probe_every: PositiveInt = 200  # steps between evaluations along training
    probe_images: PositiveInt = 320_000  # affNIST images looked at in each of them
    transforms: Annotated[int, Field(gt=0, le=10_000)] = 32  # affine transforms a test digit
    factor_images: PositiveInt = 10_000  # images at each point of the one-factor curves
    download_official: bool = False  # fetch the official files where they are not; without them the set is synthetic

    def reductions(self) -> list[Reduction]:
        """Those of every task, and this one's own."""
        words = super().reductions()
        if self.matched_at != MATCHED_AT:
            at = f"matched at {self.matched_at:.2%} instead of 99.22%"
            words.append(Reduction("training", at, ("matched",)))
        if self.transforms < 32:
            words.append(Reduction("measuring", f"{self.transforms} of 32 transforms a digit"))
        if self.probe_images < 320_000:
            matched = f"matched on {self.probe_images:,} of 320,000 images"
            some = self.probe_images < TEST_DIGITS  # not one image of each digit
            words.append(Reduction("digits", matched, ("matched",)) if some else Reduction("measuring", matched))
        if self.held_out < 10_000:
            fewer = f"{self.held_out:,} of 10,000 held-out digits"
            words.append(Reduction("digits", fewer, ("matched", "held_out_accuracy")))
        if self.held_out > 10_000 and self.train_images is None:
            words.append(Reduction("experiment", f"{TRAINING_DIGITS - self.held_out:,} training digits"))
        if self.factor_images < TEST_DIGITS:
            words.append(Reduction("measuring", f"single factors on {self.factor_images:,} of {TEST_DIGITS:,} digits"))
        return words


class MultimnistTask(TaskPlan):
    """Pairs of overlapping digits of different classes on 36x36; classification and segmentation."""

    NAME = "multimnist"
    IMAGE = (36, 36)
    CONDITIONS = ("test",)
    DECAY_PERIOD = 20_000  # section 6: ten times MNIST's
    FULL_STEPS = PAPER_PAIRS // 128  # each pair once, as in config/paper-authors.yaml
    TRAINING = ("train_images", "train_per_class", "train_pairs", "placement")

    train_pairs: Pairs = PAPER_PAIRS  # distinct pairs; how many are seen is the number of steps
    test_pairs: Pairs = TEST_PAIRS
    placement: Literal["paper", "official"] = "paper"
    segmentation_pairs: Pairs = DRAWN_PAIRS

    def reductions(self) -> list[Reduction]:
        """Those of every task, and this one's own."""
        words = super().reductions()
        if self.train_pairs < PAPER_PAIRS:
            words.append(Reduction("training", f"{self.train_pairs:,} of {PAPER_PAIRS:,} training pairs"))
        if self.test_pairs < TEST_PAIRS:
            of = () if self.test_pairs < DRAWN_PAIRS else ("error", "half_credit_error")  # the first are drawn apart
            words.append(Reduction("digits", f"{self.test_pairs:,} of {TEST_PAIRS:,} test pairs", of))
        drawn_pairs = min(self.segmentation_pairs, self.test_pairs)
        if drawn_pairs < DRAWN_PAIRS:
            drawn = f"segmentation on {drawn_pairs:,} of {DRAWN_PAIRS:,} pairs"
            words.append(Reduction("digits", drawn, DRAWN_METRICS))
        return words


class TwoDigitTask(TaskPlan):
    """Trained on single 28x28 digits, tested on two digits one above the other or side by side."""

    NAME = "two_digit"
    IMAGE = (28, 28)
    CONDITIONS = ("56x28", "28x56")
    TRAINING = ("train_images", "train_per_class", "pairs", "last_epochs", "test_images", "squeezed")

    pairs: Pairs = 10_000  # test pairs
    squeezed: bool = False  # a control: every model is shown its test pairs as one of a fixed size is, at 28x28
    last_epochs: PositiveInt = LAST_EPOCHS  # the CNN's figure swings between epochs: their mean is reported

    def training_options(self) -> dict[str, Any]:
        """As of every task; `squeezed` only where it is so, for runs that are older than the word keep their digest."""
        return {key: value for key, value in super().training_options().items() if key != "squeezed" or value}

    def unfit(self, spec: Spec) -> str | None:
        """As of every task; and a control that trains on pairs has to see what it is tested on."""
        if self.squeezed and spec.train_on == "pairs":
            return (
                "trains on whole pairs (train_on: pairs), but the task's squeezed: true would test it on squeezed ones"
            )
        return super().unfit(spec)

    def reductions(self) -> list[Reduction]:
        """Those of every task, and this one's own."""
        words = super().reductions()
        of = ("top2_accuracy", "both_above_half_accuracy", "final_*")  # and not the error on single digits
        if self.squeezed:
            words.append(Reduction("experiment", "pairs squeezed to 28x28", of))
        if self.pairs < 10_000:
            words.append(Reduction("digits", f"{self.pairs:,} of 10,000 test pairs", of))
        if self.last_epochs < LAST_EPOCHS:
            mean_of = f"the last {self.last_epochs} epochs" if self.last_epochs > 1 else "the last epoch"
            words.append(Reduction("measuring", f"{mean_of} instead of {LAST_EPOCHS}"))
        return words


TASKS: dict[str, type[TaskPlan]] = {t.NAME: t for t in (MnistTask, AffnistTask, MultimnistTask, TwoDigitTask)}
