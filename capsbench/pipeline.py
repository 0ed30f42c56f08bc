"""What the Snakefile asks: which data, which cells, which files. It takes back promises that no longer hold.

A cell's spec files hold the digests that decide whether its training or evaluation is up to date; they are rewritten
only when their content changes. `trained.json`, `evaluated.json` and `reported.json` are the promises of finished jobs.
Whenever the Snakefile is read, a promise that manifests, metrics or drawn files do not keep is removed: then Snakemake
runs the job, and the job asks the manifests and does what is missing. Modification times are never believed alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capsbench.data.affnist_place import measured_on
from capsbench.data.raw import BADGES
from capsbench.data.source import DIGITS, DataSource, cache_folder, find_source, source_digest
from capsbench.errors import DataError, PlanError, ResourceError
from capsbench.evaluation.done import evaluation_digest, is_evaluated
from capsbench.files import read_json, write_json
from capsbench.locks import lock, writable
from capsbench.plan.done import (
    cost_digest,
    evaluation_source,
    is_done,
    is_measured,
    is_tuned,
    run_digests,
    tuning_digest,
)
from capsbench.plan.load import config_folder
from capsbench.plan.runs import Cell, House
from capsbench.provenance import PACKAGE, digest_of, digest_of_file
from capsbench.provenance import source_digest as digest_of_source

STAND_IN = "CAPSBENCH_STAND_IN"  # set: this process tree has found that MNIST cannot be had; the value says why (or 1)


# ---- the plan and its data -----------------------------------------------------------------------------------------


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


def open_results(path: str | Path) -> tuple[House, DataSource]:
    """A checked plan and the data that its results are of, for who reads results alone: no mirror is asked for MNIST.

    Where digits may stand in for MNIST, that of the two folders is taken which is there.

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
        if house.folder.is_dir() and not digits.folder.is_dir():
            return _checked(house), published
        if digits.folder.is_dir() and not house.folder.is_dir():
            return _checked(digits), find_source(DIGITS)
    try:
        return open_house(path, download=False)
    except DataError:
        if os.environ.get("CAPSBENCH_DATA") or plan.data_folder:
            raise
        return _checked(house), published


