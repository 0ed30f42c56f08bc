"""Counts a plan's published figures again from the stored answers, with numpy and scipy and not a line of the package.

    python benchmarks/recount.py results/paper [--labels ../shared/data]

For every finished run it counts right and wrong answers (`predictions.npz`; the mean over epochs of `curve.csv`) and
compares them with the run's metrics.json; for every cell mean, standard deviation and Student's t interval, with
`tables/<task>.csv`; for every claim that such means judge, estimate and verdict with claims.json. Where a claim
compares two cells, its interval also covers the choice of test digits, which is not counted here: it is compared with
Welch's over the seeds, which claims.json has beside it and which must not be wider, and its p is taken as published.
With --labels, the folder that has MNIST's t10k-labels-idx1-ubyte (or .gz), the labels of the answers are compared with
the data set's own; of several files those below a folder called MNIST count, as torchvision lays them out.

It prints a line for each metric of a cell and for each claim, whatever differs, and what it could not count, since no
answers to single images are stored (calibration, the training error, single digits of the two-digit transfer). If
anything differs, or nothing was counted, the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

WITHIN = 1e-9  # relative: the tables have ten digits
TEST_DIGITS = 10_000
Answers = dict[str, NDArray[Any]]


class Cell(NamedTuple):
    """One metric of one row: what the seeds are averaged for."""

    task: str
    variant: str
    condition: str
    metric: str

    def __str__(self) -> str:
        return f"{self.task}/{self.variant} {self.condition} {self.metric}"


class Interval(NamedTuple):
    """An estimate and its interval of 95 %, by the names that claims.json has for them."""

    effect: float
    ci_low: float
    ci_high: float


def main() -> int:
    """Count; 0 if everything is as published."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="the folder of a plan's results, such as results/paper")
    parser.add_argument("--labels", type=Path, help="the folder that has MNIST's test labels, at any depth")
    given = parser.parse_args()
    try:
        plan = json.loads((given.results / "plan.json").read_text())
        labels = None if given.labels is None else mnist_labels(given.labels)
        differing = recounted(given.results, plan, labels)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        sys.exit(f"{given.results} cannot be counted: {type(error).__name__}: {error}")
    for line in differing:
        print(f"DIFFERS: {line}")
    print("Something is not as published." if differing else "Everything that was counted is as published.")
    return 1 if differing else 0


def recounted(results: Path, plan: dict[str, Any], labels: NDArray[np.uint8] | None) -> list[str]:
    """Print what is counted of every run, cell and claim; return what differs from what is published."""
    differing: list[str] = []
    values: dict[Cell, dict[int, float]] = defaultdict(dict)
    uncounted: Counter[str] = Counter()
    runs = 0
    for task, variant, seed, run in finished(results, plan):
        runs += 1
        for file in sorted(run.glob("*/metrics.json")):
            published = {name: entry["value"] for name, entry in json.loads(file.read_text())["metrics"].items()}
            condition = file.parent.name
            counted = of_answers(task, run, condition)
            if labels is not None and (wrong := mislabelled(task, file.parent, labels)):
                differing.append(f"{file.parent}: {wrong} labels are not the data set's")
            for metric, value in published.items():
                if value is None:  # the run has none, and the table leaves it out
                    continue
                if metric not in counted:
                    uncounted[f"{task} {condition} {metric}"] += 1
                    continue
                values[Cell(task, variant, condition, metric)][seed] = counted[metric]
                if not same(value, counted[metric]):
                    differing.append(f"{file}: {metric} is {value}, and {counted[metric]} by the answers")
    if not values:
        raise ValueError("it has no finished run with stored answers that can be counted here")
    print(f"{results}: {runs} of {len(plan['runs'])} runs are finished\n")
    for cell, of_seeds in values.items():
        differing += in_the_table(results, cell, list(of_seeds.values()))
    misjudged_claims, unjudged = in_the_verdicts(results, plan, values)
    print(f"\nVerdicts not counted here: {', '.join(unjudged) or 'none'}.")
    print(f"Metrics not counted here: {', '.join(uncounted) or 'none'}.")
    differing += misjudged_claims
    return differing


def finished(results: Path, plan: dict[str, Any]) -> Iterator[tuple[str, str, int, Path]]:
    """Task, variant, seed and folder of each run of the plan that ended well and was trained as the plan says."""
    for run in plan["runs"]:
        folder = results / "runs" / run["task"] / run["variant"] / f"seed-{run['seed']}"
        if not (folder / "manifest.json").exists():
            continue
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["status"] == "done" and run.get("config") in (None, manifest["digests"]["config"]):
            yield run["task"], run["variant"], run["seed"], folder


