"""The files that evaluation and training leave for the report, as checked types (docs/results-format.md)."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator, model_validator

from capsbench.errors import CapsbenchError
from capsbench.files import read_json


class ResultsError(CapsbenchError):
    """A results folder cannot be read as a whole: there is no plan.json, or it is not one."""


class UnreadableFileError(Exception):
    """One file of a run cannot be read. It becomes a problem of the report, never the end of it."""


class RunKey(NamedTuple):
    """What identifies a run."""

    task: str
    variant: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task}/{self.variant}/seed-{self.seed}"


def check_name(name: str) -> str:
    """A task, variant or condition names a folder; it must not lead anywhere else."""
    if not name or name in (".", "..") or any(c in "/\\" or ord(c) < 32 for c in name):
        raise ValueError(f"{name!r} cannot be the name of a folder")
    return name


Count = Annotated[int, Field(ge=0, lt=2**63)]  # of what there is: beyond, no table's column could hold it


class ResultsFile(BaseModel):
    """Unknown keys are kept out of the way: a newer evaluation may say more than this report shows."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Dataset(ResultsFile):
    """Which data, and what tables and figures call it."""

    name: str
    badge: str
    digest: str | None = None


class RunName(ResultsFile):
    """A run as files write it."""

    task: str
    variant: str
    seed: int = Field(ge=0, lt=2**32)

    @field_validator("task", "variant")
    @classmethod
    def _is_a_folder(cls, name: str) -> str:
        return check_name(name)

    @property
    def key(self) -> RunKey:
        """The run's identity."""
        return RunKey(self.task, self.variant, self.seed)


class PlannedRun(RunName):
    """A run of the plan, with the digest of its resolved config and the one that its metrics must have.

    outdated: it was trained by source that has changed since.
    """

    config: str | None = None
    evaluation: str | None = None
    outdated: bool = False


class Reduced(ResultsFile):
    """What a cell does with less than the protocol: its kinds are those of Reduction (capsbench/plan/task.py)."""

    kind: Literal["experiment", "training", "budget", "digits", "measuring"]
    words: str
    of: list[str] = []  # metrics or conditions that it touches, `*` for any letters; none named: all

    def touches(self, condition: str | None, metric: str) -> bool:
        """Whether a metric under a condition is measured with less by it."""
        return not self.of or any(fnmatchcase(name, of) for of in self.of for name in (condition or "", metric))


class Difference(ResultsFile):
    """One factor in which a row differs from its reference; `own`: it came with the row's routing."""

    factor: str
    value: str
    reference: str
    own: bool = False


class Comparison(ResultsFile):
    """A row of table `ablation` or `ladder`, and the row it is compared with; the lowest rung has none."""

    variant: str
    reference: str | None = None
    differs: list[Difference] = []


class AxisPoint(ResultsFile):
    """A row that stands on an axis of the plan, at `value`, and the variant it was made of."""

    axis: Literal["per_class", "iterations"]
    variant: str
    base: str
    value: Count


class Plan(ResultsFile):
    """plan.json."""

    format: Literal[1] = Field(alias="schema")
    name: str
    file: str
    digest: str
    budget: str
    about: str = ""
    seeds: list[int]
    dataset: Dataset
    reductions: dict[str, list[str]] = {}
    reduced: dict[str, list[Reduced]] = {}  # task/variant -> what it reduces
    tasks: dict[str, list[str]]
    titles: dict[str, str] = {}
    cost: str | None = None  # the digest that cost.json must have; None: the plan wants no costs
    comparisons: dict[str, dict[str, list[Comparison]]] = {}  # by table and task
    axes: dict[str, list[AxisPoint]] = {}  # by task
    notes: dict[str, list[str]] = {}  # sentences for the caption of each task's table
    runs: list[PlannedRun]

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        return check_name(name)

    @field_validator("tasks")
    @classmethod
    def _name_files(cls, tasks: dict[str, list[str]]) -> dict[str, list[str]]:
        for task, variants in tasks.items():
            for name in (task, *variants):
                check_name(name)
        return tasks

    @model_validator(mode="after")
    def _runs_are_of_tasks(self) -> Plan:
        for run in self.runs:
            if run.variant not in self.tasks.get(run.task, []):
                raise ValueError(f"`runs` names {run.task}/{run.variant}, which `tasks` does not list")
        return self

    def title(self, variant: str) -> str:
        """What tables call a variant: its title if it has one that no other variant bears, else its name."""
        title = self.titles.get(variant) or variant
        return variant if sum(other == title for other in self.titles.values()) > 1 else title


