"""What a plan does with less than the paper's protocol, in words for the tables, and what each means for a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsbench.errors import PlanError, counted
from capsbench.plan.digits import digits_there
from capsbench.plan.schema import PUBLISHED_STEPS, SHORT_EPOCHS, Training
from capsbench.plan.task import CLASSES, Reduction, TaskPlan
from capsbench.plan.tasks import AFFNIST_EPOCHS, PAPER_PAIRS, SOURCE_EPOCHS, TwoDigitTask

if TYPE_CHECKING:
    from capsbench.plan.runs import Cell, House

PAPER_SEEDS = 5  # what the full plan trains; the paper had 3


def reduced(house: House, cell: Cell) -> list[Reduction]:
    """What a cell does with less than the paper's protocol, each with what it means for a claim."""
    found = []
    if house.dataset == "uci-digits":
        found.append(Reduction("experiment", "UCI digits, not MNIST"))
    if cell.width != 1:
        own = f" ({cell.variant})" if cell.variant in cell.options.widths else ""
        if not own and 1 in cell.options.widths.values():  # of which no words would tell
            own = f" (all but {', '.join(cell.options.widths)})"
        found.append(Reduction("experiment", f"width {_fraction(cell.width)}{own}"))
    if house.plan.budget == "reduced":
        training = cell.training
        length = (
            f"{training.epochs:g} epoch{'s' * (training.epochs != 1)}"
            if training.epochs
            else f"{training.steps:,} steps"
        )
        steps = cell.steps(house.epoch_images(cell.options))
        paper = f" instead of {PUBLISHED_STEPS:,} steps" if cell.task == "mnist" and steps < PUBLISHED_STEPS else ""
        found.append(Reduction("training", f"{length}{paper}{_whose(house, cell)}"))
    else:
        found += _of_the_budget(house, cell) + _of_the_optimiser(house, cell)
    if len(cell.seeds) < PAPER_SEEDS:
        found.append(Reduction("measuring", f"{len(cell.seeds)} of {PAPER_SEEDS} seeds"))
    asked: TaskPlan = getattr(house.plan.tasks, cell.task)  # few digits by an axis are no reduction: they are asked
    there_is = {"train_per_class": asked.train_per_class}
    if isinstance(cell.options, TwoDigitTask):
        there_is["last_epochs"] = min(cell.options.last_epochs, _epochs(house, cell))
    return found + cell.options.model_copy(update=there_is).reductions()


def check_last_epochs(house: House, cell: Cell) -> None:
    """Raise PlanError where a mean is asked for over more epochs than a row trains; unsaid, it is over all of them."""
    options = cell.options
    if not isinstance(options, TwoDigitTask) or "last_epochs" not in options.model_fields_set:
        return
    if options.last_epochs > (there := _epochs(house, cell)):
        raise PlanError(
            f"{house.path}: tasks.{cell.task}.last_epochs is {options.last_epochs:,}, but {cell.variant} trains for "
            f"{counted(there, 'epoch')}; ask for fewer, or train longer."
        )


def _epochs(house: House, cell: Cell) -> int:
    """How many epochs a run has, one that was begun among them (capsbench/training/probe_two_digit.py)."""
    few = cell.options.train_per_class
    size = digits_there(cell.options, cell.dataset) if few is None else CLASSES * few
    return (cell.steps(house.epoch_images(cell.options)) - 1) * cell.training.batch // size + 1


def _whose(house: House, cell: Cell) -> str:
    """` (mine)` of a variant that trains for another length than its task says: no other row does."""
    task, name = getattr(house.plan.tasks, cell.task), cell.base or cell.variant
    trainings = [house.plan.training_for(task, own) for own in (None, house.trainings.get(name))]
    lengths = [(training.epochs, training.steps, training.batch) for training in trainings]
    return "" if lengths[0] == lengths[1] else f" ({name})"


def _of_the_budget(house: House, cell: Cell) -> list[Reduction]:
    """What is shorter than the source's training: by the budget `short`, or because the task says less than that.

    Nobody says how long affNIST's models were trained: this suite's 50 epochs are what its claims speak of.
    """
    images = house.epoch_images(getattr(house.plan.tasks, cell.task))  # few digits by an axis train as many steps
    steps = cell.steps(images)
    seen, whose = steps * cell.training.batch, _whose(house, cell)
    if cell.task == "mnist":
        words = f"{steps:,} steps instead of the authors' {PUBLISHED_STEPS:,}{whose}"
        if house.plan.budget == "authors":
            return [Reduction("training", words)] if steps < PUBLISHED_STEPS else []
        return [Reduction("training" if seen < SHORT_EPOCHS * images else "budget", words)]
    if cell.task == "affnist" and seen < AFFNIST_EPOCHS * images:
        return [
            Reduction("training", f"{steps:,} steps, less than the {AFFNIST_EPOCHS} epochs of config/paper.yaml{whose}")
        ]
    if cell.task == "multimnist" and seen < PAPER_PAIRS:  # the paper says how many: fewer judge none of its values
        return [Reduction("training", f"{seen:,} training pairs seen, of the paper's {PAPER_PAIRS:,}{whose}")]
    if cell.task == "two_digit":
        epochs = SOURCE_EPOCHS["capsules" if cell.spec.routes() or getattr(cell.spec, "capsules", False) else "CNN"]
        words = f"{steps:,} steps, less than the source's {epochs} epochs{whose}"
        return [Reduction("training", words)] if seen < epochs * images else []
    return []


def _of_the_optimiser(house: House, cell: Cell) -> list[Reduction]:
    """What the plan or its task has instead of the protocol's batch and rate, which the budget's name promises.

    A row that was tuned, or a variant with a training of its own, is asked for by its name and changes nothing here.
    """
    plan = house.plan
    meant = Training(steps=1).model_dump()  # the defaults are the protocol
    meant["decay_period"] = {"short": "scaled", "authors": "published"}[plan.budget]
    if cell.task == "two_digit":
        meant["decay"] = 1.0  # the source's Adam keeps its rate
    said = plan.training_for(task := getattr(plan.tasks, cell.task)).model_dump()
    if said["decay_period"] == task.DECAY_PERIOD:
        said["decay_period"] = "published"
    keys = [key for key in ("batch", "rate", "decay", "decay_period", "floor") if said[key] != meant[key]]
    if said["decay"] == meant["decay"] == 1.0:  # the rate stays, whatever its period and floor
        keys = [key for key in keys if key not in ("decay_period", "floor")]
    return [Reduction("training", f"{key} {said[key]} instead of {meant[key]}") for key in keys]


def _fraction(width: float) -> str:
    inverse = 1 / width
    return f"1/{inverse:.0f}" if abs(inverse - round(inverse)) < 1e-9 else f"{width:g}"
