"""The options that several commands have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PlanPath = Annotated[Path, typer.Argument(help="A plan, such as config/quick.yaml.")]
Task = Annotated[list[str] | None, typer.Option(help="Only this task; may be said again.")]
Variant = Annotated[list[str] | None, typer.Option(help="Only this variant; may be said again.")]
Seed = Annotated[list[int] | None, typer.Option(help="Only this seed; may be said again.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:<n>; the best there is when not said.")]
Threads = Annotated[int, typer.Option(help="CPU threads; the weights depend on it, so the manifest records it.", min=1)]
Done = Annotated[Path | None, typer.Option("--done", hidden=True, help="File that says the job is done.")]