def of_answers(task: str, run: Path, condition: str) -> dict[str, float]:
    """The metrics of a run, in percent, that its stored answers tell; none where it has none."""
    answers = arrays(run / condition / "predictions.npz")
    if not answers:
        return {}
    if task == "mnist":
        wrong = answers["predicted"] != answers["labels"]
        return {"error": 100 * wrong.mean(), "correct": float((~wrong).sum())}
    if task == "affnist":
        return {"accuracy": 100 * (answers["predicted"] == answers["labels"]).mean()}
    if task == "multimnist":  # by test digit, its pairs of whose two digits none, one or both are missed
        _, one, both = answers["digits"].sum(0) / answers["digits"].sum()
        return {"error": 100 * (one + both), "half_credit_error": 50 * (one + 2 * both)}
    if task != "two_digit":  # another task than the suite's four: what its answers mean is not known here
        return {}
    counted = {}
    epochs = list(csv.DictReader((run / "curve.csv").open()))  # the ends of the last five
    for metric in ("top2_accuracy", "both_above_half_accuracy"):
        counted[f"final_{metric}"] = 100 * answers[metric].mean()
        counted[metric] = 100 * np.mean([float(row[f"{condition}.{metric}"]) for row in epochs])
    return counted


def mislabelled(task: str, condition: Path, labels: NDArray[np.uint8]) -> int:
    """How many labels beside the answers are not the data set's, and how many pairs are of one class."""
    answers = arrays(condition / "predictions.npz")
    if task == "mnist" and "labels" in answers:
        return int((answers["labels"] != labels[: len(answers["labels"])]).sum())
    if task == "affnist" and "labels" in answers:
        return int((answers["labels"] != labels[answers["bases"]]).sum())
    if task == "two_digit" and "bases" in answers:
        first, second = labels[answers["bases"]].T
        return int((first == second).sum())
    return 0


