"""`capsbench cost`: measure what a plan's variants cost, unless that is done."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from capsbench.cli.held import held_device
from capsbench.cli.inputs import in_words_of_its_routing
from capsbench.errors import CapsbenchError, counted
from capsbench.files import write_json
from capsbench.locks import sole, writable
from capsbench.others import crowded
from capsbench.plan import House
from capsbench.plan.done import cost_digest, is_measured


def measure(console: Console, house: House, device: str | None, threads: int, done: Path | None) -> None:
    """Write cost.json of a plan's results folder; then say so in `done`.

    Raises CapsbenchError if the plan wants none.
    """
    if house.plan.cost is None:
        raise CapsbenchError(f"{house.path} has `cost: false`; remove it, or write `cost: {{batch: 128}}`.")
    digest = cost_digest(house)
    if is_measured(house.folder, digest):
        console.print(f"{house.folder / 'cost.json'}: measured already")
    else:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own words about GPUs that are not there
        from capsbench.evaluation.cost import measure_cost
        from capsbench.training.what_to_lower import says_what_to_lower

        with writable(house.folder):
            house.folder.mkdir(parents=True, exist_ok=True)
        remedy = (
            f"lower cost.batch, which is {house.plan.cost.batch:,}, in {house.path}, or use a device with more memory"
        )
        with (
            held_device(console, device, threads) as chosen,
            sole(house.folder / "cells", console.print),
            says_what_to_lower(f"{house.path}: cost on {chosen}", remedy),
            in_words_of_its_routing(house, *house.cells, tried=False),
        ):
            if is_measured(house.folder, digest):  # by the process that this one waited for
                console.print(f"{house.folder / 'cost.json'}: measured already")
            else:
                found = measure_cost(house, chosen, threads, console.print)
                write_json(house.folder / "cost.json", found)
                said = f"{counted(len(found['rows']), 'variant')} measured on {found['device']}"
                console.print(f"{house.folder / 'cost.json'}: {said}")
                if crowd := crowded(found["others"], threads, found["machine"]["cores"]):
                    console.print(crowd, style="yellow", markup=False)
    if done:
        write_json(done, {"digest": digest})
