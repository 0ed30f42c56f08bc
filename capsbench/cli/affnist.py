"""Which affNIST a plan is tested on: the official files, downloaded if the plan says so, or the synthetic set."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from capsbench.data.affnist_place import FOLDER, SYNTHETIC, files_digest, official_path
from capsbench.data.source import DataSource, cache_folder
from capsbench.errors import DataError, counted
from capsbench.pipeline import dataset_record
from capsbench.plan import Cell, House
from capsbench.plan.done import is_done, run_digests
from capsbench.provenance import is_packed


def say_affnist(console: Console, house: House, source: DataSource, cells: Iterable[Cell]) -> None:
    """Print which affNIST is used where `cells` have the task: before training, since it is part of a run's digest."""
    if any(cell.task == "affnist" for cell in cells):
        console.print(find_affnist(house, source, asked=False), markup=False)


def find_affnist(house: House, source: DataSource, *, asked: bool) -> str:
    """Look for the official files, download them if the plan says `download_official`, and say what will be used.

    A pack (`capsbench pack`) downloads none: it is for machines without a network. Nor is anything downloaded where
    runs measured on the synthetic set are finished (a pack's, say), unless that was `asked` for by name (`capsbench
    data`): the files would make every one of them stale. Official files are read once, with the test digits of
    `source`: what is said of them holds when they are needed.

    Raises:
        DataError: they are damaged, changed, or not what the plan asks for. ResourceError: the download cannot be
            written.
    """
    options = house.plan.tasks.affnist
    assert options is not None  # asked only of plans with the task
    if house.dataset != "mnist":
        return f"affNIST: affnist-synth, made from {house.dataset}."
    path, others = official_path(house.plan.data_folder), _measured_on_another(house, source)
    reason = "no official files were found, and the plan does not set download_official"
    if path is None and options.download_official and is_packed():
        reason = "a pack neither contains the official files nor downloads them"
    elif path is None and options.download_official and others and not asked:
        reason = (
            f"with the official files, {others} measured on affnist-synth would be trained again; `capsbench data "
            f"{house.path}` downloads them"
        )
    elif path is None and options.download_official:
        from capsbench.data.affnist_source import download_affnist

        try:
            path = download_affnist(cache_folder() / FOLDER)
        except DataError as error:
            reason = f"{str(error).rstrip('.')}; `capsbench data {house.path}` tries again"
    if path is None:
        return f"affNIST: affnist-synth, not the paper's test set ({reason})."
    _read_whole(house, source)
    remade = (
        f" {others} measured on affnist-synth will be trained again, since their test set changes; to keep them, "
        "move the official files elsewhere."
        if others
        else ""
    )
    return f"affNIST: the official files, {path} (SHA-256 {files_digest(path)}).{remade}"


def _measured_on_another(house: House, source: DataSource) -> str:
    """`5 finished runs` that the official files, now that they are there, make stale; empty without any."""
    data = dataset_record(source)["digest"]
    runs = [(cell, seed) for cell in house.cells if cell.task == "affnist" and not cell.waits for seed in cell.seeds]
    found = sum(
        is_done(house.run_folder(cell, seed), run_digests(house, cell, seed, data, SYNTHETIC)) is not None
        for cell, seed in runs
    )
    return counted(found, "finished run") if found else ""


def _read_whole(house: House, source: DataSource) -> None:
    """Read the official files as training will. Raises DataError."""
    from capsbench.data.affnist_sets import affnist_set
    from capsbench.data.digits import load_digits

    options = house.plan.tasks.affnist
    assert options is not None
    affnist_set(
        load_digits(source).test,
        dataset=source.dataset,
        transforms=options.transforms,
        count=options.test_images,
        folder=house.plan.data_folder,
    )
