"""The options that several commands have, said once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from capsbench.errors import CapsbenchError, ResourceError
from capsbench.files import try_to_make


def _number_or_all(cores: str) -> str:
    """Snakemake takes 0 and waits for ever."""
    if cores != "all" and not (cores.isdecimal() and int(cores) > 0):
        raise typer.BadParameter(f"{cores!r} is neither a number of at least 1 nor `all`.")
    return cores


def check_minutes(minutes: float | None) -> float | None:
    """A year at the most: no timer of the system knows much more, nor what is no number."""
    if minutes is not None and not 0 <= minutes <= YEAR:
        raise typer.BadParameter(f"{minutes} is not a number from 0 to {YEAR:,}.")
    return minutes


def file_to_write(option: str, path: Path, example: str, is_kind: Callable[[bytes], bool]) -> Path:
    """The file that an option names; where that is a link, the one that it leads to, so that the link stays.

    is_kind: whether the first bytes of a file are those of what will be written; another file is not replaced.

    Raises CapsbenchError: it is a folder, a device or a pipe, a file of another kind, or lies in a run's folder, whose
    files are the run's.
    ResourceError: no file can be made there, which is said before there is anything to write.
    """
    if path.is_dir():
        raise CapsbenchError(f"{option} is {path}, a folder; name the file, such as {path / example}.")
    if path.exists() and not path.is_file():
        raise CapsbenchError(
            f"{option} is {path}, which is no file and would be replaced by one; name a file, such as {example}."
        )
    try:
        with path.open("rb") as file:
            begins = file.read(16)
    except OSError:  # there is none, or it cannot be read: what is wrong with its place is said below
        begins = b""
    if begins and not is_kind(begins):
        raise CapsbenchError(
            f"{option} is {path}, a file of another kind that would be replaced; name another, such as {example}."
        )
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if (path.parent / "manifest.json").is_file():
        raise CapsbenchError(
            f"{option} is {path}, inside a run's folder, whose files are its own; name a file elsewhere, such as "
            f"{example}."
        )
    try:
        try_to_make(path)
    except OSError as error:
        raise ResourceError(f"{path} cannot be made ({error.strerror}); name another file with {option}.") from None
    return path


def is_archive(begins: bytes) -> bool:
    """Whether a file begins as what gzip has packed."""
    return begins.startswith(b"\x1f\x8b")


def is_weights(begins: bytes) -> bool:
    """Whether a file begins as safetensors: eight bytes of a length, and JSON."""
    return begins[8:9] == b"{"


def is_json(begins: bytes) -> bool:
    """Whether a file begins as a JSON object."""
    return begins.startswith(b"{")


def given_beside(context: typer.Context, *known: str) -> list[str]:
    """What a command line says beside the parameters `known`: its options, and `the plan` for an argument."""
    return [
        "the plan" if parameter.param_type_name == "argument" else parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in known and _is_said(context, parameter.name)
    ]


def _is_said(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


YEAR = 525_600  # minutes
MOST_THREADS = 1024
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
        max=MOST_THREADS,
    ),
]
Cores = Annotated[str, typer.Option(help="Cores for Snakemake, a number or `all`.", callback=_number_or_all)]
Done = Annotated[Path | None, typer.Option("--done", hidden=True, help="File that says the job is done.")]
