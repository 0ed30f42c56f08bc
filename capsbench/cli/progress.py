"""How far training is: bars in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from capsbench.plan import Cell

LINE_SECONDS = 20.0  # between lines where there is no terminal to draw a bar on


@contextmanager
def show_progress(
    console: Console, cell: Cell, seed: int, bars: Progress | None = None
) -> Iterator[Callable[[int, int, float | None, float], None]]:
    """A bar, of its own or among `bars`, with loss, images a second and time left; lines where there is no terminal."""
    if not console.is_terminal:
        last = time.monotonic()

        def line(step: int, steps: int, loss: float | None, speed: float) -> None:
            nonlocal last
            if loss is not None and (time.monotonic() - last > LINE_SECONDS or step == steps):
                last = time.monotonic()
                left = (steps - step) * cell.training.batch / max(speed, 1e-9)
                console.print(
                    f"{cell.label} seed {seed}: step {step:,} of {steps:,}, loss {loss:.4f}, "
                    f"{speed:,.0f} images/s, {left:.0f} s left"
                )

        yield line
        return
    with nullcontext(bars) if bars else progress_bars(console) as bars:
        bar = bars.add_task(f"{cell.label} seed {seed}", total=None, loss="-", speed="-")

        def draw(step: int, steps: int, loss: float | None, speed: float) -> None:
            fields = {"speed": f"{speed:,.0f}"} | ({"loss": f"{loss:.4f}"} if loss is not None else {})
            bars.update(bar, completed=step, total=steps, **fields)  # type: ignore[arg-type]

        yield draw


def progress_bars(console: Console) -> Progress:
    """Bars for runs that train at the same time: a terminal shows one live display."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[speed]} images/s"),
        TimeRemainingColumn(),
        console=console,
    )
