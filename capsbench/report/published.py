"""The paper's figures, read from config/published.yaml."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from capsbench.errors import nearest
from capsbench.plan.claims import METRICS
from capsbench.plan.load import config_folder
from capsbench.report.contract import ResultsError

PAPER = "The paper"  # how a source begins that is Sabour, Frosst and Hinton 2017


class TableCell(NamedTuple):
    """Which figure of a table is meant."""

    task: str
    variant: str
    condition: str
    metric: str


class PublishedValue(BaseModel):
    """One published figure, its standard deviation if the source gives one, and where it stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    variant: str
    condition: str
    metric: str
    value: FiniteFloat
    sd: FiniteFloat | None
    source: str

    @property
    def cell(self) -> TableCell:
        """The cell of the table beside which it stands."""
        return TableCell(self.task, self.variant, self.condition, self.metric)


class Published(BaseModel):
    """config/published.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    values: list[PublishedValue]
    notes: dict[str, str]

    def get(self, cell: TableCell) -> PublishedValue | None:
        """The figure published for `cell`."""
        return next((value for value in self.values if value.cell == cell), None)

    def by_others(self, task: str, variants: Collection[str]) -> list[PublishedValue]:
        """The figures beside these rows of a task that are not the paper's."""
        beside = [value for value in self.values if value.task == task and value.variant in variants]
        return [value for value in beside if not value.source.startswith(PAPER)]

    def on(self, dataset: str) -> Published:
        """What of it says something of a plan's data: no figures of MNIST beside those of Fashion-MNIST or KMNIST.

        The digits that stand in for MNIST keep them, for orientation, as the captions say.
        """
        if dataset not in ("fashion-mnist", "kmnist"):
            return self
        explained = ("multimnist",)  # whose note says what the columns are; the others' hold figures of MNIST
        return Published(values=[], notes={task: note for task, note in self.notes.items() if task in explained})


@cache
def load_published() -> Published:
    """config/published.yaml, as it is beside the package. Raises ResultsError as `read_published` does."""
    return read_published(config_folder() / "published.yaml")


def read_published(path: Path) -> Published:
    """Read and check `path`.

    Raises ResultsError if it is missing, not YAML, of another form, or names a cell twice, or a task, condition or
    metric that the suite does not have. Variants may be those of any plan.
    """
    try:
        published = Published.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ResultsError(
            f"{path} cannot be read ({error.strerror}); it comes with capsbench, get it again."
        ) from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" (line {place.line + 1})" if place else ""
        raise ResultsError(f"{path} is not YAML{line}; correct it, or get it from the repository again.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ResultsError(f"{path}: {key or 'the file'}: {first['msg']}; correct this key.") from None
    for number, value in enumerate(published.values):
        for key, known in (
            ("task", METRICS),
            ("condition", METRICS.get(value.task, {})),
            ("metric", METRICS.get(value.task, {}).get(value.condition, ())),
        ):
            if (word := getattr(value, key)) not in known:
                raise ResultsError(f"{path}: values.{number}.{key}: no {key} {word!r}{nearest(word, known)}")
    if foreign := [task for task in published.notes if task not in METRICS]:
        raise ResultsError(f"{path}: notes: no task {foreign[0]!r}{nearest(foreign[0], METRICS)}")
    cells = [value.cell for value in published.values]
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise ResultsError(f"{path} names {'/'.join(twice[0])} twice; keep one entry per figure.")
    return published