def _checked(house: House) -> House:
    """A plan whose results' folder is nobody else's. Raises PlanError where another plan's results lie there.

    Whose they are is in plan.json, and before there is a report in what Snakemake's jobs depend on. A plan that was
    moved is still itself, and so is a copy that asks for the same.
    """
    for name in ("plan.json", "cells/report.json"):
        try:
            stored = read_json(house.folder / name)
            stored = stored.get("plan", stored)
            other, digest = Path(stored["file"]), stored["digest"]
            is_another = other.is_file() and not other.samefile(house.path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if is_another and digest != house.digest:
            raise PlanError(
                f"{house.path}: {house.folder} holds the results of {other}, which this plan would replace; give it a "
                "`name:` of its own, or name another place with CAPSBENCH_RESULTS."
            )
        break
    return house


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


def dataset_record(source: DataSource) -> dict[str, str]:
    """The data as manifests and plan.json name them."""
    return {"name": source.dataset, "badge": source.badge, "digest": source_digest(source)}


def finished(house: House, cell: Cell, seed: int, data: str) -> dict[str, Any] | None:
    """The manifest of a run that is done with this plan, source and data (its digest); None where it is not."""
    digest = run_digests(house, cell, seed, data, measured_on(house, cell))["run"]
    return is_done(house.run_folder(cell, seed), digest)


def is_over(house: House, cell: Cell, seed: int, manifest: dict[str, Any]) -> bool:
    """Whether a run that is done has its metrics too; a failed one has none to have."""
    digest = evaluation_digest(cell, manifest)
    return manifest["status"] == "failed" or is_evaluated(house.run_folder(cell, seed), cell, digest)


# ---- the plan as files ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pipeline:
    """The plan as files."""

    house: House
    source: DataSource

    @classmethod
    def from_snakemake(cls, configfiles: Sequence[str | Path], overrides: Mapping[str, Any], main: bool) -> Pipeline:
        """The pipeline of the one plan that Snakemake was given, config/quick.yaml without one.

        The plan's file is read here and nowhere else: Snakemake's own merged config is never looked at.

        Args:
            configfiles: what stood behind --configfile; overrides: behind --config, which is refused.
            main: False in a job's own parse (on a cluster's node, say): then nothing is downloaded or written.

        Raises:
            PlanError, DataError. ResourceError: the results folder cannot be written to.
        """
        if len(configfiles) > 1:
            raise PlanError(
                f"Give one plan, not {len(configfiles)}: plans replace each other whole, they do not merge."
            )
        path = _shown(Path(configfiles[0]) if configfiles else config_folder() / "quick.yaml")
        if overrides:
            raise PlanError(
                f"--config {next(iter(overrides))}=... would change the plan unseen; write it into a copy of {path}."
            )
        pipeline = cls(*(open_house_without_torch(path) if main else open_house(path, download=False)))
        if main:
            with writable(pipeline.house.folder):
                pipeline.bring_up_to_date()
        return pipeline

    def specs(self, cell: Cell) -> Path:
        """The folder of a cell's spec files."""
        return self.house.folder / "cells" / cell.task / cell.folder_name

    def bring_up_to_date(self) -> None:
        """Write the spec files that say something else than before; remove the promises that are not kept."""
        data = dataset_record(self.source)
        folder = self.house.folder
        _write_if_changed(folder / "cells" / "data.json", data)
        _write_if_changed(
            folder / "cells" / "report.json",
            {"source": report_source(), "plan": described(self.house, data, promised=True)},
        )
        if self.house.plan.cost is not None:
            cost = cost_digest(self.house)
            _write_if_changed(folder / "cells" / "cost-spec.json", {"digest": cost})
            if not is_measured(folder, cost):
                (folder / "cells" / "measured.json").unlink(missing_ok=True)
        for cell in self.house.cells:
            specs = self.specs(cell)
            # Not which affNIST: it may arrive while jobs run, and what was made of another is found by its manifest.
            is_tuned_row = cell.tuned is not None
            promised = {
                str(seed): run_digests(self.house, cell, seed, data["digest"], promised=is_tuned_row)["run"]
                for seed in cell.seeds
            }
            _write_if_changed(specs / "train-spec.json", {"runs": promised})
            evaluation = {"options": cell.options.evaluation_options(), "source": evaluation_source(cell)}
            _write_if_changed(specs / "evaluate-spec.json", evaluation)
            if cell.tuned is not None:
                self._bring_tuning_up_to_date(cell, data["digest"])
            manifests = {
                seed: None if cell.waits else finished(self.house, cell, seed, data["digest"]) for seed in cell.seeds
            }
            if None in manifests.values():
                (specs / "trained.json").unlink(missing_ok=True)
            if not all(m and is_over(self.house, cell, seed, m) for seed, m in manifests.items()):
                (specs / "evaluated.json").unlink(missing_ok=True)
        if not _report_is_kept(folder):
            (folder / "cells" / "reported.json").unlink(missing_ok=True)

    def _bring_tuning_up_to_date(self, cell: Cell, data: str) -> None:
        """The spec of a tuned row's trials; its promise is taken back where the stored choice is not theirs."""
        digest = tuning_digest(self.house, cell, data)
        _write_if_changed(self.specs(cell) / "tune-spec.json", {"trials": digest})
        if not is_tuned(self.house, cell, digest):
            (self.specs(cell) / "tuned.json").unlink(missing_ok=True)
            # the numbers are still there, and Snakemake makes nothing that no missing or older file asks for
            (self.house.folder / "cells" / "reported.json").unlink(missing_ok=True)

    def begin(self) -> None:
        """Before the first job: nobody else may work on these results while this process lives.

        Raises ResourceError if somebody does.
        """
        with writable(self.house.folder):
            ours = lock(self.house.folder)
        if ours is None:
            raise ResourceError(
                f"Another Snakemake is at work on {self.house.folder}; wait for it, or stop it and say this again."
            )


def described(house: House, data: dict[str, str], promised: bool = False) -> dict[str, Any]:
    """plan.json: the plan, and the digest that its cost.json must have (null where the plan wants none).

    `promised`: as it is known before any work, without what tuning is still to choose.
    """
    return {**house.describe(data, promised), "cost": cost_digest(house) if house.plan.cost is not None else None}


def report_source() -> str:
    """Digest of what decides how results are shown: the report's code, templates, published figures, claims."""
    templates = sorted((PACKAGE / "report" / "templates").iterdir())
    words = [*templates, config_folder() / "published.yaml", config_folder() / "claims.yaml"]
    return digest_of(
        [digest_of_source(["capsbench.report"]), {path.name: digest_of_file(path) for path in words if path.is_file()}]
    )


def numbers_digest(folder: Path) -> str:
    """Digest of every manifest and metrics.json in a results folder, and of cost.json: the numbers of its report."""
    total = hashlib.sha256()
    for pattern in ("*/*/*/manifest.json", "*/*/*/*/metrics.json"):
        for path in sorted((folder / "runs").glob(pattern)):
            total.update(f"{path.relative_to(folder).as_posix()} {_digest_if_readable(path)}\n".encode())
    if (folder / "cost.json").is_file():
        total.update(f"cost.json {_digest_if_readable(folder / 'cost.json')}\n".encode())
    return total.hexdigest()


def _digest_if_readable(path: Path) -> str:
    """A file that cannot be read is left out of the report, which names it: no reason to draw none."""
    try:
        return digest_of_file(path)
    except OSError:
        return "unreadable"


def _report_is_kept(folder: Path) -> bool:
    """Whether every file that the last report wrote is there and shows the numbers that are there."""
    try:
        promise = read_json(folder / "cells" / "reported.json")
        return promise["numbers"] == numbers_digest(folder) and all((folder / f).is_file() for f in promise["files"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def _shown(path: Path) -> Path:
    """A path as a user would say it: relative where it lies below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _write_if_changed(path: Path, value: Any) -> None:
    """Write JSON if the file says something else."""
    try:
        same = json.dumps(read_json(path), sort_keys=True) == json.dumps(value, sort_keys=True)
    except (FileNotFoundError, ValueError):
        same = False
    if not same:
        write_json(path, value)
