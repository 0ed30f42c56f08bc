"""Whether a stored run of the paper's CapsNet began as an independent implementation trains: its first mean losses.

    python benchmarks/same_curve.py results/paper/runs/mnist/capsnet-r3-recon/seed-0 [--rows 2] [--threads 2]

A run may have been made by this project's own kernels, on a GPU. Here its first weights, batches and learning rates go
into `PlainCapsNet` (capsbench/bench/plain.py), which shares no line with the suite's model: torch's convolutions, its
autograd through all votes, its Adam and a loss written out again, in float32 on a CPU. For each row of history.csv it
prints the mean loss that is stored, the one that comes out here, their difference, and how far the row's other seeds
are from the stored one. Rounding drives two trainings apart, so means agree, not bits; a row that is off by more than
--within makes the exit code 1. Later steps, and evaluation, are not looked at.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from arguments import at_least
from finished_run import as_planned, manifest_of
from rich.progress import track

from capsbench.bench.plain import PlainCapsNet
from capsbench.data.digits import load_digits
from capsbench.errors import CapsbenchError
from capsbench.pipeline import dataset_record
from capsbench.training.digits import training_digits
from capsbench.training.run import Setting, make_stream, new_model
from capsbench.training.schedule import rate_at

REPOSITORY = Path(__file__).resolve().parent.parent
PASSES = {"capsnet-r1-recon": 1, "capsnet-r3-recon": 3}  # the rows whose model PlainCapsNet is


def main() -> int:
    """Train again and compare; 0 if every row agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a finished run, with history.csv and manifest.json")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "paper.yaml")
    parser.add_argument(
        "--rows", type=at_least(1), default=2, help="of history.csv; a row is a mean over the steps before it"
    )
    parser.add_argument("--threads", type=at_least(1), default=2)
    parser.add_argument("--within", type=float, default=0.02, help="a relative difference that rounding may make")
    given = parser.parse_args()
    manifest = manifest_of(given.run)
    try:
        stored = losses_of(given.run)
    except (OSError, ValueError) as error:
        sys.exit(f"{given.run} is no finished run: {error}")
    run, readings = manifest["run"], list(stored)[: given.rows]
    if run["task"] != "mnist" or run["variant"] not in PASSES:
        sys.exit(f"{given.run} is of {run['task']}/{run['variant']}; this compares mnist's {' and '.join(PASSES)}.")
    torch.set_num_threads(given.threads)
    here = trained_again(given.plan, manifest, readings)
    others = [losses_of(path.parent) for path in given.run.parent.glob("*/manifest.json") if path.parent != given.run]
    print(f"{'steps':>6} {'stored':>9} {'here':>9} {'difference':>11}  other seeds of the row, from the stored one")
    differences = []
    for step, again in zip(readings, here, strict=True):
        loss = stored[step]
        differences.append(abs(again / loss - 1))
        seeds = sorted(f"{other[step] / loss - 1:+.2%}" for other in others if step in other)
        print(f"{step:>6} {loss:>9.5f} {again:>9.5f} {again / loss - 1:>+11.2%}  {', '.join(seeds) or 'none'}")
    return int(max(differences) > given.within)


def losses_of(run: Path) -> dict[int, float]:
    """The rows of a run's history.csv: its mean losses, by the step at which they were read."""
    rows = pd.read_csv(run / "history.csv")
    return dict(zip(rows["step"], rows["loss"], strict=True))


def trained_again(plan: Path, manifest: dict[str, Any], readings: list[int]) -> list[float]:
    """The mean losses of PlainCapsNet up to each of the steps `readings`, trained as the run of the manifest was.

    Ends this process with a sentence where plan or data are wrong, or the plan trains that row in another way.
    """
    variant, seed = manifest["run"]["variant"], manifest["run"]["seed"]
    house, source, cell = as_planned(manifest, plan)
    try:
        digits = load_digits(source, torch.device("cpu"))
    except CapsbenchError as error:
        sys.exit(str(error))
    setting = Setting(house, cell, digits, dataset_record(source), torch.device("cpu"), torch.get_num_threads(), print)
    stream = make_stream(cell, training_digits(cell, digits.train, seed), seed)
    model = PlainCapsNet()
    model.ITERATIONS = PASSES[variant]
    model.load_state_dict(new_model(setting, seed).state_dict())
    optimiser = torch.optim.Adam(model.parameters())
    steps, losses, means = cell.steps(stream.size), [], []
    for step in track(range(readings[-1]), "training again"):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step, steps, cell.training)
        loss = model.loss(stream.batch(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if step + 1 in readings:
            means.append(statistics.fmean(losses))
            losses = []
    return means


if __name__ == "__main__":
    sys.exit(main())
