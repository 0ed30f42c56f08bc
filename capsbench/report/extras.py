"""Tables that are of no task: one function each, None where a plan's results have nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from capsbench.report.results import Results
from capsbench.report.wide import WideTable


@dataclass(frozen=True)
class ExtraTable:
    """A table as it is read and as it is stored; `name` is that of its files."""

    name: str
    table: WideTable
    frame: pd.DataFrame


def _routing(results: Results) -> ExtraTable | None:
    from capsbench.report.routing_table import routing_table

    return routing_table(results)


def _cost(results: Results) -> ExtraTable | None:
    from capsbench.report.costs import cost_table

    return cost_table(results)


def _ablation(results: Results) -> ExtraTable | None:
    from capsbench.report.ablation_table import ablation_table

    return ablation_table(results)


def _ladder(results: Results) -> ExtraTable | None:
    from capsbench.report.ladder_table import ladder_table

    return ladder_table(results)


EXTRAS: dict[str, Callable[[Results], ExtraTable | None]] = {
    "ablation": _ablation,
    "ladder": _ladder,
    "routing": _routing,
    "cost": _cost,
}


def extra_tables(results: Results) -> list[ExtraTable]:
    """The extra tables that have something to show, in the order of the report."""
    made = [make(results) for make in EXTRAS.values()]
    return [table for table in made if table is not None]
