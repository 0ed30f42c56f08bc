"""Whether routings, data and weights are what cells ask for: found before any work is done, not hours later."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsbench.cli.compiler import leave_out_compiler
from capsbench.errors import CapsbenchError, DataError, PlanError, RoutingError
from capsbench.plan import Cell, House
from capsbench.plan.custom import custom_files, forget_others
from capsbench.plan.done import TASK_MODULES, evaluation_roots, training_roots, training_source
from capsbench.plan.outside import code_named
from capsbench.plan.routings import is_custom
from capsbench.plan.variants import MODELS
from capsbench.provenance import PACKAGE, digest_of, digest_of_file, import_source

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from capsbench.training.run import Setting


def import_all(cells: Iterable[Cell]) -> None:
    """Import what trains and evaluates `cells`, hours before some of it is asked for. Raises as `import_source`."""
    import_source({root for cell in cells for root in (*training_roots(cell), *evaluation_roots(cell))})
    leave_out_compiler()


def import_everything() -> None:
    """Import what trains and evaluates any cell, for a process whose forks do that. Raises as `import_source`."""
    tasks = {root for task, modules in TASK_MODULES.items() for root in (*modules, f"capsbench.evaluation.{task}")}
    import_source(["capsbench.training.together", *tasks, *{model.split(":")[0] for model in MODELS.values()}])
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.fx.experimental.symbolic_shapes")  # which autograd imports in its first step
    leave_out_compiler()


@contextlib.contextmanager
def in_words_of_the_plan(house: House, cell: Cell) -> Iterator[None]:
    """Within: a complaint about data names the plan's file and the cell that asked for them."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{house.path}: {cell.label}: {error}") from error


def refuse_edited(house: House, cell: Cell) -> None:
    """Raise RoutingError where code beside the plan was edited since this command took its digest, and is not imported.

    Its runs would be of the new file, and known by the digest of the old one. What was imported stays as it was.
    """
    folder, module = house.path.parent, cell.routing.partition(":")[0]
    if not is_custom(cell.routing):
        return
    forget_others(cell.routing, folder)
    files = custom_files(cell.routing, folder)
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded is not None and module in files and Path(loaded).resolve() == files[module].resolve():
        return
    as_it_was, as_it_is = training_source(house, cell), training_source(replace(house, custom_sources={}), cell)
    if as_it_is != as_it_was:
        raise RoutingError(
            f"{house.path}: {cell.label}: {code_named(cell.spec)} was edited after this command began; say it again."
        )


@contextlib.contextmanager
def in_words_of_its_routing(house: House, *cells: Cell, tried: bool = True) -> Iterator[None]:
    """Within: what code beside the plan raises after its trial is a sentence with its line, as in the trial.

    cells: whose code runs within, turn by turn where there are several, as for times and costs; where only one of them
    has code beside the plan it is named. tried: False where the trial itself may be within.

    Raises RoutingError for an error that comes from there; any other is ours, and keeps its traceback. Raises it as
    `refuse_edited`, too.
    """
    custom = {cell.label: cell for cell in cells if is_custom(cell.routing)}
    for cell in custom.values():
        refuse_edited(house, cell)
    folder = house.path.parent
    where = [str(house.path), *(custom if len(custom) == 1 else ())]
    try:
        yield
    except RoutingError as error:  # the suite's, on what the code returned
        if not custom or str(error).startswith(f"{house.path}: "):
            raise
        said = with_its_line(error, folder) + (" It did not in its trial." if tried else "")
        raise RoutingError(": ".join([*where, said])) from error
    except CapsbenchError:
        raise
    except (Exception, SystemExit) as error:
        if not (custom and _comes_from(error, folder)):
            raise
        from capsbench.models.raised import what_was_raised

        code = [code_named(cell.spec) for cell in custom.values()] if len(custom) == 1 else []
        said = f"{what_was_raised(error, folder)} It did not in its trial."
        raise RoutingError(": ".join([*where, *code, said])) from error


def _comes_from(error: BaseException, folder: Path) -> bool:
    """Whether an error came last through the user's code, and not through the suite's: libraries raise for either.

    What a function of the suite's raises on arguments of the user's keeps its traceback.
    """
    whose = []  # of each frame: the suite's, or the user's; the suite and its .venv may lie in a plan's folder
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename).resolve()
        if path.is_relative_to(PACKAGE):
            whose.append("suite")
        elif path.is_relative_to(folder.resolve()) and "site-packages" not in path.parts:
            whose.append("user")
    return whose[-1:] == ["user"]


def with_its_line(error: RoutingError, folder: Path) -> str:
    """An error's words, with the user's line that it came through where they name none, as of one in an import."""
    from capsbench.models.raised import what_was_raised

    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    line, through_it, _ = what_was_raised(cause, folder).partition(": it raised ")
    return f"{error} See {line}." if through_it and line not in str(error) else str(error)


