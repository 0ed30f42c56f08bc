"""What a results folder holds, once it is read: the runs that count, and the problems of those that do not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from capsbench.errors import printable
from capsbench.report.contract import Manifest, Metrics, Plan, RunKey
from capsbench.report.published import Published

if TYPE_CHECKING:
    from capsbench.report.verdicts import Judged

Kind = Literal[
    "failed",
    "not matched",
    "missing",
    "unreadable",
    "duplicated",
    "foreign",
    "undefined",
    "mixed",
    "outdated",
    "not drawn",
]
KINDS: dict[Kind, str] = {  # in the order of the report's list of problems
    "failed": "the loss was not finite: a result, counted as failed",
    "not matched": "never reliably reached the accuracy at which models are compared, or was above it when first "
    "measured: a result, counted as not matched",
    "unreadable": "a file is truncated or not in the format",
    "duplicated": "the same run is there twice",
    "foreign": "made with another plan, config or data set",
    "undefined": "the metric has no value for this run",
    "mixed": "in the means, but made with other versions, devices or settings than the runs beside it",
    "outdated": "in the means, but trained or scored with source code, or scored with options, other than today's",
    "missing": "in the plan, but not there yet",
    "not drawn": "a file beside the metrics cannot be read or contradicts them; figures, claims or intervals lack it",
}
IN_THE_MEANS: tuple[Kind, ...] = ("mixed", "outdated", "not drawn")  # problems that leave no run out
DAMAGED: tuple[Kind, ...] = ("unreadable", "duplicated", "not drawn")  # nobody planned for these: a command ends with 2
APART = ("attacked", "routing")  # conditions that are diagnostics: they have tables of their own
COLUMNS = ["task", "variant", "seed", "condition", "dataset", "badge", "metric", "unit", "value", "images"]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a run, and what came of it (KINDS). `file` is relative."""

    kind: Kind
    task: str
    variant: str | None
    seed: int | None
    condition: str | None
    file: str
    reason: str

    @property
    def name(self) -> str:
        """The run or condition that it is about, as one word."""
        parts = [self.task, self.variant, None if self.seed is None else f"seed-{self.seed}", self.condition]
        return "/".join(part for part in parts if part)

    def __str__(self) -> str:
        return printable(f"{self.name}: {self.kind}: {self.reason}")


@dataclass
class Run:
    """One run of the plan that ended, finished or failed, and its metrics per condition."""

    key: RunKey
    folder: Path
    manifest: Manifest
    metrics: dict[str, Metrics] = field(default_factory=dict)
    apart: dict[str, Metrics] = field(default_factory=dict)  # of the conditions APART

    @property
    def spec(self) -> dict[str, Any]:
        """The variant as it was trained, from the manifest's config; empty where that has none."""
        return self.manifest.config.get("variant") or {}

    @property
    def averaged_epochs(self) -> int | None:
        """Over the ends of how many epochs a figure of the two-digit transfer is the mean: no more than it trained."""
        asked = (self.manifest.config.get("task") or {}).get("last_epochs")
        epochs = (self.manifest.config.get("training") or {}).get("epochs")
        if not isinstance(asked, int) or not isinstance(epochs, int | float) or not epochs < asked:
            return asked if isinstance(asked, int) else None
        return max(1, math.ceil(max(epochs, 0)))

    @property
    def has_capsules(self) -> bool:
        """Whether classes are capsules, as vectors that a CNN's decoder reads are not."""
        model = str(self.spec.get("model"))
        if ":" in model:  # from outside: whatever it is called, its variant says so
            return bool(self.spec.get("capsules"))
        return "caps" in model or self.spec.get("head") == "capsules"

    @property
    def sees_squeezed_pairs(self) -> bool:
        """Whether its two digits were squeezed to one's size, by its manifest: for its model, or as its plan asks."""
        model, head = self.spec.get("model"), self.spec.get("head")
        any_size = model in ("two-digit", "resnet") or head == "average" or self.spec.get("any_size") is True
        of_one_size = model is not None and not any_size
        return of_one_size or bool((self.manifest.config.get("task") or {}).get("squeezed"))


@dataclass
class Results:
    """What a results folder holds.

    `frame` has one row per run x condition x metric (COLUMNS), only runs that count; `apart` has those of the
    conditions APART, which are diagnostics with a table of their own and no rows in their task's.
    """

    folder: Path
    plan: Plan
    runs: dict[RunKey, Run]  # every run with a manifest that belongs to the plan, failed ones too
    frame: pd.DataFrame
    problems: list[Problem]
    published: Published  # what the papers report of these data
    apart: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS))
    judged: Judged | None = None  # the claims, once they are judged

    def problem(self, kind: Kind, path: Path, key: RunKey, reason: str, condition: str | None = None) -> None:
        """Add a problem with the file `path`, once."""
        file = path.relative_to(self.folder).as_posix()
        found = Problem(kind, key.task, key.variant, key.seed, condition, file, reason)
        if found not in self.problems:
            self.problems.append(found)

    def count(self, kind: Kind, task: str, variant: str | None = None, condition: str | None = None) -> int:
        """How many problems of a kind a task (a variant, a condition) has; a whole run's is one of each condition."""
        return sum(
            p.kind == kind
            and p.task == task
            and variant in (None, p.variant)
            and (condition is None or p.condition in (None, condition))
            for p in self.problems
        )

    def done(self, task: str, variant: str | None = None) -> list[Run]:
        """The runs that count, in the plan's order of variants, by seed."""
        order = {name: i for i, name in enumerate(self.plan.tasks.get(task, []))}
        runs = [
            run
            for run in self.runs.values()
            if run.manifest.status == "done" and run.key.task == task and variant in (None, run.key.variant)
        ]
        return sorted(runs, key=lambda run: (order[run.key.variant], run.key.seed))

    def values(self, task: str, condition: str, metric: str, variant: str | None = None) -> list[float]:
        """The values of a metric, one a run that counts: of a variant, or of the whole task."""
        frame = self.frame
        rows = (frame["task"] == task) & (frame["condition"] == condition) & (frame["metric"] == metric)
        rows = rows if variant is None else rows & (frame["variant"] == variant)
        return [float(value) for value in frame.loc[rows, "value"]]

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return sum(run.manifest.status == "failed" for run in self.runs.values())


def run_folder(folder: Path, key: RunKey) -> Path:
    """Where a run lies."""
    return folder / "runs" / key.task / key.variant / f"seed-{key.seed}"
