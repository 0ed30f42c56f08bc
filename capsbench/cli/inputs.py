"""Whether routings, data and weights are what cells ask for: found before any work is done, not hours later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsbench.errors import DataError, RoutingError
from capsbench.plan import Cell, House
from capsbench.plan.routings import is_custom
from capsbench.provenance import digest_of, digest_of_file

if TYPE_CHECKING:
    from capsbench.training.run import Setting


@contextlib.contextmanager
def in_words_of_the_plan(house: House, cell: Cell) -> Iterator[None]:
    """Within: a complaint about data names the plan's file and the cell that asked for them."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{house.path}: {cell.label}: {error}") from error


def try_routings(waiting: list[tuple[Cell, int]], setting_of: Callable[[Cell], Setting]) -> None:
    """Try, on one small batch, each routing among `waiting` that is from outside or has options of its own.

    Raises RoutingError, naming the variant, for code that is no routing and for an option's value that does not fit.
    """
    from capsbench.models.trial import try_routing
    from capsbench.training.run import new_model

    for cell in {cell.label: cell for cell, _ in waiting}.values():
        if is_custom(getattr(cell.spec, "routing", "")):
            new_model(setting_of(cell), 0)  # which tries it
        elif cell.spec.routes() and getattr(cell.spec, "routing_options", {}):
            setting = setting_of(cell)
            model = new_model(setting, 0).to("cpu")
            try:
                try_routing(model, cell.options.IMAGE[0], setting.house.path.parent)
            except RoutingError as error:
                raise RoutingError(f"{setting.house.path}: variant {cell.variant}: {error}") from error


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
                f"{path} is of another training than manifest.json beside it; bring the weights from where that was "
                "made, or remove both files to train the run again."
            )


def _asked(cell: Cell) -> str:
    """Digest of all that a cell asks of the data. Seeds draw other digits and pairs, but not another number of them."""
    options = cell.options
    return digest_of(
        [cell.task, cell.spec.train_on, cell.held_out, options.training_options(), options.evaluation_options()]
    )