class Git(ResultsFile):
    """The commit that made a run."""

    commit: str | None = None
    dirty: bool | None = None


class Manifest(ResultsFile):
    """manifest.json of a run."""

    format: Literal[1] = Field(alias="schema")
    run: RunName
    status: Literal["done", "failed"]
    reason: str | None = None
    digest: str
    digests: dict[str, str | None] = {}
    weights: str | None = None
    config: dict[str, Any] = {}
    resolved: dict[str, Any] = {}
    dataset: Dataset
    reductions: list[str] = []
    parameters: Count | None = None
    flops: Count | None = None
    steps: Count | None = None
    final_loss: float | None = None
    seconds: float | None = None
    peak_memory_mb: float | None = None
    started: str | None = None
    finished: str | None = None
    resumed: Count | None = None
    versions: dict[str, str | None] = {}
    machine: dict[str, Any] = {}
    git: Git = Git()

    @field_validator("config")
    @classmethod
    def _has_mappings(cls, config: dict[str, Any]) -> dict[str, Any]:
        """What is read of a config is a key of one of these."""
        for part in ("variant", "task", "training"):
            if not isinstance(config.get(part) or {}, dict):
                raise ValueError(f"`{part}` is not a mapping")
        for key in ("batch", "rate", "epochs"):
            value = (config.get("training") or {}).get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ValueError(f"`training.{key}` is not a number")
        return config


MORE_THAN_ALL = {"leakage"}  # per cent of one digit's ink, of which eight absent ones may have more


class Value(ResultsFile):
    """One metric of one run. A metric that is not defined for the run has no value."""

    value: FiniteFloat | None
    unit: str


class Metrics(ResultsFile):
    """metrics.json of one condition of a run."""

    format: Literal[1] = Field(alias="schema")
    run: RunName
    condition: str
    status: Literal["done", "not matched"]
    reason: str | None = None
    dataset: Dataset
    images: Count
    digest: str | None = None
    weights: str | None = None
    seconds: float | None = None
    metrics: dict[str, Value]

    @field_validator("metrics")
    @classmethod
    def _are_shares(cls, metrics: dict[str, Value]) -> dict[str, Value]:
        for name, of in metrics.items():
            if of.unit == "%" and name not in MORE_THAN_ALL and of.value is not None and abs(of.value) > 100 + 1e-9:
                raise ValueError(f"{name} is {of.value:g} %, beyond 100 %")
        return metrics


FileType = TypeVar("FileType", bound=BaseModel)


def read(path: Path, kind: type[FileType]) -> FileType:
    """The file at `path` as `kind`. Raises UnreadableFileError with the reason in words."""
    try:
        return kind.model_validate(read_json(path))
    except FileNotFoundError:
        raise UnreadableFileError("is not there") from None
    except json.JSONDecodeError as error:
        raise UnreadableFileError(f"is truncated or is not JSON (line {error.lineno})") from None
    except UnicodeDecodeError:
        raise UnreadableFileError("is not UTF-8 text") from None
    except OSError as error:
        raise UnreadableFileError(f"cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UnreadableFileError(f"is not in the format of docs/results-format.md: {place}: {first['msg']}") from None
    except ValueError:  # the one that read_json itself raises
        raise UnreadableFileError("is nested too deep to be one of ours") from None


def read_plan(results: Path) -> Plan:
    """plan.json of the folder `results`. Raises ResultsError if it is missing or broken."""
    path = results / "plan.json"
    try:
        return read(path, Plan)
    except UnreadableFileError as error:
        raise ResultsError(f"{path} {error}; give the folder of a plan's results, or run the plan first.") from None
