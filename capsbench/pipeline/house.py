"""A checked plan and where its data are. What may stand in for MNIST is decided here, once for a tree of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from capsbench.data.raw import BADGES
from capsbench.data.source import DIGITS, DataSource, cache_folder, find_source, source_digest
from capsbench.errors import DataError, PlanError
from capsbench.files import read_json, read_record, write_json
from capsbench.plan.runs import House
from capsbench.provenance import PACKAGE

WHOSE = ("plan.json", "cells/report.json")  # which plan's a results folder is: of the report, and of Snakemake's jobs
PLACE = ".plan"  # in a results folder: where it and its plan lie on this machine, which nothing that travels says
STAND_IN = "CAPSBENCH_STAND_IN"  # set: this process tree has found that MNIST cannot be had; the value says why (or 1)


def open_house(path: str | Path, *, download: bool = True) -> tuple[House, DataSource]:
    """A checked plan and where its data are; `download`: whether the mirrors may be asked.

    Raises:
        PlanError: the plan is wrong, or another one's results lie where its own would.
        DataError: its data are not there and nothing may stand in.
    """
    house = House.load(path)
    decided = os.environ.get(STAND_IN) if house.plan.uci_digits else None
    source = find_source(
        house.plan.dataset,
        house.plan.data_folder,
        fallback=house.plan.uci_digits,
        download=download and not decided,
    )
    if source.dataset == house.dataset:
        return _checked(house), source
    notice = decided if decided and decided != "1" else str(source.notice)
    os.environ[STAND_IN] = notice  # jobs inherit it: no mirror is asked again, and the first answer is what they say
    return _checked(House.load(path, source.dataset)), replace(source, notice=notice)


def open_results(path: str | Path, dataset: str | None = None) -> tuple[House, DataSource]:
    """A checked plan and the data that its results are of, for who reads results alone: no mirror is asked for MNIST.

    Where digits may stand in for MNIST, that of the two folders is taken which is there, or that of `dataset`, the data
    of results that come from elsewhere.

    Raises:
        PlanError: as open_house. DataError: a folder that is named for its data does not hold them.
    """
    house = House.load(path)
    plan = house.plan
    if plan.dataset != "mnist":
        return open_house(path)  # their checksums are read off the files
    published = DataSource("mnist", cache_folder(), BADGES["mnist"], "download")
    if plan.uci_digits:
        digits = House.load(path, DIGITS)
        are_there = {of.dataset: of.folder.is_dir() for of in (house, digits)}
        if dataset in are_there:
            are_there = {name: name == dataset for name in are_there}
        if are_there[house.dataset] and not are_there[DIGITS]:
            return _checked(house), published
        if are_there[DIGITS] and not are_there[house.dataset]:
            return _checked(digits), find_source(DIGITS)
    try:
        return open_house(path, download=False)
    except DataError:
        if os.environ.get("CAPSBENCH_DATA") or plan.data_folder:
            raise
        return _checked(house), published


def open_house_without_torch(path: Path) -> tuple[House, DataSource]:
    """As open_house, for the Snakefile: the downloader imports torch, so it gets a process of its own.

    Where nothing may stand in for MNIST the paths do not depend on the download: then a dry run needs no data, and the
    job `data` downloads them or says why it cannot.
    """
    house = House.load(path)
    plan = house.plan
    if os.environ.get("CAPSBENCH_DATA") or plan.data_folder or (plan.uci_digits and os.environ.get(STAND_IN)):
        return open_house(path, download=False)
    try:
        return _checked(house), find_source(plan.dataset, download=False)
    except DataError:
        if plan.dataset == "mnist" and not plan.uci_digits:
            return _checked(house), DataSource("mnist", cache_folder(), BADGES["mnist"], "download")
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "data.json"
        command = [sys.executable, "-m", "capsbench", "data", str(path), "--done", str(answer)]
        paths = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])  # this very clone
        environment = {**os.environ, "PYTHONPATH": paths}
        asked = subprocess.run(
            command, env=environment, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
        )
        if asked.returncode:
            *_, last = asked.stderr.strip().splitlines() or [""]  # above it, what torch and the download's bar said
            said = last.rpartition("\r")[2].removeprefix("capsbench: ")
            raise DataError(said or f"Looking for the data of {path} ended with exit code {asked.returncode}.")
        if (notice := read_json(answer)["notice"]) is not None:
            os.environ[STAND_IN] = notice
    return open_house(path, download=False)


def _checked(house: House) -> House:
    """A plan whose results' folder is nobody else's. Raises as `refuse_another_s`."""
    refuse_another_s(house)
    return house


def refuse_another_s(house: House) -> None:
    """Raise PlanError where another plan's results lie in the folder of this one's.

    Whose they are is in plan.json, and before there is a report in what Snakemake's jobs depend on. Both name the
    plan as it was named then, which from another folder is another file or none; where it lies is in PLACE, as long as
    the results lie where they did. A plan that was moved is still itself, and so is a copy that asks for the same.
    """
    place = read_record(house.folder / PLACE)
    begun_by = place.get("plan") if place.get("folder") == str(house.folder.resolve()) else None
    for name in WHOSE:
        try:
            stored = read_json(house.folder / name)
            stored = stored.get("plan", stored)
            other, digest = Path(begun_by or stored["file"]), stored["digest"]
            is_another = other.is_file() and not other.samefile(house.path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if is_another and digest != house.digest:
            raise PlanError(
                f"{house.path}: {house.folder} holds the results of {other}, which this plan would replace; give it a "
                "`name:` of its own, or set CAPSBENCH_RESULTS to another place."
            )
        break


def note_place(house: House) -> None:
    """Write where a plan and its results lie, for `refuse_another_s`. Raises OSError."""
    said = {"plan": str(house.path.resolve()), "folder": str(house.folder.resolve())}
    if read_record(house.folder / PLACE) != said:
        write_json(house.folder / PLACE, said)


def dataset_record(source: DataSource) -> dict[str, str]:
    """The data as manifests and plan.json name them."""
    return {"name": source.dataset, "badge": source.badge, "digest": source_digest(source)}
