"""From a plan to its runs: (task, variant, seed), each with a resolved config and a place in results/."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from capsbench.errors import PlanError, nearest
from capsbench.plan.axes import Row, points_of, rows_of
from capsbench.plan.compare import comparisons, notes
from capsbench.plan.digits import STAND_IN_IMAGES, beside_held_out, check_digits_a_class, check_pairs, of_stand_in
from capsbench.plan.load import load_plan
from capsbench.plan.reductions import check_last_epochs, reduced
from capsbench.plan.schema import CostPlan, Plan, Training
from capsbench.plan.task import CLASSES, TRAINING_DIGITS, Reduction, TaskPlan, TrainingPart
from capsbench.plan.tuning import GRID, PERIOD, RATES, Trial, Tuned, read_choice
from capsbench.plan.variants import Spec
from capsbench.provenance import digest_of

STAND_IN = "uci-digits"  # what may stand in for MNIST


def results_root() -> Path:
    """Where results go: CAPSBENCH_RESULTS (a scratch disk, say), else results/ in the current folder."""
    # a ~ in quotes, as in many a job's script; Path.expanduser raises for a user who does not exist
    return Path(os.path.expanduser(os.environ.get("CAPSBENCH_RESULTS") or "results"))  # noqa: PTH111


def _refuse_unreadable_names(path: Path) -> None:
    """Raise PlanError where a folder's name is not UTF-8: records and Snakemake could not name what lies in it."""
    for place in (path, results_root()):
        try:
            str(place.absolute()).encode()
        except UnicodeEncodeError:
            raise PlanError(
                f"{place.absolute()} has a name that is not UTF-8, which no record could hold; rename its folder, or "
                "use another."
            ) from None


@dataclass(frozen=True)
class Cell:
    """The runs of one variant on one task; they differ only in the seed."""

    task: str
    variant: str
    seeds: tuple[int, ...]
    spec: Spec  # with the plan's width applied
    training: Training
    options: TaskPlan
    dataset: str
    width: float
    base: str | None = None  # the variant that an axis or tuning made this row of
    tuned: Tuned | None = None  # a row whose rate and schedule tuning chooses
    trial: Trial | None = None  # not a row but one training of a tuning

    @property
    def folder_name(self) -> str:
        """The variant's name as a folder: a custom routing's `:` becomes a dot."""
        return self.variant.replace(":", ".")

    @property
    def label(self) -> str:
        """`task/variant`, as the terminal and Snakemake name the cell."""
        return f"{self.task}/{self.folder_name}"

    @property
    def routing(self) -> str:
        """The name of its routing; empty where the model has none to choose."""
        return getattr(self.spec, "routing", "")

    @property
    def waits(self) -> bool:
        """Whether its learning rate is still to be chosen by `capsbench tune`."""
        return self.tuned is not None and self.tuned.point is None

    @property
    def held_out(self) -> int:
        """How many of the first training digits it never trains on."""
        own: int = getattr(self.options, "held_out", 0)
        return own or (self.trial.held_out if self.trial else 0)

    def steps(self, images: int = TRAINING_DIGITS) -> int:
        """Training steps when an epoch has `images` examples."""
        if self.training.steps is not None:
            return self.training.steps
        assert self.training.epochs is not None  # the plan's check: one of both is said
        return math.ceil(self.training.epochs * images / self.training.batch)

    def config(self) -> dict[str, Any]:
        """The resolved config: everything a plan says that decides the weights (but the seed)."""
        return {
            "variant": self.spec.model_dump(exclude=set(self.spec.WORDS)),
            "training": self.training.model_dump(),
            "task": self.options.training_options(),
            "dataset": self.dataset,
            **({"held_out": self.held_out} if self.trial else {}),
        }

    def config_digest(self, seed: int) -> str:
        """Digest of a run's config; of a row that waits for tuning, of how it is going to be chosen."""
        return digest_of([self.promise() if self.waits else self.config(), seed])

    def promise(self) -> dict[str, Any]:
        """The config as far as it is known before any work: instead of what tuning chooses, how it chooses."""
        if self.tuned is None:
            return self.config()
        training = self.training.model_dump(exclude={"rate", "decay", "decay_period"})
        return self.config() | {"training": training, "tuned": self.tuned.recipe}


