"""What the Snakefile asks: which data, which cells, which files. It writes the inputs that make Snakemake's jobs stale.

A cell's spec files hold the digests that decide whether its training or evaluation is up to date. They are rewritten
only when their content changes, or touched when a cell that Snakemake believes done is not: then Snakemake runs the
job, and the job asks the manifests and does what is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capsbench.data.source import DataSource, find_source, source_digest
from capsbench.errors import PlanError
from capsbench.files import write_json
from capsbench.plan.done import evaluation_source, is_done, run_digests
from capsbench.plan.load import config_folder, read_yaml
from capsbench.plan.runs import Cell, House
from capsbench.provenance import PACKAGE, digest_of, digest_of_file
from capsbench.provenance import source_digest as digest_of_source

STAND_IN = "CAPSBENCH_STAND_IN"  # 1: this process tree has found that MNIST cannot be had; ask no mirror again


def open_house(path: str | Path, *, download: bool = True) -> tuple[House, DataSource]:
    """A checked plan and where its data are; `download`: whether the mirrors may be asked.

    Raises:
        PlanError: the plan is wrong. DataError: its data are not there and nothing may stand in.
    """
    house = House.load(path)
    decided = house.plan.uci_digits and os.environ.get(STAND_IN) == "1"
    source = find_source(
        house.plan.dataset,
        house.plan.data_folder,
        fallback=house.plan.uci_digits,
        download=download and not decided,
    )
    if source.dataset == "uci-digits":
        os.environ[STAND_IN] = "1"  # jobs inherit it: all of them work on the same data
    return (House.load(path, source.dataset) if source.dataset != house.dataset else house), source


def dataset_record(source: DataSource) -> dict[str, str]:
    """The data as manifests and plan.json name them."""
    return {"name": source.dataset, "badge": source.badge, "digest": source_digest(source)}


@dataclass(frozen=True)
class Pipeline:
    """The plan as files."""

    house: House
    source: DataSource

    @classmethod
    def from_snakemake(cls, configfiles: Sequence[str | Path], config: Mapping[str, Any], main: bool) -> Pipeline:
        """The pipeline of the one plan that Snakemake was given, config/quick.yaml without one.

        Args:
            configfiles: what stood behind --configfile; config: Snakemake's merged config, to refuse --config.
            main: False in a job's own parse (on a cluster's node, say): then nothing is downloaded or written.

        Raises:
            PlanError, DataError.
        """
        if len(configfiles) > 1:
            raise PlanError(
                f"Give one plan, not {len(configfiles)}: plans replace each other whole, they do not merge."
            )
        path = Path(configfiles[0]) if configfiles else Path("config/quick.yaml")
        house, source = open_house(path, download=main)
        if configfiles and (foreign := sorted(set(config) - set(read_yaml(path)))):
            raise PlanError(f"--config {foreign[0]}=... would change the plan unseen; write it into a copy of {path}.")
        if not configfiles and config:
            raise PlanError(
                f"--config {sorted(config)[0]}=... would change the plan unseen; write it into a copy of {path}."
            )
        pipeline = cls(house, source)
        if main:
            pipeline.write_specs()
        return pipeline

    def specs(self, cell: Cell) -> Path:
        """The folder of a cell's spec files."""
        return self.house.folder / "cells" / cell.task / cell.folder_name

    def write_specs(self) -> None:
        """Bring every spec file up to date; touch those of cells whose manifests say they are not done."""
        data = dataset_record(self.source)
        _write_if_changed(self.house.folder / "cells" / "data.json", data, stale=False)
        report = {"source": report_source(), "plan": self.house.describe(data)}
        _write_if_changed(self.house.folder / "cells" / "report.json", report, stale=False)
        for cell in self.house.cells:
            folder = self.specs(cell)
            runs = {str(seed): run_digests(self.house, cell, seed, data["digest"])["run"] for seed in cell.seeds}
            done = all(is_done(self.house.run_folder(cell, int(seed)), digest) for seed, digest in runs.items())
            stale = not done and (folder / "trained.json").exists()
            _write_if_changed(folder / "train-spec.json", {"runs": runs}, stale)
            evaluation = {"options": cell.options.evaluation_options(), "source": evaluation_source(cell)}
            _write_if_changed(folder / "evaluate-spec.json", evaluation, stale=False)


def report_source() -> str:
    """Digest of what decides how results are shown: the report's code, its templates, the published figures."""
    templates = sorted((PACKAGE / "report" / "templates").iterdir())
    words = [*templates, config_folder() / "published.yaml"]
    return digest_of(
        [digest_of_source(["capsbench.report"]), {path.name: digest_of_file(path) for path in words if path.is_file()}]
    )


def _write_if_changed(path: Path, value: Any, stale: bool) -> None:
    """Write JSON if the file says something else; a stale one gets a new modification time."""
    text = json.dumps(value, sort_keys=True)
    try:
        same = json.dumps(json.loads(path.read_text(encoding="utf-8")), sort_keys=True) == text
    except (FileNotFoundError, ValueError):
        same = False
    if not same:
        write_json(path, value)
    elif stale:
        os.utime(path)
