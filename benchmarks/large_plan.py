"""How long a large plan takes: to plan, to resume with nothing to do, to aggregate, to report; and how much memory.

    python benchmarks/large_plan.py [--runs 250 500 1000 2000]

It writes stored results that nobody trained into a temporary folder, of variants of one CNN with ten seeds each, and
prints one row for each number of runs. Each figure is of a process of its own, its start included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from arguments import at_least

from capsbench.evaluation.done import evaluation_digest
from capsbench.files import write_json
from capsbench.pipeline import dataset_record, numbers_digest, open_house
from capsbench.plan import House
from capsbench.plan.done import run_digests

REPOSITORY = Path(__file__).resolve().parent.parent
SEEDS = 10
STEPS = {
    "plan": ["-m", "capsbench", "plan", "{plan}"],
    "resume, nothing to do": [
        "-m",
        "snakemake",
        "--snakefile",
        "{snakefile}",
        "--configfile",
        "{plan}",
        "--cores",
        "1",
    ],
    "aggregate": [
        "-c",
        "from pathlib import Path; from capsbench.report.collect import collect; collect(Path('{results}'))",
    ],
    "report": ["-m", "capsbench", "report", "{results}"],
}


def write_plan(path: Path, runs: int) -> None:
    """A plan of `runs` runs: as many variants of one CNN as it takes, SEEDS seeds each."""
    variants = {f"cnn-{n}": {"base": "cnn", "title": f"CNN {n}"} for n in range(runs // SEEDS)}
    tasks = {"mnist": {"variants": list(variants), "test_images": 20}}
    plan = {
        "name": "large", "budget": "reduced", "seeds": list(range(SEEDS)), "uci_digits": True, "width": 0.0625,
        "training": {"steps": 4, "batch": 16, "precision": "float32"}, "variants": variants, "tasks": tasks,
    }  # fmt: skip
    path.write_text(json.dumps(plan), encoding="utf-8")  # YAML holds JSON


def write_results(house: House, dataset: dict[str, str]) -> None:
    """Manifests, histories and metrics of every run as training and evaluation leave them; the numbers are made up."""
    rng = np.random.default_rng(0)
    names = {key: dataset[key] for key in ("name", "badge")}
    for cell in house.cells:
        for seed in cell.seeds:
            digests = run_digests(house, cell, seed, dataset["digest"])
            folder = house.run_folder(cell, seed)
            run = {"task": cell.task, "variant": cell.folder_name, "seed": seed}
            manifest = {
                "schema": 1, "run": run, "status": "done", "reason": None, "digest": digests["run"],
                "digests": {key: value for key, value in digests.items() if key != "run"}, "config": cell.config(),
                "resolved": {"precision": "float32", "threads": 1, "device": "cpu"}, "dataset": names,
                "reductions": house.reductions(cell), "parameters": 12345, "steps": 4, "final_loss": 0.5,
                "weights": rng.bytes(32).hex(), "seconds": 1.0, "peak_memory_mb": 100.0,
                "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:01Z", "resumed": 0, "versions": {},
                "machine": {}, "git": {"commit": None, "dirty": None},
            }  # fmt: skip
            write_json(folder / "manifest.json", manifest)
            rows = "".join(f"{step},{step / 100},{1 / step},{1 / step},,0.001,1000\n" for step in range(1, 201))
            header = "step,epoch,loss,classification,reconstruction,rate,images_per_second\n"
            (folder / "history.csv").write_text(header + rows, encoding="utf-8")
            error = float(rng.normal(2, 0.2))
            metrics = {
                "schema": 1, "run": run, "condition": "test", "status": "done", "reason": None, "dataset": names,
                "images": 20, "digest": evaluation_digest(cell, manifest), "weights": manifest["weights"],
                "seconds": 0.1, "metrics": {"error": {"value": error, "unit": "%"}},
            }  # fmt: skip
            write_json(folder / "test" / "metrics.json", metrics)
        specs = house.folder / "cells" / cell.task / cell.folder_name
        write_json(specs / "trained.json", [])
        write_json(specs / "evaluated.json", [])


def keep_promises(house: House, dataset: dict[str, str]) -> None:
    """What the pipeline's last jobs leave, so that nothing is left to do."""
    folder = house.folder
    write_json(folder / "plan.json", house.describe(dataset))
    write_json(folder / "data.json", dataset)
    (folder / "report.html").write_text("not drawn yet", encoding="utf-8")
    write_json(folder / "cells" / "reported.json", {"numbers": numbers_digest(folder), "files": ["report.html"]})


def measured(words: list[str], folder: Path) -> tuple[float, float, str]:
    """Seconds, peak memory in MB and what was said of one process. Raises RuntimeError where it fails."""
    before = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(words)} failed:\n{said}")
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return time.perf_counter() - before, usage.ru_maxrss / scale, said


def measure(runs: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Seconds and MB of each step for a plan of so many runs."""
    os.environ |= {"CAPSBENCH_RESULTS": str(folder / "results"), "CAPSBENCH_STAND_IN": "1"}
    os.environ |= {"CAPSBENCH_CACHE": str(folder / "cache"), "PYTHONPATH": str(REPOSITORY)}
    os.environ.pop("CAPSBENCH_DATA", None)
    path = folder / "large.yaml"
    write_plan(path, runs)
    house, source = open_house(path, download=False)
    dataset = dataset_record(source)
    write_results(house, dataset)
    keep_promises(house, dataset)
    places = {"plan": path, "snakefile": REPOSITORY / "Snakefile", "results": house.folder}
    # once unmeasured: Snakemake gets its records, and spec files their times
    measured([*_filled("resume, nothing to do", places), "--touch"], folder)
    found = {}
    for step in STEPS:
        seconds, memory, said = measured(_filled(step, places), folder)
        if step.startswith("resume") and "Nothing to be done" not in said:
            raise RuntimeError(f"there was something to do:\n{said}")
        found[step] = (seconds, memory)
    return found


def _filled(step: str, places: dict[str, Path]) -> list[str]:
    return [word.format(**places) for word in STEPS[step]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=at_least(SEEDS), nargs="+", default=[250, 500, 1000, 2000])
    counts = parser.parse_args().runs
    print(f"| runs | {' | '.join(STEPS)} |\n|---|{'---|' * len(STEPS)}")
    for runs in counts:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(runs, Path(folder))
        cells = " | ".join(f"{seconds:.1f} s, {memory:,.0f} MB" for seconds, memory in found.values())
        print(f"| {runs:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
