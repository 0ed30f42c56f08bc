"""The commands, each a few lines; what they do is in the stages. torch is imported only where it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from capsbench import __version__
from capsbench.cli.chosen import chosen, rows_of, to_time
from capsbench.cli.log import log_to
from capsbench.cli.opening import open_plan
from capsbench.cli.options import MOST_THREADS, Cores, Device, Done, PlanPath, Seed, Task, Threads, Variant
from capsbench.cli.terminal import Terminal
from capsbench.errors import CapsbenchError, counted
from capsbench.pipeline import dataset_record, open_house, write_plan
from capsbench.plan import House, config_folder
from capsbench.plan.compare import same_titles
from capsbench.provenance import cores

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Terminal(highlight=False, soft_wrap=True, markup=False)  # plans and folders hold brackets


def _version(wanted: bool) -> None:
    if wanted:
        print(f"capsbench {__version__}")
        raise typer.Exit


@app.callback(help="The reproducibility benchmark of Capsule Networks.")
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
    log: Annotated[Path | None, typer.Option(hidden=True, help="File that also gets the output.")] = None,
) -> None:
    if log is not None:
        log_to(log)


@app.command()
def plan(path: PlanPath) -> None:
    """Check a plan and list its runs."""
    house = House.load(path)
    table = Table("task", "variant", "seeds", "steps", "batch", title=f"{house.name}: {house.plan.about}")
    for cell in house.cells:
        steps = cell.steps(house.epoch_images(cell.options))
        seeds = " ".join(map(str, cell.seeds))
        table.add_row(cell.task, cell.variant, seeds, f"{steps:,}", str(cell.training.batch))
    console.print(table)
    for task in house.plan.tasks.given():
        words = house.task_reductions(task)
        console.print(f"{task}, with less than the paper's protocol: {'; '.join(words) or 'nothing'}")
    for sentence in same_titles(house):
        console.print(sentence, style="yellow")
    runs = counted(sum(len(cell.seeds) for cell in house.cells), "run")
    cells = counted(len(house.cells), "cell")
    console.print(f"{runs} in {cells}, budget {house.plan.budget}, into {house.folder}")


@app.command()
def variants(
    name: Annotated[str | None, typer.Argument(help="Show this one in full; also takes my_file:my_routing.")] = None,
    folder: Annotated[Path, typer.Option(help="The folder that contains my_file.py.")] = Path(),
    plan: Annotated[Path | None, typer.Option(help="List those of this plan, its own among them, or show one.")] = None,
) -> None:
    """List the variants that a plan can name, or show one: its resolved spec, at full width, and parameters."""
    from capsbench.cli.variants import list_variants, show_variant

    if plan is not None:
        if folder != Path():
            raise CapsbenchError("--plan and --folder exclude each other: a plan's routings lie beside it.")
        folder = plan.parent
    house = None if plan is None else House.load(plan)
    if name is None:
        list_variants(console, folder, house)
    else:
        show_variant(console, name, folder, house)


@app.command()
def data(
    path: Annotated[Path | None, typer.Argument(help="A plan; by default config/quick.yaml.")] = None,
    done: Done = None,
) -> None:
    """Find (or download) a plan's data and check every file."""
    from capsbench.data.source import verify
    from capsbench.files import write_json

    house, source = open_house(path or config_folder() / "quick.yaml")
    if source.notice:
        console.print(source.notice, style="bold yellow")
    sums = verify(source)
    for file, digest in sums.items():
        console.print(f"{digest}  {file}")
    console.print(f"{house.path}: {source.badge} from {source.origin}, all files intact.")
    if house.plan.tasks.affnist is not None:
        from capsbench.cli.affnist import find_affnist

        console.print(find_affnist(house, source, asked=done is None), markup=False)
    if done:
        write_json(done, {**dataset_record(source), "files": sums, "notice": source.notice})


