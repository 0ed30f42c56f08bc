"""Where this plan's runs part from the paper's protocol, read from their manifests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from capsbench.plan.task import TEST_DIGITS
from capsbench.plan.tasks import TEST_PAIRS
from capsbench.report.captions import SYNTHETIC, listing, range_of, reductions_of
from capsbench.report.results import Results, Run
from capsbench.report.tables import last_epochs


@dataclass(frozen=True)
class ProtocolRow:
    """One choice: what the paper (or the source) has, what these runs had, and whether that is less or other."""

    what: str
    paper: str
    here: str
    differs: bool


STEPS = {  # of the authors' code; the paper gives none
    "mnist": "300,000 steps of 128 (the authors' code)",
    "affnist": "not given; stopped at 99.22 and 99.23 % (section 5.2)",
    "multimnist": "not given for MultiMNIST",
    "two_digit": "20 epochs for the CNN, 10 for the capsules (Su 2018)",
}
TRIALS = {"mnist": "3", "multimnist": "3"}  # Table 1
TEST_SETS = {
    "mnist": "10,000 test digits",
    "affnist": "the official affNIST, 320,000 images",
    "multimnist": "10,000,000 pairs",
    "two_digit": "some 9,000 pairs: each test digit with a random other, equal classes dropped (the source's code)",
}


def protocol_rows(results: Results, task: str) -> list[ProtocolRow]:
    """The choices that matter for a task's figures; empty where no run is finished."""
    runs = results.done(task)
    if not runs:
        return []
    precisions = sorted({str(run.manifest.resolved.get("precision")) for run in runs})
    trials = Counter(run.key.variant for run in runs).values()
    few = task in TRIALS and min(trials) < 3
    is_other = (task == "mnist" and not _is_full(runs)) or (task == "two_digit" and not _has_the_source_s_epochs(runs))
    found = [
        ProtocolRow("data", *_data(results, task)),
        ProtocolRow("trials per row", TRIALS.get(task, "not given"), f"{range_of(trials)} finished", few),
        ProtocolRow("training", STEPS.get(task, "not given"), _training(runs), is_other),
        ProtocolRow("test set", TEST_SETS.get(task, "not given"), *_test_set(results, task)),
        ProtocolRow("arithmetic", "not given; its code: float32", listing(precisions), precisions != ["float32"]),
    ]
    if task == "affnist":
        matched = results.values("affnist", "matched", "held_out_accuracy")
        at = f"{min(matched):.2f} % of digits held out of training" if matched else "no run was matched"
        found.append(
            ProtocolRow("matched at", "99.22 and 99.23 % of the expanded MNIST test set", at, True),
        )
    if task == "two_digit":
        found += _from_the_source(results, runs)
    if task == "multimnist":
        placement = listing(sorted({str((run.manifest.config.get("task") or {}).get("placement")) for run in runs}))
        found.append(ProtocolRow("placement", "up to 4 px, each digit of each pair", placement, placement != "paper"))
    reductions = reductions_of(results, task)
    return found + ([ProtocolRow("all reductions", "none", "; ".join(reductions), True)] if reductions else [])


def _from_the_source(results: Results, runs: list[Run]) -> list[ProtocolRow]:
    """Where the two-digit transfer parts from Su 2018, whose program is written in Keras."""
    epochs = {run.averaged_epochs for run in runs}
    ends = last_epochs(results, "two_digit")
    mean = f"the mean over the ends of the {ends}; the final weights' figure is given beside it"
    loss = "its sum over the classes; TensorFlow's 1e-8"
    return [
        ProtocolRow("the figure", "of the final weights", mean, epochs != {1}),
        ProtocolRow("loss; Adam's epsilon", "its mean over the classes; Keras' 1e-7", loss, True),
    ]


def _has_the_source_s_epochs(runs: list[Run]) -> bool:
    def epochs(run: Run) -> int:
        return 10 if run.has_capsules else 20

    return all(_setting(run, "epochs") == epochs(run) for run in runs)


def _data(results: Results, task: str) -> tuple[str, str, bool]:
    badge = results.plan.dataset.badge
    synthetic = SYNTHETIC in set(results.frame.loc[results.frame["task"] == task, "dataset"])
    words = f"{badge}; tested on {SYNTHETIC}, made here" if synthetic else badge
    return "MNIST" if task != "affnist" else "MNIST; tested on affNIST", words, synthetic or badge != "MNIST"


def _training(runs: list[Run]) -> str:
    """Steps, batch and learning rate, as the range over the task's variants."""
    batches = range_of(_setting(run, "batch") for run in runs)
    rates = listing(sorted({f"{rate:g}" for run in runs if (rate := _setting(run, "rate")) is not None}))
    words = f"{range_of(run.manifest.steps for run in runs)} steps of {batches}"
    epochs = sorted({float(found) for run in runs if (found := _setting(run, "epochs")) is not None})
    words += f" ({listing(f'{n:g}' for n in epochs)} epochs)" if epochs else ""
    return words + (f", initial rate {rates}" if rates else "")


def _setting(run: Run, key: str) -> Any:
    return (run.manifest.config.get("training") or {}).get(key)


def _is_full(runs: list[Run]) -> bool:
    return all((run.manifest.steps or 0) >= 300_000 and _setting(run, "batch") == 128 for run in runs)


def _test_set(results: Results, task: str) -> tuple[str, bool]:
    frame = results.frame[results.frame["task"] == task]
    images = sorted({int(n) for n in frame["images"]})
    if not images:
        return "not scored yet", task == "two_digit"
    if task == "two_digit":
        return f"{range_of(images)} pairs, always of two classes", True
    full = {"mnist": TEST_DIGITS, "affnist": 320_000, "multimnist": TEST_PAIRS}.get(task)
    return f"{range_of(images)} images", full is not None and images != [full]
