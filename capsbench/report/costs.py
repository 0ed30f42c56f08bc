"""cost.json as the report reads it, and the table `cost`."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from capsbench.errors import counted
from capsbench.others import crowded
from capsbench.report.captions import listing
from capsbench.report.contract import ResultsFile, UnreadableFileError, read
from capsbench.report.results import Results
from capsbench.report.wide import Column, Entry, ExtraTable, WideRow, WideTable

PHASES = ("inference", "forward", "backward")


class CostRow(ResultsFile):
    """What one variant costs on one task; FLOPs and images are of one image, by PHASES."""

    task: str
    variant: str
    image: tuple[int, int]
    parameters: int = Field(ge=0)
    flops: dict[str, int]
    images_per_second: dict[str, PositiveFloat]
    peak_memory_mb: float = Field(ge=0)

    @field_validator("flops", "images_per_second")
    @classmethod
    def _has_every_phase(cls, found: dict[str, Any]) -> dict[str, Any]:
        if missing := [phase for phase in PHASES if phase not in found]:
            raise ValueError(f"`{missing[0]}` is missing")
        return found


class Cost(ResultsFile):
    """cost.json."""

    format: int = Field(alias="schema", ge=1, le=1)
    digest: str
    device: str
    threads: int
    precision: str
    batch: PositiveInt
    repetitions: PositiveInt
    memory_of: str
    started: str
    others: float | None = None
    versions: dict[str, str | None]
    machine: dict[str, Any]
    rows: list[CostRow]


def read_cost(results: Results) -> tuple[Cost | None, str]:
    """The plan's costs, or None and why not: cost.json is not there, cannot be read, or is of other models."""
    if results.plan.cost is None:
        return None, "the plan does not ask for costs"
    try:
        cost = read(results.folder / "cost.json", Cost)
    except UnreadableFileError as error:
        return None, f"cost.json {error}"
    if cost.digest != results.plan.cost:
        return None, "cost.json was measured for other models, options or source code than the plan's"
    return cost, ""


def caption_words(results: Results, cost: Cost) -> list[str]:
    """Under which circumstances everything was measured."""
    gpu = cost.machine.get("gpu") if cost.device == "cuda" else None
    where = f"{gpu} (driver {cost.machine.get('driver')})" if gpu else str(cost.machine.get("processor", cost.device))
    widths = {word for words in results.plan.reductions.values() for word in words if word.startswith("width")}
    rounds = counted(cost.repetitions, "round")
    return [
        f"Measured in one process on {where}, {counted(cost.threads, 'thread')}, torch {cost.versions.get('torch')},",
        f"{cost.precision}, deterministic algorithms, on {cost.started[:10]}.",
        *([said] if (said := crowded(cost.others, cost.threads, cost.machine.get("cores"))) else []),
        f"Untrained weights and random images, batch {cost.batch}; medians of {rounds} over all variants.",
        *([f"Reduced models: {', '.join(sorted(widths))}."] if widths else []),
        "Inference: finding the classes; forward: computing the training loss, with the decoder if there is one;",
        "backward: its gradient, without the optimiser's step.",
        *(
            ["Steps are eager, and routing is plain, with all votes in memory; runs on a GPU may differ in either."]
            if gpu
            else []
        ),
        "FLOPs by torch's counter on a single image, two per multiply-add: matrix products, and convolutions as if",
        "each were computed directly, even where larger batches are computed with fewer products. Routing's sums are",
        "elementwise and not counted, except where they are computed as matrix products, as dynamic routing's are on a",
        "CPU.",
        f"Memory: the peak of {cost.memory_of} over parameters, activations and gradients of one forward and backward",
        "pass.",
    ]


def cost_table(results: Results) -> ExtraTable | None:
    """The table `cost`, or None where the plan has no costs."""
    cost, _ = read_cost(results)
    if cost is None:
        return None
    labels = ["parameters", "MFLOPs inference", "MFLOPs forward", "MFLOPs backward"]
    labels += [f"images/s {phase}" for phase in PHASES] + ["peak memory, MB"]
    columns = [Column("variant", "name"), Column("task", "condition"), *(Column(label, "value") for label in labels)]
    order = [(task, variant) for task, variants in results.plan.tasks.items() for variant in variants]
    rows = sorted(
        (r for r in cost.rows if (r.task, r.variant) in order), key=lambda r: order.index((r.task, r.variant))
    )
    wide = [WideRow(row.variant, row.task, _entries(results, row)) for row in rows]
    caption = ["What each variant costs.", *caption_words(results, cost), *_shared(results, rows)]
    return ExtraTable("cost", WideTable("cost", columns, wide, caption), cost_frame(cost, rows))


def _shared(results: Results, rows: list[CostRow]) -> list[str]:
    """Which rows are one measurement, as a sentence: that of a row in bf16 is not faster than float32 because of it."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for row in rows:
        groups.setdefault((row.task, *row.images_per_second.values()), []).append(results.plan.title(row.variant))
    same = [listing(titles) for titles in groups.values() if len(titles) > 1]
    words = "Models that differ in their training alone, precision included, share one measurement"
    return [f"{words}: {'; '.join(dict.fromkeys(same))}."] if same else []


def _entries(results: Results, row: CostRow) -> list[Entry]:
    title = results.plan.title(row.variant)
    place = f"{row.task} ({row.image[0]}x{row.image[1]})"
    entries = [Entry(title, title), Entry(place, place), Entry(f"{row.parameters:,}", row.parameters)]
    entries += [Entry(f"{row.flops[phase] / 1e6:,.1f}", row.flops[phase]) for phase in PHASES]
    speeds = [row.images_per_second[phase] for phase in PHASES]
    entries += [Entry(f"{speed:,.0f}" if speed >= 100 else f"{speed:,.1f}", speed) for speed in speeds]
    return [*entries, Entry(f"{row.peak_memory_mb:,.1f}", row.peak_memory_mb)]


def cost_frame(cost: Cost, rows: list[CostRow]) -> pd.DataFrame:
    """One line a task and variant: FLOPs an image, images a second, MB."""
    return pd.DataFrame(
        [
            {
                "task": row.task,
                "variant": row.variant,
                "height": row.image[0],
                "width": row.image[1],
                "device": cost.device,
                "batch": cost.batch,
                "parameters": row.parameters,
                **{f"flops_{phase}": row.flops[phase] for phase in PHASES},
                **{f"images_per_second_{phase}": row.images_per_second[phase] for phase in PHASES},
                "peak_memory_mb": row.peak_memory_mb,
            }
            for row in rows
        ]
    )