@app.command()
def train(
    path: PlanPath,
    task: Task = None,
    variant: Variant = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = 1,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard events next to each run's history.")] = False,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Evaluate the trained runs as well.")] = False,
    done: Done = None,
) -> None:
    """Train a plan's runs; finished ones are skipped, stopped ones resume.

    Exit code 3: nothing is left to train, but a run's loss was not finite (its status is failed).
    """
    from capsbench.cli.affnist import say_affnist
    from capsbench.cli.stages import train_cells

    house, source = open_plan(console, path)
    cells = chosen(house, task, variant, seed)
    if done is None:  # else a job of Snakemake's, whose job `data` has found it
        say_affnist(console, house, source, cells)
    finite = train_cells(
        console, house, source, cells, device, threads, tensorboard=tensorboard, done=done, evaluate=evaluate
    )
    if not finite and done is None:  # to Snakemake such a run is a result, as any other
        raise typer.Exit(3)


@app.command()
def tune(
    path: PlanPath,
    task: Task = None,
    variant: Variant = None,
    device: Device = None,
    threads: Threads = 1,
    done: Done = None,
) -> None:
    """Choose learning rate and schedule for a plan's tuned rows, on held-out training digits; resumes if stopped."""
    from capsbench.cli.tune import tune_cells

    house, source = open_plan(console, path)
    tune_cells(console, house, source, rows_of(house, task, variant), device, threads, done)


@app.command()
def evaluate(
    path: Annotated[Path | None, typer.Argument(help="A plan, such as config/quick.yaml.")] = None,
    task: Task = None,
    variant: Variant = None,
    seed: Seed = None,
    device: Device = None,
    threads: Threads = 1,
    weights: Annotated[
        Path | None, typer.Option(help="A file written by `capsbench weights`, instead of a plan.")
    ] = None,
    done: Done = None,
) -> None:
    """Evaluate a plan's trained runs under every condition of their task, or a file of weights.

    Runs that are not trained yet are skipped, and the output says how many.
    With --weights: exit code 1 if the error is not the one recorded in the file.
    """
    if path is None and weights is None:
        raise CapsbenchError("Name a plan, such as config/quick.yaml, or a file of weights with --weights.")
    if path is not None and weights is not None:
        raise CapsbenchError("Name a plan or, with --weights, a file; not both.")
    if weights is not None:
        if task or variant or seed or threads != 1:
            raise CapsbenchError("--weights scores one model: leave out --task, --variant, --seed and --threads.")
        from capsbench.cli.weights import evaluate_weights

        if not evaluate_weights(console, weights, device):
            raise typer.Exit(1)
        return
    assert path is not None
    from capsbench.cli.stages import evaluate_cells

    house, source = open_plan(console, path)
    evaluate_cells(console, house, source, chosen(house, task, variant, seed), device, threads, done)


@app.command()
def cost(path: PlanPath, device: Device = None, threads: Threads = 1, done: Done = None) -> None:
    """Measure what each variant of a plan costs in parameters, FLOPs, time and memory, all in one process."""
    from capsbench.cli.cost import measure

    house, _ = open_plan(console, path)
    measure(console, house, device, threads, done)


@app.command()
def report(
    where: Annotated[Path, typer.Argument(help="A plan, or a folder of results.")],
    done: Done = None,
) -> None:
    """Make tables, figures and report.html from whatever runs are finished."""
    from capsbench.cli.reporting import make_report

    if where.suffix in (".yaml", ".yml"):
        house, source = open_plan(console, where, data=False)
        make_report(console, house.folder, lambda: write_plan(house, dataset_record(source)), done)
    else:
        make_report(console, where, None, done)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="A folder of results, or a plan.")],
    b: Annotated[Path, typer.Argument(help="Another one.")],
    every_metric: Annotated[
        bool, typer.Option("--all", help="Compare every metric, not only those in the tables.")
    ] = False,
) -> None:
    """Compare two folders of results: which means moved, whether by more than noise, and what else differs."""
    from capsbench.cli.folders import compare_folders

    compare_folders(console, a, b, every_metric)