def try_routings(console: Console, house: House, cells: Iterable[Cell]) -> None:
    """Try, on small batches, each routing among `cells` that is from outside or has options of its own, and each model.

    Says of code from outside that it is tried, for it may take its time.

    Raises RoutingError, naming the plan and the variant, for code that is no routing, for an option's value that does
    not fit, and for what the evaluation will ask of a routing and it does not do.
    """
    to_try = [
        cell
        for cell in {cell.label: cell for cell in cells}.values()
        if is_custom(cell.routing) or (cell.spec.routes() and getattr(cell.spec, "routing_options", {}))
    ]
    if not to_try:
        return
    from capsbench.evaluation.microscope import passes_of
    from capsbench.models.repeatable import build_and_try_twice
    from capsbench.models.trial import build_and_try, try_passes

    folder = house.path.parent
    for cell in to_try:
        size = cell.options.IMAGE[0]
        if is_custom(cell.routing):
            console.print(f"{cell.label}: {code_named(cell.spec)} is tried on a few images", markup=False)
        refuse_edited(house, cell)
        try:
            model = (build_and_try_twice if is_custom(cell.routing) else build_and_try)(cell.spec, size, folder)
            _refuse_idle_passes(model, cell)
            if getattr(cell.options, "routing_images", 0) and cell.spec.routes():
                try_passes(model, size, folder, passes_of(model, cell.spec))
        except RoutingError as error:
            of = "" if cell.variant == cell.routing else f"variant {cell.variant}: "
            raise RoutingError(f"{house.path}: {of}{with_its_line(error, folder)}") from error


def _refuse_idle_passes(model: nn.Module, cell: Cell) -> None:
    """Raise RoutingError where a number of passes is asked for that the routing does not take: nothing would differ."""
    from capsbench.routing.layer import RoutingLayer

    if not (is_custom(cell.routing) and cell.spec.routes()):
        return  # of the package's own a plan knows how many passes they make
    passes = cell.spec.iterations  # type: ignore[attr-defined]
    takes = [module.takes for module in model.modules() if isinstance(module, RoutingLayer)]
    if takes and "iterations" not in takes[0] and passes != type(cell.spec).model_fields["iterations"].default:
        raise RoutingError(f"iterations: {passes}, but its routing takes no `iterations`, so it has no effect.")


def refuse_shared_folders(houses: Sequence[House]) -> None:
    """Raise PlanError where two plans of one name, which ask for different things, would have one folder."""
    first: dict[Path, House] = {}
    for house in houses:
        other = first.setdefault(house.folder, house)
        if other.digest != house.digest:
            raise PlanError(
                f"{other.path} and {house.path} are both called {house.plan.name}, so both would write into "
                f"{house.folder}; give one of them a `name:` of its own."
            )


def check_inputs(waiting: list[tuple[Cell, int]], setting_of: Callable[[Cell], Setting]) -> None:
    """Make the training stream and the measurement along training of `waiting` (cell, seed), and let each go again.

    Cells that ask the same of the data are one; the first's are left out, for they are made as it begins, before
    anything is trained. Raises DataError, naming plan and cell, where data are damaged or too few.
    """
    from capsbench.training.digits import training_digits
    from capsbench.training.run import make_probe, make_stream

    first_of_each: dict[str, tuple[Cell, int]] = {}
    for cell, seed in waiting:
        first_of_each.setdefault(_asked(cell), (cell, seed))
    for cell, seed in list(first_of_each.values())[1:]:
        setting = setting_of(cell)
        with in_words_of_the_plan(setting.house, cell):
            train = training_digits(cell, setting.digits.train, seed)
            make_probe(setting, make_stream(cell, train, seed))


def refuse_without_weights(run: Path) -> None:
    """Raise DataError where a run's folder has no weights to evaluate, as no published run has and none brought."""
    if not (run / "weights.safetensors").is_file():
        raise DataError(
            f"{run} has no weights.safetensors (published runs and those that were brought have none), so that it "
            "cannot be evaluated as the plan asks now. Give the task the keys that it was evaluated with, bring it "
            "again, or remove its manifest.json to train it again."
        )


def check_weights(run: Path, manifest: dict[str, Any]) -> None:
    """Raise DataError where a run's folder holds whole weights of another training than its manifest's.

    So it is where results come back from another machine into a folder in which the run was trained before: archives
    bring the manifest and no weights. What is missing or damaged is said by whoever reads it.
    """
    from capsbench.training.checkpoint import read_tensors

    path = run / "weights.safetensors"
    with contextlib.suppress(OSError, ValueError):
        if digest_of_file(path) != manifest["weights"] and read_tensors(path).tensors:
            raise DataError(
                f"{path} is not from the training that manifest.json beside it describes; copy the weights from "
                "where that was made, or remove both files to train the run again."
            )


def _asked(cell: Cell) -> str:
    """Digest of all that a cell asks of the data. Seeds draw other digits and pairs, but not another number of them."""
    options = cell.options
    return digest_of(
        [cell.task, cell.spec.train_on, cell.held_out, options.training_options(), options.evaluation_options()]
    )
