"""Training and evaluation as commands: they join the stages and talk to the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from capsbench.cli.again import say_what_is_made_again
from capsbench.cli.held import held_device
from capsbench.cli.inputs import (
    check_inputs,
    check_weights,
    import_all,
    in_words_of_its_routing,
    in_words_of_the_plan,
    refuse_without_weights,
    try_routings,
)
from capsbench.cli.precision import precision_of
from capsbench.cli.progress import progress_bars, show_progress
from capsbench.data.source import DataSource
from capsbench.errors import CapsbenchError, DataError, ResourceError, counted
from capsbench.evaluation.done import evaluation_digest, is_evaluated
from capsbench.files import try_to_make, write_json
from capsbench.locks import sole, writable
from capsbench.pipeline import begin_results, dataset_record, finished, with_current_choice
from capsbench.plan import Cell, House
from capsbench.training.what_to_lower import says_what_to_lower

if TYPE_CHECKING:
    import torch

    from capsbench.data.digits import Digits
    from capsbench.training.run import Setting

Trained = tuple[Cell, int, dict[str, Any]]  # cell, seed, manifest


def _refuse_untuned(house: House, cells: list[Cell], data: str) -> None:
    """Raise CapsbenchError where a row's learning rate is still to be chosen, or was by other trials than today's."""
    waiting = next((cell for cell in cells if with_current_choice(house, cell, data).waits), None)
    if waiting is not None:
        why = (
            "has no learning rate yet"
            if waiting.waits
            else "has a learning rate that was chosen with other source code or other data"
        )
        raise CapsbenchError(
            f"{waiting.label} {why}; run `capsbench tune {house.path} --task {waiting.task} "
            f"--variant {waiting.folder_name}` first."
        )


def _trained_and_not(house: House, cells: list[Cell], data: str) -> tuple[list[Trained], list[tuple[Cell, int]]]:
    """The runs of cells: those that are done with these data (a digest), and those that are not."""
    manifests = [(cell, seed, finished(house, cell, seed, data)) for cell in cells for seed in cell.seeds]
    trained = [(cell, seed, manifest) for cell, seed, manifest in manifests if manifest is not None]
    return trained, [(cell, seed) for cell, seed, manifest in manifests if manifest is None]


def train_cells(
    console: Console,
    house: House,
    source: DataSource,
    cells: list[Cell],
    device: str | None,
    threads: int,
    *,
    tensorboard: bool = False,
    done: Path | None = None,
    evaluate: bool = False,
) -> bool:
    """Train what is not done of `cells`, cell by cell, seed by seed; then say so in `done`.

    Returns whether every loss was finite. A cell may have some of its row's seeds alone. `evaluate`: what has no
    metrics then is evaluated before, by this process, which has the data and torch in memory.
    """
    dataset = dataset_record(source)
    _refuse_untuned(house, cells, dataset["digest"])
    trained, waiting = _trained_and_not(house, cells, dataset["digest"])
    for cell, seed, manifest in trained:
        unwritten = ", so no TensorBoard events were written" if tensorboard else ""
        console.print(f"{cell.label} seed {seed}: {manifest['status']} already{unwritten}")
    say_what_is_made_again(console, house, waiting, dataset["digest"])
    if waiting:
        with writable(house.folder):  # known before anything is imported or loaded
            try_to_make(house.folder / "plan.json")
        already = trained if evaluate else None
        trained = trained + _train(console, house, source, dataset, waiting, device, threads, tensorboard, already)
    elif evaluate:
        _evaluate_missing(console, house, source, trained, device, threads)
    for _, _, manifest in trained:
        if manifest["status"] == "failed":
            run = manifest["run"]
            failed = f"{run['task']}/{run['variant']} seed {run['seed']} failed: {manifest['reason']}"
            console.print(failed, style="bold red")
    if done:
        write_json(done, [{**m["run"], "status": m["status"], "digest": m["digest"]} for _, _, m in trained])
    return all(manifest["status"] != "failed" for _, _, manifest in trained)


def _train(
    console: Console,
    house: House,
    source: DataSource,
    dataset: dict[str, str],
    waiting: list[tuple[Cell, int]],
    device: str | None,
    threads: int,
    tensorboard: bool,
    evaluate: list[Trained] | None,
) -> list[Trained]:
    """Train what waits; where `evaluate` names what was trained before, evaluate the one and the other."""
    from capsbench.data.digits import load_digits
    from capsbench.training import device as devices
    from capsbench.training.run import Setting

    import_all([*(cell for cell, _ in waiting), *(cell for cell, *_ in evaluate or ())])
    manifests: list[dict[str, Any]] = []
    with held_device(console, device, threads) as chosen:
        digits = load_digits(source, chosen)

        def setting_of(cell: Cell) -> Setting:
            row = house.cell(cell.task, cell.variant)  # with all of its seeds, which its manifests speak of
            return Setting(house, row, digits, dataset, chosen, threads, say=console.print)

        try_routings(console, house, [cell for cell, _ in waiting])
        check_inputs(waiting, setting_of)
        with writable(house.folder):
            begin_results(house, dataset)
        for _, runs in itertools.groupby(waiting, lambda run: run[0].label):
            cells, seeds = zip(*runs, strict=True)
            with in_words_of_the_plan(house, cells[0]), in_words_of_its_routing(house, cells[0]):
                manifests += _train_cell(console, setting_of(cells[0]), seeds, tensorboard)
        trained = [(cell, seed, of) for (cell, seed), of in zip(waiting, manifests, strict=True)]
        if evaluate is not None:
            devices.set_up(threads)  # a run that went on from a checkpoint kept the threads it began with
            _evaluate(console, house, _not_evaluated(console, house, evaluate + trained), digits, chosen)
    return trained


def _train_cell(console: Console, setting: Setting, seeds: tuple[int, ...], tensorboard: bool) -> list[dict[str, Any]]:
    """Train seeds of one cell; their manifests, in the order of the seeds."""
    import torch

    from capsbench.training.tensorboard import event_writer
    from capsbench.training.together import most_at_once, train_seeds

    cell, house = setting.cell, setting.house
    resolved = precision_of(setting, seeds[0])
    manifests = {}
    with ExitStack() as stack:
        at_once = most_at_once(len(seeds), setting.device)
        training: list[int] = []
        # A terminal shows one live display at a time: the seeds share it.
        bars = stack.enter_context(progress_bars(console)) if at_once > 1 and console.is_terminal else None

        @contextmanager
        def held(seed: int) -> Iterator[Callable[[int, int, float | None, float], None]]:
            folder = house.run_folder(cell, seed)
            if setting.device.type == "cuda":  # a run's peak is its own, not the run's or evaluation's before it
                if not training:  # else torch counts cuBLAS's work space of every stream that was recorded on
                    torch._C._cuda_clearCublasWorkspaces()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats(setting.device)
            with (
                event_writer(folder if tensorboard else None) as write,
                show_progress(console, cell, seed, bars) as show,
            ):

                def both(step: int, steps: int, loss: float | None, speed: float) -> None:
                    show(step, steps, loss, speed)
                    write(step, loss, speed)

                with sole(folder, console.print):
                    _refuse_unreadable(folder)
                    training.append(seed)
                    try:
                        yield both
                    finally:
                        training.remove(seed)

        for seed, manifest in train_seeds(setting, seeds, held, resolved):
            manifests[seed] = manifest
            console.print(
                f"{cell.label} seed {seed}: {manifest['status']} after {manifest['steps']:,} steps "
                f"in {manifest['seconds']:.0f} s "
                f"({manifest['resolved']['precision']}, {manifest['resolved']['device']})"
            )
    return [manifests[seed] for seed in seeds]


def _refuse_unreadable(folder: Path) -> None:
    """Raise ResourceError where a checkpoint is there that may not be read: it would be passed over as if it were not.

    safetensors says of every file that it cannot open that there is none.
    """
    for path in sorted((folder / "checkpoint").glob("*.safetensors")):
        try:
            path.open("rb").close()
        except OSError as error:
            raise ResourceError(
                f"{path} cannot be read: {error.strerror}; make it readable, or remove it to start the run over."
            ) from None


def evaluate_cells(
    console: Console,
    house: House,
    source: DataSource,
    cells: list[Cell],
    device: str | None,
    threads: int,
    done: Path | None,
) -> None:
    """Evaluate what is trained and not yet evaluated of `cells`; then say so in `done`.

    Runs that are not trained are left out, said aloud.

    Raises CapsbenchError where none is trained, and where one is not and `done` would promise them all.
    """
    data = dataset_record(source)["digest"]
    trained, untrained = _trained_and_not(house, cells, data)
    if untrained and (done or not trained):
        _refuse_untuned(house, cells, data)
        cell, seed = untrained[0]
        raise CapsbenchError(
            f"{cell.label} seed {seed} is not trained with this plan, source and data; "
            f"run `capsbench train {house.path} --task {cell.task} --variant {cell.folder_name}` first."
        )
    if untrained:
        labels = ", ".join(dict.fromkeys(cell.label for cell, _ in untrained))
        what = f"{counted(len(untrained), 'run')} not trained with this plan, source and data"
        console.print(f"left out: {what}: {labels}", markup=False)
    _evaluate_missing(console, house, source, trained, device, threads)
    if done:
        write_json(done, [{**manifest["run"], "status": manifest["status"]} for _, _, manifest in trained])


def _evaluate_missing(
    console: Console,
    house: House,
    source: DataSource,
    trained: list[Trained],
    device: str | None,
    threads: int,
) -> None:
    """Evaluate what of `trained` is not."""
    if todo := _not_evaluated(console, house, trained):
        from capsbench.data.digits import load_digits

        import_all([cell for cell, *_ in todo])
        with held_device(console, device, threads) as chosen:
            _evaluate(console, house, todo, load_digits(source, chosen), chosen)


def _not_evaluated(
    console: Console, house: House, trained: list[Trained]
) -> list[tuple[Cell, int, dict[str, Any], str]]:
    """Those of `trained` that lack metrics of this evaluation, with its digest; a failed run has none to have."""
    todo = []
    for cell, seed, manifest in trained:
        if manifest["status"] != "done":
            continue
        if is_evaluated(house.run_folder(cell, seed), cell, manifest):
            console.print(f"{cell.label} seed {seed}: evaluated already")
        else:
            todo.append((cell, seed, manifest, evaluation_digest(cell, manifest)))
    return todo


def _evaluate(
    console: Console,
    house: House,
    todo: list[tuple[Cell, int, dict[str, Any], str]],
    digits: Digits,
    device: torch.device,
) -> None:
    from capsbench.evaluation.finite import refuse_not_finite
    from capsbench.evaluation.parts import forget
    from capsbench.evaluation.run import evaluate_run

    remedy = "free the device, or evaluate on another one with --device; what is trained is kept"
    unfit: list[str] = []
    for cell, seed, manifest, digest in todo:
        where = f"{cell.label} seed {seed}: evaluation on {device}"
        folder = house.run_folder(cell, seed)
        with (
            in_words_of_its_routing(house, cell),
            sole(folder, console.print),
            says_what_to_lower(where, remedy),
        ):
            if is_evaluated(folder, cell, manifest):  # by the process that this one waited for
                console.print(f"{cell.label} seed {seed}: evaluated already")
                continue
            try:
                refuse_without_weights(folder)
                check_weights(folder, manifest)
                with refuse_not_finite(str(folder)):
                    conditions = evaluate_run(house, cell, seed, manifest, digest, digits, device)
            except DataError as error:  # of this run's files: the others have theirs
                unfit.append(str(error))
                continue
            forget(folder)
        for condition in conditions:
            console.print(f"{cell.label} seed {seed}, {condition.summary()}")
    for said in unfit[1:]:
        console.print(said, style="bold red", markup=False)
    if unfit:
        raise DataError(unfit[0])
