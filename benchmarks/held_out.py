"""What a choice does to CapsNet's error, told without the test digits: on 10,000 training digits that are held out.

    python benchmarks/held_out.py capsnet-official --epochs 10 --seeds 0 1 2 --precision bf16 --to FILE
    python benchmarks/held_out.py --compare FILE FILE ...

A row trains as a plan's task mnist does (config/paper.yaml's) but on all but the first 10,000 training digits, and is
judged by those: the error after the last step. It is one trial of `capsbench tune`, that at the paper's rate and by the
authors' schedule, scaled to the length, whatever the plan says of these two. Code beside the plan counts too
(`my_file:my_routing`). The file gets each seed as it is done, with what the training's manifest says of commit, machine
and seconds; the same command goes on, also with more seeds. What was made already is taken from .cache/held-out, if on
the same kind of device and as many threads.
--compare prints each file's mean with its 95 % interval, and its difference from the first one's (Welch's t): both
cover the choice of seed alone, and are not corrected for how many are compared.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from arguments import at_least
from rich.console import Console

from capsbench.cli.held import held_device
from capsbench.cli.inputs import try_routings
from capsbench.cli.options import file_to_write, is_json
from capsbench.cli.precision import precision_of
from capsbench.cli.progress import show_progress
from capsbench.data.digits import load_digits
from capsbench.errors import CapsbenchError
from capsbench.files import read_json, write_json
from capsbench.locks import sole
from capsbench.pipeline import dataset_record, open_house
from capsbench.pipeline.copies import sources_outside
from capsbench.plan import Cell, House
from capsbench.plan.done import is_done, run_digests, trial_digest
from capsbench.plan.tuning import Point
from capsbench.plan.yaml_file import read_yaml
from capsbench.provenance import git_state
from capsbench.report.statistics import difference, one_sample
from capsbench.training.run import Setting
from capsbench.training.tune import judge, judged

REPOSITORY = Path(__file__).resolve().parent.parent
WORK = REPOSITORY / ".cache" / "held-out"
HELD_OUT = 10_000
PAPER = Point(1e-3, 0.96)  # of tuning's grid: Adam's rate and the authors' decay
OF_THE_PLAN = ("dataset", "data_folder", "uci_digits", "width")
ONE_ROW = ("epochs", "precision", "device", "config", "dataset")  # what all seeds of a file have alike


def main() -> int:
    """Train and judge the seeds that a file lacks, or compare files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variant", nargs="?", help="the row that trains")
    parser.add_argument("--epochs", type=at_least(1), help="of the digits that are not held out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "paper.yaml")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=at_least(1), default=2)
    parser.add_argument("--to", type=Path, help="the file that gets the figures")
    parser.add_argument("--compare", type=Path, nargs="+", help="files; the others are compared with the first one")
    given = parser.parse_args()
    git_state()  # kept: the commit that runs, whatever is committed meanwhile
    try:
        if given.compare:
            return compare([(path, record_in(path)) for path in given.compare])
        if not (given.variant and given.epochs and given.to):
            parser.error("name a variant, --epochs, and the file of the figures with --to")
        given.to = file_to_write("--to", given.to, "held-out.json", is_json)
        with tempfile.TemporaryDirectory(prefix="capsbench-held-out-") as folder:
            return make(given, derived_plan(given, Path(folder)))
    except CapsbenchError as error:
        sys.exit(str(error))


def make(given: argparse.Namespace, plan: Path) -> int:
    """Train and judge one row's seeds by the derived plan; those that the file has are left alone."""
    console = Console()
    house, source = open_house(plan)
    trial = paper_s_trial(house, house.cells[-1])
    try_routings(console, house, [trial])
    dataset = dataset_record(source)
    with held_device(console, given.device, given.threads) as device:
        # a figure that another device or number of threads has made would not be this command's
        house = replace(house, root=WORK / f"{device.type}-{given.threads}-threads")
        setting = Setting(house, trial, load_digits(source, device), dataset, device, given.threads, console.print)
        about = {
            "schema": 1, "variant": given.variant, "epochs": given.epochs, "precision": given.precision,
            "device": device.type, "config": trial.config(), "dataset": dataset, "held_out": trial.held_out,
        }  # fmt: skip
        stored = record_in(given.to) if given.to.exists() else about | {"runs": {}}
        if other := [key for key in ONE_ROW if stored.get(key) != about[key]]:
            sys.exit(f"{given.to} is of another {other[0]}: {stored.get(other[0])}; name another file with --to.")
        resolved = precision_of(setting, given.seeds[0])
        for seed in given.seeds:
            digest = trial_digest(house, trial, seed, dataset["digest"])
            if stored["runs"].get(str(seed), {}).get("digest") == digest:
                continue
            folder, digests = house.run_folder(trial, seed), run_digests(house, trial, seed, dataset["digest"])
            with sole(folder, console.print):
                figure = judged(folder, digest)
                if figure is None or is_done(folder, digests) is None:
                    with show_progress(console, trial, seed) as show:
                        figure = judge(setting, seed, digest, show, resolved)
                made = made_by(read_json(folder / "manifest.json"))
            stored = record_in(given.to) if given.to.exists() else stored  # another process may have made others
            stored["runs"] = {**stored["runs"], str(seed): figure | made}
            write_json(given.to, stored)
            console.print(f"{given.variant} seed {seed}: {said(figure['error'])} held-out error", highlight=False)
    return 0


def made_by(manifest: dict[str, Any]) -> dict[str, Any]:
    """Of a training's manifest what a seed of the file has: when, where, by which code and in how many seconds."""
    kept = {key: manifest[key] for key in ("seconds", "resumed", "machine", "versions")}
    git = {key: manifest["git"][key] for key in ("commit", "dirty")}
    return kept | git | {"threads": manifest["resolved"]["threads"], "made": manifest["finished"][:10]}


def derived_plan(given: argparse.Namespace, folder: Path) -> Path:
    """Write the plan of one row into a folder, and beside it the code that lies beside `--plan`; returns its path."""
    for name, path in sources_outside(House.load(given.plan)).items():
        if path != given.plan:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name)
    name = f"{given.variant.replace(':', '.')}-{given.epochs}-epochs-{given.precision}"
    plan = folder / f"{name}.yaml"
    plan.write_text(yaml.safe_dump(plan_of(given) | {"name": name}), encoding="utf-8")
    return plan


