"""A plan: variants x tasks x seeds x budget. Science only; machines are the profiles' business."""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from capsbench.plan.spec import Said, Strict, Width
from capsbench.plan.task import PUBLISHED_STEPS, Batch, DecayPeriod, Epochs, Seeds, TaskPlan, TrainingPart
from capsbench.plan.tasks import AffnistTask, MnistTask, MultimnistTask, TwoDigitTask
from capsbench.plan.tuning import Tuning

SAFE_NAME = re.compile(r"(?=.{1,100}$)[A-Za-z0-9][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*")  # of folders; no shell word
SHORT_EPOCHS = 100


class Training(Strict):
    """How every run of the plan is trained (section 4; the schedule is in the authors' code)."""

    epochs: Epochs | None = None
    steps: Annotated[int, Field(gt=0)] | None = None
    batch: Batch = 128
    rate: Annotated[float, Field(gt=0)] = 1e-3  # Adam's TensorFlow default
    decay: Annotated[float, Field(gt=0, le=1)] = 0.96
    decay_period: DecayPeriod = "scaled"  # scaled: ends at the rate where the task's published steps end
    floor: Annotated[float, Field(ge=0)] = 1e-6
    precision: Literal["auto", "float32", "bf16"] = "auto"


class CostPlan(Strict):
    """How `capsbench cost` measures: untrained models of every cell, in one process, turn by turn."""

    batch: Batch = 128
    repetitions: Annotated[int, Field(gt=0)] = 10  # rounds over all models; medians are shown


class TaskPlans(Said):
    """The tasks of a plan."""

    EMPTY = "is empty; name its variants"  # a slip of indentation

    mnist: MnistTask | None = None
    affnist: AffnistTask | None = None
    multimnist: MultimnistTask | None = None
    two_digit: TwoDigitTask | None = None

    def given(self) -> dict[str, TaskPlan]:
        """The tasks that the plan has, in the suite's order."""
        return {name: task for name in type(self).model_fields if (task := getattr(self, name)) is not None}


class Plan(Strict):
    """One file of config/."""

    name: str  # the folder under results/; the file's name when not said
    about: str = ""  # one sentence for the report
    budget: Literal["short", "authors", "reduced"]
    seeds: Seeds
    dataset: Literal["mnist", "fashion-mnist", "kmnist"] = "mnist"
    data_folder: str | None = None  # CAPSBENCH_DATA comes first
    uci_digits: bool = False  # True: without MNIST and without a network, go on with scikit-learn's digits, said aloud
    width: Width = 1.0
    training: Training
    tuning: Tuning | None = None  # how the rows called <variant>+tuned get their learning rate and schedule
    variants: dict[str, dict[str, Any]] = Field(default={})  # variants of this plan alone: `base` and what differs
    cost: CostPlan | None = CostPlan()  # false: the plan has no table of costs
    tasks: TaskPlans

    @field_validator("cost", mode="before")
    @classmethod
    def _switched(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("it has no value; write `cost: false` for no table of costs, or remove the key")
        return {False: None, True: {}}[value] if isinstance(value, bool) else value

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not SAFE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name: letters, digits, '_', '-', '+' and single dots only")
        return name

    @model_validator(mode="after")
    def _has_work_and_keeps_its_word(self) -> Self:
        if not self.tasks.given():
            raise ValueError("tasks is empty: name at least one task")
        training = self.training
        if training.epochs is None and training.steps is None:
            raise ValueError("training gives no length; write epochs or steps")
        if training.epochs is not None and training.steps is not None:
            raise ValueError("training must give either epochs or steps, not both")
        if self.budget == "short" and (training.epochs != SHORT_EPOCHS or training.decay_period != "scaled"):
            raise ValueError(
                f"budget 'short' means epochs: {SHORT_EPOCHS} and decay_period: scaled; call anything else 'reduced'"
            )
        if self.budget == "authors" and (training.steps != PUBLISHED_STEPS or training.decay_period != "published"):
            raise ValueError(
                f"budget 'authors' means steps: {PUBLISHED_STEPS} and decay_period: published; "
                f"call anything else 'reduced'"
            )
        return self

    @model_validator(mode="after")
    def _tunes_what_it_says(self) -> Self:
        wanted = [name for name, task in self.tasks.given().items() if task.tuned]
        if wanted and self.tuning is None:
            raise ValueError(f"tasks.{wanted[0]} sets tuned, but the plan has no key tuning that gives epochs or steps")
        if self.tuning is not None and not wanted:
            raise ValueError("the plan has a key tuning, but no task sets tuned")
        used = {*self.seeds, *(seed for task in self.tasks.given().values() for seed in task.seeds or ())}
        if self.tuning is not None and (both := sorted(used & set(self.tuning.seeds))):
            free = next(seed for seed in itertools.count(1000) if seed not in used)
            raise ValueError(
                f"tuning.seeds names {both[0]}, which the plan's own runs use; choose another, such as {free}"
            )
        return self

    def training_for(self, task: TaskPlan, variant: TrainingPart | None = None) -> Training:
        """The training of one cell: the plan's, then the task's, then the variant's words."""
        values = self.training.model_dump()
        for part in (task.training, variant):
            said = part.model_dump(exclude_none=True) if part else {}
            if "epochs" in said or "steps" in said:  # they exclude each other: the nearer word replaces both
                values["epochs"] = values["steps"] = None
            values.update(said)
        return Training.model_validate(values)