def in_the_table(results: Path, cell: Cell, values: list[float]) -> list[str]:
    """Print a cell's mean and interval; return what its task's table has otherwise."""
    keys = ("task", "variant", "condition", "metric")
    rows = [row for row in table(results, cell.task) if tuple(row[key] for key in keys) == cell]
    mean, low, high = student(values)
    print(f"{cell!s:78} {len(values):2} runs  {mean:10.4f}  {low:10.4f} to {high:10.4f}")
    if cell.metric == "correct":  # a count, which no table has
        return []
    if len(rows) != 1:
        return [f"tables/{cell.task}.csv has {len(rows)} rows of {cell}"]
    counted = {"n": float(len(values)), "mean": mean, "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}
    if np.isfinite(low):
        counted |= {"ci_low": low, "ci_high": high}
    return [
        f"tables/{cell.task}.csv: {name} of {cell} is {rows[0][name] or 'empty'}, and {value} by the answers"
        for name, value in counted.items()
        if value is not None and not (rows[0][name] and same(float(rows[0][name]), value))
    ]


def in_the_verdicts(
    results: Path, plan: dict[str, Any], values: dict[Cell, dict[int, float]]
) -> tuple[list[str], list[str]]:
    """Print the claims judged by counted means; return what claims.json has otherwise, and the other claims."""
    differing, unjudged = [], []
    planned = Counter((run["task"], run["variant"]) for run in plan["runs"])
    claims = json.loads((results / "claims.json").read_text())["claims"]
    print()
    for claim in claims:
        cells = [Cell(cell["task"], cell["variant"], claim["condition"], cell["metric"]) for cell in claim["cells"]]
        if claim["effect"] is None or not cells or not all(len(values.get(cell, {})) > 1 for cell in cells):
            unjudged += [claim["id"]] if claim["verdict"] != "not run" else []
            continue
        here, wrong = misjudged(claim, [values[cell] for cell in cells])
        whole = all(len(values[cell]) == planned[cell.task, cell.variant] for cell in cells)
        if claim["kind"] != "value":
            family = [other["p"] for other in claims if other["family"] == claim["family"]]
            wrong += otherwise(claim, {"p_holm": holm(claim["p"], family)})
        verdict = verdict_of(claim, here) if whole else "undecided"
        if verdict != claim["verdict"]:
            wrong.append(f"the verdict is {claim['verdict']}, and {verdict} here")
        print(f"{claim['id']:40} {claim['verdict']:16} {'DIFFERS' if wrong else 'as published'}")
        differing += [f"claims.json: {claim['id']}: {said}" for said in wrong]
    return differing, unjudged


def misjudged(claim: dict[str, Any], sides: list[dict[int, float]]) -> tuple[Interval, list[str]]:
    """A claim's estimate by the means of its one or two cells, by seed; and what its entry has otherwise."""
    first, second = (list(side.values()) for side in (sides[0], sides[-1]))
    if claim["test"] == "crossed":  # over seeds and test digits: here over seeds alone, which is never the wider one
        low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
        here = Interval(float(np.mean(first) - np.mean(second)), float(low), float(high))
        # cells of different numbers of seeds are judged by the freedom of the smaller, which is wider than Welch's
        wrong = otherwise(claim["welch"] if len(first) == len(second) else {}, here._asdict())
        wrong += otherwise(claim, {"effect": here.effect})
        if claim["ci_low"] > here.ci_low + WITHIN or claim["ci_high"] < here.ci_high - WITHIN:
            wrong.append(f"its interval is narrower than Welch's over seeds, {here.ci_low} to {here.ci_high}")
        return here, wrong
    if claim["test"] == "paired":
        first = [value - sides[1][seed] for seed, value in sides[0].items() if seed in sides[1]]
    of_a_number = claim["kind"] == "direction" and claim["test"] == "student"
    here = student(first, against=claim["paper"] if of_a_number else 0.0)
    counted = here._asdict()
    if of_a_number:
        counted["p"] = float(stats.ttest_1samp(first, claim["paper"]).pvalue)
    return here, otherwise(claim, counted)


def holm(p: float, family: list[float | None]) -> float:
    """A claim's p after Holm's correction for its family, where a claim that is not run counts with a p of 1."""
    smaller = sorted(other for other in family if other is not None and other < p)
    return min(1.0, max(each * (len(family) - place) for place, each in enumerate([*smaller, p])))


def verdict_of(claim: dict[str, Any], here: Interval) -> str:
    """The verdict: of a value by its interval and margin, else by the claim's p after Holm's correction.

    That there is no difference is not reproduced where the published interval of 95 % lies beyond the margin.
    """
    if claim["kind"] == "value":
        least, most = claim["paper"] - claim["delta"], claim["paper"] + claim["delta"]
        if least <= here.ci_low and here.ci_high <= most:
            return "reproduced"
        return "not reproduced" if here.ci_high < least or here.ci_low > most else "undecided"
    if claim["p_holm"] >= 0.05:
        delta = claim["delta"] if claim["kind"] == "no_difference" else float("inf")
        return "not reproduced" if claim["ci_low"] > delta or claim["ci_high"] < -delta else "undecided"
    as_claimed = claim["kind"] == "no_difference" or (here.effect > 0) == (claim["direction"] == "greater")
    return "reproduced" if as_claimed else "not reproduced"


def otherwise(published: dict[str, Any], counted: dict[str, float]) -> list[str]:
    """What is published otherwise than it is counted, of the names that both have."""
    return [
        f"{name} is {published[name]}, and {value} here"
        for name, value in counted.items()
        if name in published and not same(published[name], value)
    ]


def student(values: list[float], against: float = 0.0) -> Interval:
    """The mean less a number, and Student's t interval of 95 %; both ends NaN where no value differs from another."""
    effect = float(np.mean(values)) - against
    if len(values) < 2 or np.ptp(values) < WITHIN:
        return Interval(effect, float("nan"), float("nan"))
    low, high = stats.t.interval(0.95, len(values) - 1, effect, stats.sem(values))
    return Interval(effect, float(low), float(high))


def same(published: float, counted: float) -> bool:
    """Whether two numbers are one but for rounding."""
    return bool(np.isclose(published, counted, rtol=WITHIN, atol=1e-9))


def arrays(path: Path) -> Answers:
    """The arrays of a file; none where there is no such file."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def table(results: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    with (results / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def mnist_labels(folder: Path) -> NDArray[np.uint8]:
    """MNIST's 10,000 test labels as its file has them: eight bytes of header, then a byte each.

    Other data sets call their files so too: where a file lies below a folder called MNIST, as torchvision puts it
    beside FashionMNIST, no other counts. Raises ValueError where there is none of so many labels, or two that differ.
    """
    found = sorted(path for path in folder.rglob("t10k-labels*") if path.is_file())
    found = [path for path in found if "MNIST" in path.relative_to(folder).parts] or found
    if not found:
        raise ValueError(f"no t10k-labels-idx1-ubyte in {folder}")
    contents = {
        path: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in found
    }
    whole = [path for path in found if len(contents[path]) == 8 + TEST_DIGITS]
    if not whole:
        raise ValueError(f"{found[0]} does not have MNIST's {TEST_DIGITS:,} labels; name another folder with --labels")
    first, *others = whole
    if other := next((path for path in others if contents[path] != contents[first]), None):
        raise ValueError(f"{first} and {other} have different labels; name the folder of MNIST's alone with --labels")
    return np.frombuffer(contents[first], np.uint8, offset=8)


if __name__ == "__main__":
    sys.exit(main())
