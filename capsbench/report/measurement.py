"""What `capsbench bench --json` wrote, as checked types: a table or a figure of it can be made anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from capsbench.errors import CapsbenchError, printable
from capsbench.report.contract import Count, ResultsFile, UnreadableFileError, read

Positive = Annotated[float, Field(gt=1e-30, lt=1e30)]  # beyond, no axis could hold it
Number = Annotated[int, Field(gt=0, lt=2**63)]
Word = Annotated[str, AfterValidator(printable)]


class Seconds(ResultsFile):
    """Quartiles of the seconds a call."""

    q1: Positive
    q3: Positive


class Row(ResultsFile):
    """A contender: a model, a phase and a precision."""

    name: Word
    phase: Word
    precision: Word
    batch: Number
    seconds: Seconds
    images_per_second: Positive
    seconds_per_epoch: Positive | None = None
    times_plain: Positive | None = None
    flops: Number | None = None
    flops_per_second: Positive | None = None
    moved_bytes: Number | None = None
    peak_bytes: Count | None = None
    fraction_of_product: Positive | None = None

    @model_validator(mode="after")
    def _has_a_rate(self) -> Row:
        if self.flops is not None and self.flops_per_second is None:
            raise ValueError("`flops` without `flops_per_second`")
        return self


class Routing(ResultsFile):
    """The capsule layer alone, one way and one number of inputs."""

    name: Word
    captured: bool
    inputs: Number
    batch: Number
    seconds: Positive
    times: Positive
    peak_bytes: Count | None = None
    less_memory: Positive | None = None


class Grown(ResultsFile):
    """A training step at one size."""

    name: Word
    precision: Word
    size: Number
    images_per_second: Positive
    peak_bytes: Number


class Machine(ResultsFile):
    """Where it was measured."""

    processor: Word | None = None
    cores: Number | None = None
    gpu: Word | None = None


class Measurement(ResultsFile):
    """All of it that tables and figures show."""

    format: Literal[1] = Field(alias="schema")
    task: Word
    device: Word
    threads: Number
    instructions: Word
    rounds: Number
    machine: Machine
    width: dict[Word, Positive] = Field(default={})
    others: Annotated[float, Field(ge=0, lt=1e6)] | None = None
    product_flops_per_second: dict[Word, Positive]
    copy_bytes_per_second: Positive
    rows: Annotated[list[Row], Field(min_length=1)]
    routing: list[Routing] = Field(default=[])
    growth: dict[Literal["batch", "inputs", "seeds"], list[Grown]] = Field(default={})

    @model_validator(mode="after")
    def _knows_every_peak(self) -> Measurement:
        for row in self.rows:
            if row.precision not in self.product_flops_per_second:
                raise ValueError(f"`product_flops_per_second` has no {row.precision}, which `rows` names")
        return self


def read_measurement(path: Path) -> dict[str, Any]:
    """What tables and figures show of the file at `path`. Raises CapsbenchError for one that bench did not write."""
    try:
        return read(path, Measurement).model_dump()
    except UnreadableFileError as error:
        raise CapsbenchError(f"{path} {error}; name a file that `capsbench bench --json` wrote.") from None
