"""The plan as the files that the Snakefile asks for. It takes back promises that no longer hold.

A cell's spec files hold the digests that decide whether its training or evaluation is up to date; they are rewritten
only when their content changes. `trained.json`, `evaluated.json`, `tuned.json`, `measured.json` and `reported.json` are
the promises of finished jobs. Whenever the Snakefile is read, a promise that manifests, metrics, drawn files or what
these are drawn from do not keep is removed: then Snakemake runs the job, and the job asks the manifests and does what
is missing. Modification times are never believed alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capsbench.data.source import DataSource
from capsbench.errors import PlanError, ResourceError
from capsbench.files import read_record, write_json
from capsbench.locks import DRAWING, READING, is_held, lock, sole, writable
from capsbench.pipeline.house import (
    dataset_record,
    note_place,
    open_house,
    open_house_without_torch,
    refuse_another_s,
)
from capsbench.pipeline.state import (
    described,
    finished,
    is_over,
    is_report_kept,
    report_source,
    with_current_choice,
)
from capsbench.plan.done import cost_digest, evaluation_source, is_measured, is_tuned, run_digests, tuning_digest
from capsbench.plan.load import config_folder
from capsbench.plan.runs import Cell, House


@dataclass(frozen=True)
class Pipeline:
    """The plan as files."""

    house: House
    source: DataSource
    is_another_s: bool = False  # another Snakemake was at work on these results when the plan was read

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
                f"Give one plan, not {len(configfiles)}: plans do not merge, one replaces the other entirely."
            )
        path = _shown(Path(configfiles[0]) if configfiles else config_folder() / "quick.yaml")
        if overrides:
            raise PlanError(
                f"--config {next(iter(overrides))}=... would change the plan unseen; write it into a copy of {path}."
            )
        pipeline = cls(*(open_house_without_torch(path) if main else open_house(path, download=False)))
        if any(brace in str(pipeline.house.folder) for brace in "{}"):
            raise PlanError(
                f"{pipeline.house.folder} has braces, which make a path a pattern to Snakemake; set CAPSBENCH_RESULTS "
                "to a folder without them."
            )
        if main:
            with writable(pipeline.house.folder):
                return pipeline.brought_up_to_date()
        return pipeline

    def specs(self, cell: Cell) -> Path:
        """The folder of a cell's spec files."""
        return self.house.folder / "cells" / cell.task / cell.folder_name

    def evaluated(self) -> list[Path]:
        """The promises of cells that the report waits for.

        A cell whose runs came from elsewhere (a clone, `capsbench bring`, `work`) has none. Where they are all
        over none is asked for: on a cluster it would cost two jobs that find nothing to do.
        """
        data = dataset_record(self.source)["digest"]
        promises = [(cell, self.specs(cell) / "evaluated.json") for cell in self.house.cells]
        return [
            path for cell, path in promises if path.is_file() or not self._is_over(cell, self._manifests(cell, data))
        ]

    def _manifests(self, cell: Cell, data: str) -> dict[int, dict[str, Any] | None]:
        """A cell's manifests by seed, None for a run not trained with these data (a digest) and today's choice."""
        row = with_current_choice(self.house, cell, data)
        return {seed: finished(self.house, row, seed, data) for seed in cell.seeds}

    def _is_over(self, cell: Cell, manifests: dict[int, dict[str, Any] | None]) -> bool:
        """Whether every run of a cell is trained and evaluated, or failed."""
        return all(m is not None and is_over(self.house, cell, seed, m) for seed, m in manifests.items())

    def brought_up_to_date(self) -> Pipeline:
        """`bring_up_to_date`, but where a Snakemake is at work, which must find the promises of its jobs at its end.

        A dry run shows what the files say then; `begin` refuses to work on them.
        """
        folder = self.house.folder
        try:
            reading = lock(folder, wait=True, name=READING)  # one after the other: each is done within seconds
        except OSError:  # results that may only be looked at: nobody works there
            self.bring_up_to_date()
            return self
        try:
            if is_held(folder):
                print(f"Another Snakemake is at work on {folder}: nothing is written there.", file=sys.stderr)
                return replace(self, is_another_s=True)
            refuse_another_s(self.house)  # which may have begun since this one looked
            note_place(self.house)
            self.bring_up_to_date()
        finally:
            if reading is not None:
                os.close(reading)
        return self

    def bring_up_to_date(self) -> None:
        """Write the spec files that say something else than before; remove the promises that are not kept."""
        data = dataset_record(self.source)
        folder = self.house.folder
        _take_out_of_the_future(folder / "cells")
        _write_if_changed(folder / "cells" / "data.json", data)
        _write_if_changed(
            folder / "cells" / "report.json",
            {"source": report_source(), "plan": described(self.house.promised, data)},
        )
        if self.house.plan.cost is not None:
            cost = cost_digest(self.house)
            _write_if_changed(folder / "cells" / "cost-spec.json", {"digest": cost})
            if not is_measured(folder, cost):
                (folder / "cells" / "measured.json").unlink(missing_ok=True)
        for cell, promised in zip(self.house.cells, self.house.promised.cells, strict=True):
            specs = self.specs(cell)
            # Not which affNIST: it may arrive while jobs run, and what was made of another is found by its manifest.
            runs = {str(seed): run_digests(self.house, promised, seed, data["digest"])["run"] for seed in cell.seeds}
            _write_if_changed(specs / "train-spec.json", {"runs": runs})
            evaluation = {"options": cell.options.evaluation_options(), "source": evaluation_source(cell)}
            _write_if_changed(specs / "evaluate-spec.json", evaluation)
            if cell.tuned is not None:
                self._bring_tuning_up_to_date(cell, data["digest"])
            manifests = self._manifests(cell, data["digest"])
            if None in manifests.values():
                (specs / "trained.json").unlink(missing_ok=True)
            if not self._is_over(cell, manifests):
                (specs / "evaluated.json").unlink(missing_ok=True)
                # or Snakemake would ask for none of it: it makes what is missing where something after it is to be made
                (folder / "cells" / "reported.json").unlink(missing_ok=True)
        if not is_report_kept(folder):
            (folder / "cells" / "reported.json").unlink(missing_ok=True)

    def _bring_tuning_up_to_date(self, cell: Cell, data: str) -> None:
        """The spec of a tuned row's trials; its promise is taken back where the stored choice is not theirs."""
        digest = tuning_digest(self.house, cell, data)
        _write_if_changed(self.specs(cell) / "tune-spec.json", {"trials": digest})
        if not is_tuned(cell, digest):
            (self.specs(cell) / "tuned.json").unlink(missing_ok=True)

    def begin(self) -> None:
        """Before the first job: nobody else may work on these results while this process lives.

        A report that a killed Snakemake left behind is waited for: this one removes the folder that it draws into
        before the job that could wait begins. Raises ResourceError if another Snakemake is at work.
        """
        with writable(self.house.folder):
            ours = None if self.is_another_s else lock(self.house.folder)
        if ours is None:
            raise ResourceError(
                f"Another Snakemake is at work on {self.house.folder}; wait for it, or stop it and try again."
            )
        with sole(self.house.folder, lambda said: print(said, file=sys.stderr, flush=True), DRAWING):
            pass


def _shown(path: Path) -> Path:
    """A path as a user would say it: relative where it lies below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _take_out_of_the_future(folder: Path) -> None:
    """Give promises and specs that a clock which was ahead has dated later than now the time of now.

    Whatever is made from one of them would be older than it, which Snakemake takes for a failure, whose output it
    removes: every report until that time has come. And what is promised would be newer than any edit.
    """
    now = time.time()
    for path in folder.rglob("*.json"):
        with contextlib.suppress(OSError):  # another user's, whose times only they may change: Snakemake says so then
            if path.stat().st_mtime > now:
                os.utime(path, (now, now))


def _write_if_changed(path: Path, value: dict[str, Any]) -> None:
    """Write JSON if the file says something else."""
    if json.dumps(read_record(path), sort_keys=True) != json.dumps(value, sort_keys=True):
        write_json(path, value)