@app.command()
def export(
    where: Annotated[Path, typer.Argument(help="A plan, or a folder of results.")],
    to: Annotated[Path | None, typer.Option(help="Output folder; by default export/ in the results.")] = None,
) -> None:
    """Write all metrics as one CSV and Parquet table, and the manifests, tables and figures as an RO-Crate (zip)."""
    from capsbench.cli.folders import export_folder

    export_folder(console, where, to)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    path: PlanPath,
    cores: Cores = "all",
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only list the jobs that would run.")] = False,
) -> None:
    """Run a whole plan through Snakemake and print its tables; other options are passed on to Snakemake.

    Exit code 3: everything ran, but a run's loss was not finite (its status is failed, its row says so). Exit code 2:
    files of its results are damaged, and the tables and figures are without them.
    """
    from capsbench.cli.reporting import print_results
    from capsbench.cli.snakemake import list_jobs, run_jobs

    if str(path).startswith("-"):
        raise CapsbenchError(f"Name the plan before Snakemake's options: `capsbench run PLAN {path} ...`.")
    if dry_run or "--dryrun" in context.args:  # as Snakemake calls it too
        raise typer.Exit(list_jobs(path, cores, [word for word in context.args if word != "--dryrun"]))
    folder = run_jobs(console, path, cores, context.args)
    if print_results(console, folder):
        raise typer.Exit(3)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder of results, such as results/quick.")],
    run: Annotated[str | None, typer.Option(help="The run, as task/variant/seed.")] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Draw a run at random; the seed of the draw is printed.")
    ] = False,
    draw: Annotated[int | None, typer.Option(help="With --random: the seed of the draw.", min=0)] = None,
    plan: Annotated[Path | None, typer.Option(help="The plan, if it has been moved.")] = None,
    device: Device = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads; by default as many as the run had.", min=1, max=MOST_THREADS)
    ] = None,
) -> None:
    """Train a finished run again and compare weights, predictions and metrics with the stored ones.

    Exit code 1: they differ; the output says where, by how much, and what was different when the run was made.
    """
    from capsbench.cli.verify import choose, verify_run

    key = choose(console, folder, run, random, draw)
    if not verify_run(console, folder, key, plan, device, threads):
        raise typer.Exit(1)


@app.command()
def bench(
    context: typer.Context,
    path: Annotated[
        Path | None, typer.Argument(help="The plan whose cells are timed; by default config/paper.yaml.")
    ] = None,
    task: Annotated[str, typer.Option(help="The task.")] = "mnist",
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="A variant to time; can be repeated. By default capsnet-r3-recon, else the task's first row."
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step; by default the plan's batch size.", min=1)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of timing; by default 5, or 20 on a GPU.", min=2)] = None,
    device: Device = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 means all cores.", min=0, max=MOST_THREADS)] = 0,
    largest: Annotated[
        int | None,
        typer.Option("--grow", help="Also measure how cost grows with the batch, up to this size.", min=32, max=2048),
    ] = None,
    routing: Annotated[
        bool, typer.Option("--routing", help="Also time the capsule layer alone, with and without votes in memory.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option(help="JSON file for all measurements, the machine and the versions.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the roofline figure and, with --grow, the growth figure.")
    ] = None,
    stored: Annotated[Path | None, typer.Option("--from", help="Show what --json wrote; measure nothing.")] = None,
) -> None:
    """Time training and inference against the plain PyTorch CapsNet, in one process."""
    from capsbench.cli.bench import run_bench, show_stored

    if stored is not None:
        show_stored(console, context, stored, figures)
        return
    house = House.load(path or config_folder() / "paper.yaml")
    cells = to_time(house, task, variant)
    run_bench(
        house,
        cells,
        batch=batch,
        rounds=rounds,
        device=device,
        threads=threads or cores(),
        largest=largest,
        routing=routing,
        json=json,
        figures=figures,
        console=console,
    )


@app.command()
def doctor() -> None:
    """Check versions, devices, data and free disk space of this machine, and say what is wrong."""
    from capsbench.cli.doctor import examine

    if examine(console):
        raise typer.Exit(1)
