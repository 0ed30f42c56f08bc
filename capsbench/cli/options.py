"""The options that several commands have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capsbench.errors import CapsbenchError


def _number_or_all(cores: str) -> str:
    """Snakemake takes 0 and waits for ever."""
    if cores != "all" and not (cores.isdecimal() and int(cores) > 0):
        raise typer.BadParameter(f"{cores!r} is neither a number of at least 1 nor `all`.")
    return cores


def refuse_folder(option: str, path: Path | None, example: str) -> None:
    """Raise CapsbenchError where an option names a folder in the place of a file to write."""
    if path is not None and path.is_dir():
        raise CapsbenchError(f"{option} is {path}, a folder; name the file, such as {path / example}.")


PlanPath = Annotated[Path, typer.Argument(help="A plan, such as config/quick.yaml.")]
Task = Annotated[list[str] | None, typer.Option(help="Only this task; can be repeated.")]
Variant = Annotated[list[str] | None, typer.Option(help="Only this variant; can be repeated.")]
Seed = Annotated[list[int] | None, typer.Option(help="Only this seed; can be repeated.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:<n>; by default the best there is.")]
Threads = Annotated[
    int,
    typer.Option(
        help="CPU threads; the last bits of results depend on their number, so the manifest records it.",
        min=1,
        max=1024,
    ),
]
Cores = Annotated[str, typer.Option(help="Cores for Snakemake, a number or `all`.", callback=_number_or_all)]
Done = Annotated[Path | None, typer.Option("--done", hidden=True, help="File that says the job is done.")]
