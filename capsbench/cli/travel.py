"""The commands for results and models that travel: to a machine without a network, back, and to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capsbench.cli.app import app, console
from capsbench.cli.options import Device, Seed, Task, Threads, Variant, check_minutes
from capsbench.errors import CapsbenchError, ResourceError, counted
from capsbench.plan import config_folder


@app.command()
def weights(
    run: Annotated[Path, typer.Argument(help="The folder of a finished MNIST run.")],
    to: Annotated[Path, typer.Option(help="The safetensors file to write.")],
    device: Device = None,
) -> None:
    """Write a run's weights as a small file (bf16) that `capsbench evaluate --weights` can score again anywhere."""
    from capsbench.cli.weights import publish_weights

    publish_weights(console, run, to, device)


@app.command()
def work(
    paths: Annotated[list[Path], typer.Argument(help="Plans, the most important first.")],
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop after this many minutes; training is saved first.", callback=check_minutes),
    ] = None,
    task: Task = None,
    variant: Variant = None,
    seed: Seed = None,
    lent: Annotated[
        float | None,
        typer.Option(
            help="Minutes until the machine is gone; no run known to take longer is begun.", callback=check_minutes
        ),
    ] = None,
    device: Device = None,
    threads: Threads = 1,
) -> None:
    """Train and evaluate plans run by run, without Snakemake; also for machines that are lent for minutes.

    Exit code 4: some runs are not done because time was up, because they would have taken too long, or because a disk
    is full. Exit code 2: the only runs left are those that failed, each of them named. Exit code 3: all are done, but
    the loss of some was not finite.
    """
    from capsbench.cli.chosen import Wanted
    from capsbench.cli.work import work as until_time_is_up

    wanted = Wanted(task or (), variant or (), seed or ())
    undone = until_time_is_up(console, paths, minutes, device, threads, wanted, lent)
    failed = f"{counted(undone.failed, 'run')} could not be done, for the reasons above"
    if undone.waiting:
        also = f" {failed}." if undone.failed else ""
        raise ResourceError(
            f"{counted(undone.waiting, 'run')} not done for lack of time; give the same command again to go on.{also}"
        )
    if undone.failed:
        raise CapsbenchError(f"{failed}; all others are done. Give the same command again to retry them.")
    if undone.not_finite:
        console.print(f"all is done; the loss of {counted(undone.not_finite, 'run')} was not finite", style="bold red")
        raise typer.Exit(3)


@app.command()
def pack(
    plans: Annotated[
        list[Path] | None,
        typer.Argument(help="Plans for run.sh; by default paper, ladder, ablation, paper-authors and precision."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The archive; by default capsbench-pack.tar.xz, or <results>.tar.gz.")
    ] = None,
    python: Annotated[str | None, typer.Option(help="The other machine's Python; by default 3.12.")] = None,
    have: Annotated[
        Path | None, typer.Option(help="File that lists the packages it has besides PyTorch, one per line.")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="Pack this results folder instead, without weights.")] = None,
) -> None:
    """Pack code, MNIST and missing packages for a GPU machine without a network, or the results that it brings back."""
    from capsbench.cli.pack import pack as pack_code
    from capsbench.cli.pack_results import archived_name, pack_results

    if results is not None:
        if plans or python or have:
            raise CapsbenchError("--results packs only a folder of results; leave out plans, --python and --have.")
        pack_results(console, results, to or Path(f"{archived_name(results)}.tar.gz"))
        return
    names = ("paper", "ladder", "ablation", "paper-authors", "precision")
    plans = plans or [config_folder() / f"{name}.yaml" for name in names]
    pack_code(console, plans, to or Path("capsbench-pack.tar.xz"), python or "3.12", have)


@app.command()
def bring(
    places: Annotated[
        list[Path], typer.Argument(help="Archives made by `capsbench pack --results`, or results folders.")
    ],
    plan: Annotated[
        Path | None, typer.Option(help="The plan whose runs they become; by default the plan that made them.")
    ] = None,
) -> None:
    """Bring in runs that are not done here yet, from another machine or from another plan that has the same row."""
    from capsbench.cli.bring import bring as bring_runs

    bring_runs(console, places, plan)
