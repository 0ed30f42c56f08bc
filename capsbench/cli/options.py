"""The options that several commands have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _number_or_all(cores: str) -> str:
    """Snakemake takes 0 and waits for ever."""
    if cores != "all" and not (cores.isdecimal() and int(cores) > 0):
        raise typer.BadParameter(f"{cores!r} is neither a number from 1 on nor `all`.")
    return cores


PlanPath = Annotated[Path, typer.Argument(help="A plan, such as config/quick.yaml.")]
Task = Annotated[list[str] | None, typer.Option(help="Only this task; may be said again.")]
Variant = Annotated[list[str] | None, typer.Option(help="Only this variant; may be said again.")]
Seed = Annotated[list[int] | None, typer.Option(help="Only this seed; may be said again.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:<n>; the best there is when not said.")]
Threads = Annotated[
    int, typer.Option(help="CPU threads; the last bits depend on them, so the manifest records them.", min=1, max=1024)
]
Cores = Annotated[str, typer.Option(help="Cores for Snakemake, a number or `all`.", callback=_number_or_all)]
Done = Annotated[Path | None, typer.Option("--done", hidden=True, help="File that says the job is done.")]