@dataclass(frozen=True)
class House:
    """A plan together with everything that follows from it before any work is done."""

    path: Path
    plan: Plan
    specs: dict[str, Spec]
    trainings: dict[str, TrainingPart]
    dataset: str  # the plan's, or uci-digits where the plan goes on without MNIST
    root: Path | None = None  # where results go; results_root() when not said
    before_tuning: bool = False  # as if tuning had chosen nothing yet, whatever is stored
    # the digests of sources outside the package that were asked for (capsbench/plan/done.py)
    custom_sources: dict[tuple[str, ...], str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def load(cls, path: str | Path, dataset: str | None = None) -> House:
        """Read and check a plan. Raises PlanError."""
        _refuse_unreadable_names(Path(path))
        plan, specs, trainings = load_plan(Path(path))
        if dataset not in (None, plan.dataset, STAND_IN):
            raise PlanError(f"{path} is a plan for {plan.dataset}, not for {dataset}.")
        house = cls(Path(path), plan, specs, trainings, dataset or plan.dataset)
        for cell in house.cells:  # every cell's training is checked now, before any work
            check_last_epochs(house, cell)
        return house

    @property
    def name(self) -> str:
        """The folder under results/: the plan's name, marked where the data are not what the plan asked for."""
        return self.plan.name if self.dataset == self.plan.dataset else f"{self.plan.name}-digits"

    @property
    def folder(self) -> Path:
        """results/<plan>/."""
        return (self.root or results_root()) / self.name

    @cached_property
    def promised(self) -> House:
        """The plan as it is known before any work. Snakemake's jobs depend on this: tuning changes none of it."""
        return replace(self, before_tuning=True)

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell, in the plan's order."""
        return list(self._cells())

    def _cells(self) -> Iterator[Cell]:
        for task_name, task in self.plan.tasks.given().items():
            if self.dataset == STAND_IN:
                task = of_stand_in(task)
            check_digits_a_class(task, self.dataset, self.path)
            for row in rows_of(task, self.specs, self.path):
                yield self._cell(task_name, task, row)

    def _cell(self, task_name: str, task: TaskPlan, row: Row) -> Cell:
        """The cell of a row, its width and training resolved."""
        check_pairs(row.options, self.dataset, self.path)
        variant = row.base or row.variant
        width = task.widths.get(variant) or task.width or self.plan.width
        training = self.plan.training_for(task, self.trainings.get(variant))
        if training.decay_period == "published":
            training = training.model_copy(update={"decay_period": task.DECAY_PERIOD})
        seeds = tuple(task.seeds or self.plan.seeds)
        if row.bf16:
            if training.precision != "float32":
                has = "in bf16 already" if training.precision == "bf16" else "at precision auto, which may take bf16"
                raise PlanError(
                    f"{self.path}: tasks.{task_name}.bf16: {variant} trains {has}, so its second row would be the same "
                    "runs; set `precision: float32` for this task's training, or leave bf16 out."
                )
            training = training.model_copy(update={"precision": "bf16"})
        rate, has = (min(RATES), "tries") if row.tuned else (training.rate, "has")
        if training.floor > rate:
            raise PlanError(
                f"{self.path}: {task_name}/{row.variant} {has} the rate {rate:g}, below the floor {training.floor:g}, "
                "at which it would then train from the first step; choose a floor that is not above the rate."
            )
        spec = row.spec.scaled(width)
        cell = Cell(task_name, row.variant, seeds, spec, training, row.options, self.dataset, width, row.base)
        cell = self._with_own_period(cell)
        if row.few or self.dataset == STAND_IN:
            cell = self._in_steps(cell, task)
        return self._with_choice(cell) if row.tuned else cell

    def _in_steps(self, cell: Cell, task: TaskPlan) -> Cell:
        """A cell whose training says its steps, which few digits do not shorten: an epoch of theirs is shorter."""
        steps = cell.steps(self.epoch_images(task))
        return replace(cell, training=cell.training.model_copy(update={"epochs": None, "steps": steps}))

    def _with_own_period(self, cell: Cell) -> Cell:
        """`scaled` is MNIST's period, to the trainer; a task with another one has it scaled here, as a number."""
        if cell.training.decay_period != "scaled" or cell.options.DECAY_PERIOD == TaskPlan.DECAY_PERIOD:
            return cell
        steps = cell.steps(self.epoch_images(cell.options))
        period = max(1, round(cell.options.DECAY_PERIOD * steps / cell.options.FULL_STEPS))
        return replace(cell, training=cell.training.model_copy(update={"decay_period": period}))

    def epoch_images(self, task: TaskPlan) -> int:
        """How many examples an epoch of a task has when it trains on every digit that the plan gives it."""
        pairs: int | None = getattr(getattr(self.plan.tasks, task.NAME), "train_pairs", None)
        return pairs if pairs is not None else self.training_digits(task)

    def training_digits(self, task: TaskPlan) -> int:
        """How many digits a task trains on where no axis takes fewer, as the plan says it.

        The stand-in's few digits come again: a plan takes as many steps on them as on the data set that they stand for.
        """
        if task.train_per_class is not None:
            return CLASSES * task.train_per_class
        said: TaskPlan = getattr(self.plan.tasks, task.NAME)
        own: int = getattr(said, "held_out", 0)
        return said.train_images or TRAINING_DIGITS - own

    def _with_choice(self, cell: Cell) -> Cell:
        """A tuned row with what tuning chose for it, if it has."""
        trials = self.trials(cell)
        path = self.folder / "tuning" / cell.task / f"{trials[0].folder_name}.json"
        grid = [point.training_keys() for point in GRID]
        recipe = digest_of([grid, [trial.config() for trial in trials], list(trials[0].seeds)])
        point = None if self.before_tuning else read_choice(path, recipe)
        keys = point.training_keys() if point else {"decay_period": PERIOD}
        tuned = Tuned(path, recipe, point)
        cell = replace(cell, training=cell.training.model_copy(update=keys), tuned=tuned)
        return self._with_own_period(cell)

    def trials(self, cell: Cell) -> list[Cell]:
        """The trainings that a tuned row is chosen by: its variant at every point of the grid, seeds not the plan's."""
        tuning, base = self.plan.tuning, cell.base
        assert tuning is not None  # the plan's check: who says tuned says how
        assert base is not None
        held_out, options = tuning.held_out, cell.options
        if self.dataset == STAND_IN:
            held_out = min(held_out, STAND_IN_IMAGES["held_out"])
            options = beside_held_out(options, held_out)
        length = {"epochs": tuning.epochs, "steps": tuning.steps}
        trials = [
            replace(
                cell,
                variant=base,
                base=None,
                tuned=None,
                seeds=tuple(tuning.seeds),
                options=options,
                training=cell.training.model_copy(update=length | point.training_keys()),
                trial=Trial(point, getattr(cell.options, "held_out", held_out)),
            )
            for point in GRID
        ]
        trials = [self._with_own_period(trial) for trial in trials]
        return [self._in_steps(trial, trial.options) for trial in trials] if self.dataset == STAND_IN else trials

    def cell(self, task: str, variant: str) -> Cell:
        """The cell of that task and variant (or its folder name). Raises PlanError with the nearest name."""
        for cell in self.cells:
            if cell.task == task and variant in (cell.variant, cell.folder_name):
                return cell
        labels = [cell.label for cell in self.cells]
        raise PlanError(f"{self.path} has no cell {task}/{variant}{nearest(f'{task}/{variant}', labels)}")

    def run_folder(self, cell: Cell, seed: int) -> Path:
        """results/<plan>/runs/<task>/<variant>/seed-<n>/; a trial's lies under tuning/."""
        if cell.trial is not None:
            return self.folder / "tuning" / cell.task / cell.folder_name / cell.trial.point.name / f"seed-{seed}"
        return self.folder / "runs" / cell.task / cell.folder_name / f"seed-{seed}"

    def reductions(self, cell: Cell) -> list[str]:
        """What this cell does with less than the paper's protocol, in words for the tables."""
        return [found.words for found in self.reduced(cell)]

    def reduced(self, cell: Cell) -> list[Reduction]:
        """The same, each with what it means for a claim."""
        return reduced(self, cell)

    def task_reductions(self, task: str) -> list[str]:
        """The reductions of any of a task's variants, each once; what an axis varies is the experiment itself."""
        cells = [cell for cell in self.cells if cell.task == task and cell.base is None]
        return list(dict.fromkeys(word for cell in cells for word in self.reductions(cell)))

    def describe(self, dataset: dict[str, Any]) -> dict[str, Any]:
        """plan.json, but for its `cost` (capsbench.pipeline.described): the plan as the report needs it."""
        tasks: dict[str, list[str]] = {}
        for cell in self.cells:
            tasks.setdefault(cell.task, []).append(cell.folder_name)
        return {
            "schema": 1,
            "name": self.name,
            "file": self.path.as_posix(),
            "digest": self.digest,
            "budget": self.plan.budget,
            "about": self.plan.about,
            "seeds": list(self.plan.seeds),
            "dataset": dataset,
            "reductions": {task: self.task_reductions(task) for task in tasks},
            "reduced": {cell.label: [found.as_json() for found in self.reduced(cell)] for cell in self.cells},
            "tasks": tasks,
            "titles": {cell.folder_name: cell.spec.title or cell.variant for cell in self.cells},
            "comparisons": comparisons(self),
            "axes": points_of(self),
            "notes": notes(self),
            "runs": [
                {
                    "task": cell.task,
                    "variant": cell.folder_name,
                    "seed": seed,
                    "config": cell.config_digest(seed),
                }
                for cell in self.cells
                for seed in cell.seeds
            ],
        }

    @cached_property
    def digest(self) -> str:
        """The digest of the whole plan as resolved: every cell's config, seeds and evaluation, what its tables compare.

        Of comparisons and costs it has what is not the default, so that a plan without keeps the digest that it had
        before they counted.
        """
        cells = [
            [cell.label, list(cell.seeds), cell.promise(), cell.options.evaluation_options(), cell.spec.title]
            for cell in self.cells
        ]
        compared: dict[str, Any] = {}
        for name, task in self.plan.tasks.given().items():
            words = task.model_dump(include={"reference", "references", "ladder"}, exclude_defaults=True)
            compared |= {name: words} if words else {}
        if self.plan.cost != CostPlan():
            compared["cost"] = self.plan.cost.model_dump() if self.plan.cost else None
        return digest_of([self.plan.name, self.plan.budget, self.plan.about, cells, *([compared] if compared else [])])
