"""`capsbench bench`: speed against a named reference, as a table and as JSON."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from capsbench.cli.held import held_device
from capsbench.cli.inputs import in_words_of_its_routing, try_routings
from capsbench.cli.options import file_to_write, given_beside, is_json
from capsbench.errors import CapsbenchError, ResourceError, counted
from capsbench.files import try_to_make, write_json
from capsbench.locks import writable
from capsbench.others import crowded
from capsbench.plan import Cell, House
from capsbench.training.what_to_lower import says_what_to_lower

ROUNDS = {"cpu": 5, "cuda": 20}  # a round on a GPU takes seconds
GROWS = {"batch": "batch", "inputs": "input capsules", "seeds": "seeds at once"}


def run_bench(
    house: House,
    cells: list[Cell],
    *,
    batch: int | None,
    rounds: int | None,
    device: str | None,
    threads: int,
    largest: int | None,
    routing: bool,
    json: Path | None,
    figures: Path | None,
    console: Console,
) -> None:
    """Measure, print the table, write `json` and draw.

    Raises CapsbenchError for a device that is not there, and before anything is measured for a place that is none, or
    where nothing can be drawn; RoutingError as `try_routings`. Raises ResourceError where memory ends, after all is
    said of what was measured by then.
    """
    json = json and file_to_write("--json", json, "bench.json", is_json)
    draw = None if figures is None else _drawing(figures)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own words about GPUs that are not there
    from capsbench.bench.grow import grow, has_capsules
    from capsbench.bench.layer import routing_alone
    from capsbench.bench.run import bench

    if largest is not None or routing:
        has_capsules(cells[0])  # said now, and not after minutes of timing

    try_routings(console, house, cells)

    def say(said: str) -> None:
        console.print(said, style="dim")

    def keep(so_far: dict[str, Any]) -> None:
        if json is not None:
            write_json(json, so_far)

    images = batch or cells[0].training.batch
    stopped = ""
    with held_device(console, device, threads) as chosen:
        rounds = rounds or ROUNDS[chosen.type]
        with (
            says_what_to_lower(f"bench at batch {images:,}", "choose a smaller --batch"),
            in_words_of_its_routing(house, *cells),
        ):
            result = bench(house, cells, batch, rounds, chosen, threads, say, keep)
        _print_rates(console, result)

        def keep_part(part: str, so_far: Any) -> None:
            result[part] = so_far
            keep(result)

        try:
            if routing:  # first: it takes seconds and little memory
                try:
                    of_routing = functools.partial(keep_part, "routing")
                    routing_alone(cells[0], images, rounds, chosen, say, of_routing)
                finally:
                    if "routing" in result:
                        console.print(routing_table(result["routing"]))
            if largest is not None:
                try:
                    of_growth = functools.partial(keep_part, "growth")
                    grow(house, cells[0], images, largest, rounds, chosen, say, of_growth)
                finally:
                    if "growth" in result:
                        console.print(growth_table(result["growth"]))
        except ResourceError as error:  # what is measured by then is drawn; the error holds what fills the memory
            stopped = str(error)
    if json is not None:
        console.print(f"written: {json}")
    if draw is not None:
        draw(console, result)
    if stopped:
        raise ResourceError(stopped)


def show_stored(console: Console, context: typer.Context, file: Path, figures: Path | None) -> None:
    """Print the tables of a measurement that `file` has, and draw it.

    Raises CapsbenchError where the command line asks for a measurement too; for a file that is none, and where nothing
    can be drawn.
    """
    if others := given_beside(context, "stored", "figures"):
        raise CapsbenchError(f"--from shows a stored measurement and makes none; leave out {', '.join(others)}.")
    draw = None if figures is None else _drawing(figures)
    try:
        from capsbench.report.measurement import read_measurement
    except ModuleNotFoundError as error:
        raise CapsbenchError(f"--from needs {_package(error)}, which is not installed here.") from None
    result = read_measurement(file)
    _print_rates(console, result)
    if result["routing"]:
        console.print(routing_table(result["routing"]))
    if result["growth"]:
        console.print(growth_table(result["growth"]))
    if draw is not None:
        draw(console, result)


def _drawing(folder: Path) -> Callable[[Console, dict[str, Any]], None]:
    """What draws a result into `folder`. Raises CapsbenchError where that is a file, or nothing can be drawn here."""
    if folder.exists() and not folder.is_dir():
        raise CapsbenchError(f"--figures is {folder}, a file; name a folder.")
    with writable(folder, "name another folder with --figures"):
        try_to_make(folder / "roofline.png")
    try:
        from capsbench.report.speed import draw_speed
    except ModuleNotFoundError as error:  # a machine that works from a pack has none of what draws
        raise CapsbenchError(
            f"--figures needs {_package(error)}, which is not installed here; leave it out, and draw where it is, from "
            "what --json writes: `capsbench bench --from FILE --figures FOLDER`."
        ) from None

    def draw(console: Console, result: dict[str, Any]) -> None:
        drawn = draw_speed(result, folder)
        for path in drawn:
            console.print(f"drawn: {path}")
        if not drawn:
            console.print("Nothing is drawn: of no row the operations and bytes were counted, and nothing has grown.")

    return draw


def _package(error: ModuleNotFoundError) -> str:
    return (error.name or "a package").partition(".")[0]


def _print_rates(console: Console, result: dict[str, Any]) -> None:
    """The table of a result, and what else the machine did meanwhile."""
    console.print(bench_table(result))
    if crowd := crowded(result["others"], result["threads"], result["machine"]["cores"]):
        console.print(crowd, style="yellow", markup=False)


def bench_table(result: dict[str, Any]) -> Table:
    """The rows of a result, one a contender."""
    machine = result["machine"]
    where = (
        machine["gpu"]
        if result["device"] == "cuda"
        else f"{machine['processor']}, {counted(result['threads'], 'thread')}"
    )
    rates = ", ".join(f"{name} {rate / 1e12:.3g}" for name, rate in result["product_flops_per_second"].items())
    table = Table(
        "",  # the one that narrow terminals break
        *(Column(name, no_wrap=True) for name in ("images/s", "quartiles", "s/epoch", "x plain", "of peak", "MB")),
        title=f"{result['task']}, batch {result['rows'][0]['batch']}, {where}, {result['instructions']}",
        caption=f"Medians of {result['rounds']} rounds. x plain: speed relative to the plain float32 PyTorch CapsNet, "
        f"same phase and process. Of peak: relative to a matrix product in this process (TFLOP/s: {rates}). "
        "MB: parameters, and what a call holds at most in addition to them and the optimiser's moments."
        + _widths(result.get("width", {})),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for row in result["rows"]:
        seconds, images = row["seconds"], row["batch"]
        table.add_row(
            f"{row['name']}\n  {row['phase']}, {row['precision']}",
            f"{row['images_per_second']:,.0f}",
            f"{images / seconds['q3']:,.0f}-{images / seconds['q1']:,.0f}",
            ""
            if row["seconds_per_epoch"] is None
            else f"{row['seconds_per_epoch']:,.{2 if row['seconds_per_epoch'] < 10 else 1}f}",
            "" if row["times_plain"] is None else f"{row['times_plain']:.2f}",
            "" if row["fraction_of_product"] is None else f"{100 * row['fraction_of_product']:.0f} %",
            "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:,.0f}",
        )
    return table


def _widths(width: dict[str, float]) -> str:
    """A sentence for the caption where a plan gives its models another width than theirs in full."""
    others = ", ".join(f"{variant} ({factor:g})" for variant, factor in width.items() if factor != 1)
    return (
        f" Not at full width, as the plain CapsNet is: {others}; x plain compares models of two sizes."
        if others
        else ""
    )


def routing_table(rows: list[dict[str, Any]]) -> Table:
    """The capsule layer alone, a line for each way and number of inputs."""
    table = Table(
        Column("input capsules", justify="right"),
        "",
        *(Column(name, no_wrap=True) for name in ("ms", "x votes in memory", "MB", "x less")),
        title=f"routing forward and backward, batch {rows[0]['batch']}, float32",
        caption="Medians. Captured: as one CUDA graph, as runs do. MB: held at most beside inputs and weights.",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for row in rows:
        table.add_row(
            f"{row['inputs']:,}",
            f"{row['name']}, captured" if row["captured"] else row["name"],
            f"{1e3 * row['seconds']:,.2f}",
            f"{row['times']:.2f}",
            "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:,.0f}",
            "" if row["less_memory"] is None else f"{row['less_memory']:.1f}",
        )
    return table


def growth_table(growth: dict[str, list[dict[str, Any]]]) -> Table:
    """What a training step costs as it grows: a line for each size and model, a section for what grows."""
    table = Table(
        "",
        "",
        *(Column(name, justify="right", no_wrap=True) for name in ("images/s", "MB")),
        title="a training step as it grows",
        caption="Medians. Of several seeds a step is one of each. MB: held at most beside the parameters.",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for what, rows in growth.items():
        for row in rows:
            table.add_row(
                f"{GROWS[what]}: {row['size']:,}",
                f"{row['name']}, {row['precision']}",
                f"{row['images_per_second']:,.0f}",
                f"{row['peak_bytes'] / 1e6:,.0f}",
            )
        table.add_section()
    return table