def plan_of(given: argparse.Namespace) -> dict[str, Any]:
    """A plan whose one row is tuned, for the sake of its trials: the data and the training are those of `--plan`."""
    plan = read_yaml(given.plan)
    training = plan.get("training", {}) | plan.get("tasks", {}).get("mnist", {}).get("training", {})
    length = {"epochs": given.epochs, "precision": given.precision}
    return {key: plan[key] for key in OF_THE_PLAN if key in plan} | {
        "variants": with_bases(given.variant, plan.get("variants", {})),
        "budget": "reduced",
        "seeds": [max(given.seeds) + 1],  # a plan's own are others than its trials'
        "training": {key: value for key, value in training.items() if key != "steps"} | length,
        "tuning": {"epochs": given.epochs, "seeds": given.seeds, "held_out": HELD_OUT},
        "tasks": {"mnist": {"variants": [given.variant], "tuned": True}},
    }


def with_bases(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """Of a plan's own variants the row and what it is made from; a plan names no other that it does not train."""
    found: dict[str, Any] = {}
    while name in own and name not in found:
        found[name] = own[name]
        name = own[name].get("base", "")
    return found


def paper_s_trial(house: House, row: Cell) -> Cell:
    """Of a tuned row's trials the one that trains at the paper's rate, by the authors' schedule."""
    return next(trial for trial in house.trials(row) if trial.trial is not None and trial.trial.point == PAPER)


def record_in(path: Path) -> dict[str, Any]:
    """A file of figures. Ends this process where it cannot be read."""
    try:
        found = read_json(path)
        return {**found, "runs": dict(found["runs"])}
    except (OSError, ValueError, KeyError, TypeError):
        sys.exit(f"{path} is no file that this script has written.")


def said(error: float | None) -> str:
    """An error in percent, or that there is none."""
    return "no" if error is None else f"{error:.2f} %"


def compare(records: list[tuple[Path, dict[str, Any]]]) -> int:
    """Print every file's mean and its difference from the first one's; 0."""
    first = errors_of(*records[0])
    width = max(len(path.stem) for path, _ in records)
    print(f"{'':{width}}   n  error, %        95 % interval   less the first one's   95 % interval")
    for place, (path, record) in enumerate(records):
        errors = errors_of(path, record)
        line = f"{path.stem:{width}} {len(errors):3} {sum(errors) / len(errors):9.3f} {interval(one_sample(errors))}"
        if place:
            less = sum(errors) / len(errors) - sum(first) / len(first)
            line += f" {less:+22.3f} {interval(difference(errors, first), '+')}"
        print(line.rstrip())
    return 0


def errors_of(path: Path, record: dict[str, Any]) -> list[float]:
    """The errors of a file in percent, by seed. Ends this process where a seed has none."""
    runs = sorted(record["runs"].items(), key=lambda run: int(run[0]))
    if not runs or any(run["error"] is None for _, run in runs):
        sys.exit(f"{path} has no seed, or one whose loss was not finite.")
    return [run["error"] for _, run in runs]


def interval(estimate: Any, sign: str = "") -> str:
    """`0.365 to 0.419`, or nothing where seeds leave none."""
    if estimate is None:
        return f"{'-':>20}"
    low, high = estimate.interval()
    return f"{f'{low:{sign}.3f} to {high:{sign}.3f}':>20}"


if __name__ == "__main__":
    sys.exit(main())
