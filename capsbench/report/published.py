"""The paper's figures, read from config/published.yaml."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import FiniteFloat, ValidationError

from capsbench.errors import PlanError, nearest
from capsbench.plan.claims import METRICS
from capsbench.plan.load import config_folder, sentence_of
from capsbench.plan.spec import Strict
from capsbench.plan.yaml_file import read_yaml

PAPER = "The paper"  # how a source begins that is Sabour, Frosst and Hinton 2017


class TableCell(NamedTuple):
    """Which figure of a table is meant."""

    task: str
    variant: str
    condition: str
    metric: str


class PublishedValue(Strict):
    """One published figure, its standard deviation if the source gives one, and where it stands."""

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


class Published(Strict):
    """config/published.yaml."""

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
    """config/published.yaml, as it is beside the package. Raises PlanError as `read_published` does."""
    return read_published(config_folder() / "published.yaml")


def read_published(path: Path) -> Published:
    """Read and check `path`, as a plan is.

    Raises PlanError if it is missing, not YAML, of another form, or names a cell twice, or a task, condition or metric
    that the suite does not have. Variants may be those of any plan.
    """
    try:
        published = Published.model_validate(read_yaml(path))
    except ValidationError as error:
        raise sentence_of(error, Published, path) from None
    for number, value in enumerate(published.values):
        for key, known in (
            ("task", METRICS),
            ("condition", METRICS.get(value.task, {})),
            ("metric", METRICS.get(value.task, {}).get(value.condition, ())),
        ):
            if (word := getattr(value, key)) not in known:
                raise PlanError(f"{path}: values.{number}.{key}: no {key} {word!r}{nearest(word, known)}")
    if foreign := [task for task in published.notes if task not in METRICS]:
        raise PlanError(f"{path}: notes: no task {foreign[0]!r}{nearest(foreign[0], METRICS)}")
    cells = [value.cell for value in published.values]
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise PlanError(f"{path} names {'/'.join(twice[0])} twice; keep one entry per figure.")
    return published
