"""Tables that are of no task: one function each, None where a plan's results have nothing for it."""

from __future__ import annotations

from collections.abc import Callable

from capsbench.report.ablation_table import ablation_table
from capsbench.report.attack_table import attack_table
from capsbench.report.costs import cost_table
from capsbench.report.ladder_table import ladder_table
from capsbench.report.results import Results
from capsbench.report.routing_table import routing_table
from capsbench.report.training_table import training_table
from capsbench.report.wide import ExtraTable

EXTRAS: dict[str, Callable[[Results], ExtraTable | None]] = {
    "ablation": ablation_table,
    "ladder": ladder_table,
    "attacks": attack_table,
    "routing": routing_table,
    "cost": cost_table,
    "training": training_table,
}


def extra_tables(results: Results) -> list[ExtraTable]:
    """The extra tables that have something to show, in the order of the report."""
    made = [make(results) for make in EXTRAS.values()]
    return [table for table in made if table is not None]
