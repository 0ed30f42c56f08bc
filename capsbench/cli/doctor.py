"""`capsbench doctor`: what this machine has, and what is wrong with it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rich.console import Console

from capsbench.cli.snakemake import gpus
from capsbench.data.source import find_source, verify
from capsbench.errors import CapsbenchError
from capsbench.plan import results_root
from capsbench.provenance import git_state, machine, versions

NEEDED_GB = 5  # results and checkpoints of the paper's plan


def examine(console: Console) -> int:
    """Print versions, device, data and disk; returns the number of things that are wrong."""
    import torch

    from capsbench.training.precisions import precisions

    problems: list[str] = []
    for name, version in versions().items():
        console.print(f"{name:16} {version}")
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        problems.append(f"Python {sys.version.split()[0]} is not tested; use 3.11, 3.12 or 3.13.")
    here = machine()
    for name in ("system", "processor", "cores", "gpu", "driver"):
        console.print(f"{name:16} {here[name] if here[name] is not None else 'none'}")
    usable = torch.cuda.is_available()
    if here["gpu"] and gpus() and not usable:
        problems.append(
            f"There is a {here['gpu']}, but this torch ({torch.__version__}) cannot use it; install a CUDA build."
        )
    said = os.environ.get("CAPSBENCH_DEVICE")
    there = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))] if usable else []
    if said and said not in ["cpu", *there]:
        problems.append(f"CAPSBENCH_DEVICE is {said}, but the devices here are {', '.join(['cpu', *there])}.")
    device = said or ("cuda" if usable else "cpu")
    console.print(f"{'trains on':16} {device}{' (CAPSBENCH_DEVICE)' if said else ''}")
    if said in (None, "", "cpu", *there):
        console.print(f"{'computes in':16} {', '.join(precisions(torch.device(device)))}")
    git = git_state()
    since = {True: " (changed since)", False: "", None: " (git cannot tell whether files differ from it)"}
    console.print(f"{'commit':16} {git['commit'] + since[git['dirty']] if git['commit'] else 'not a clone'}")
    problems += _examine_data(console) + _examine_disk(console)
    for problem in problems:
        console.print(f"wrong: {problem}", style="bold red")
    if not problems:
        console.print("Nothing is wrong.")
    return len(problems)


def _examine_data(console: Console) -> list[str]:
    try:
        source = find_source("mnist", download=False, fallback=not os.environ.get("CAPSBENCH_DATA"))
        if source.dataset == "mnist":
            verify(source)
            console.print(f"{'MNIST':16} {source.folder}, all files intact")
        else:
            console.print(f"{'MNIST':16} not here yet; it is downloaded when a plan first needs it")
    except CapsbenchError as error:
        return [str(error)]
    return []


def _examine_disk(console: Console) -> list[str]:
    root = results_root().absolute()
    try:
        root.stat()
    except FileNotFoundError:
        pass  # it is made when it is needed
    except OSError as error:
        return [f"{root} cannot be a folder ({error.strerror}); name another with CAPSBENCH_RESULTS."]
    existing = next(path for path in (root, *root.parents) if path.exists())
    if not existing.is_dir():
        return [f"{existing} is not a folder; name another with CAPSBENCH_RESULTS."]
    free = shutil.disk_usage(existing).free / 2**30
    console.print(f"{'results':16} {root} ({free:.0f} GB free)")
    problems = []
    if free < NEEDED_GB:
        problems.append(
            f"{existing} has {free:.1f} GB free; the paper's plan needs {NEEDED_GB}: set CAPSBENCH_RESULTS to "
            "another disk."
        )
    if not os.access(existing, os.W_OK):
        problems.append(f"{existing} cannot be written to; set CAPSBENCH_RESULTS to another folder.")
    if not (Path(__file__).resolve().parents[2] / "Snakefile").is_file():
        problems.append("There is no Snakefile next to the package: whole plans run only from a clone.")
    return problems
