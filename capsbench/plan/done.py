"""When a run is done: its manifest has the digest of config, training source and data. No modification time decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from capsbench.errors import PlanError
from capsbench.files import read_record
from capsbench.plan.claims import load_claims
from capsbench.plan.custom import custom_files, routings_named
from capsbench.plan.routings import is_custom
from capsbench.plan.runs import Cell, House
from capsbench.plan.same_bits import same_sources
from capsbench.plan.tuning import read_choice
from capsbench.plan.variants import MODELS
from capsbench.provenance import digest_of, source_digest

TASK_MODULES = {  # what a task adds to training
    "mnist": ["capsbench.data.mnist"],
    "affnist": ["capsbench.data.affnist", "capsbench.training.probe_affnist"],
    "multimnist": ["capsbench.data.multimnist"],
    "two_digit": ["capsbench.data.two_digit", "capsbench.training.probe_two_digit"],
}
DECIDE = ("config", "training_source", "data", "test_set")  # of a run's digests those that say what comes of it


def training_source(house: House, cell: Cell) -> str:
    """Digest of the source that decides a run's weights: trainer, stream, probe, model, routing.

    Of a routing outside the package it covers the user's files too, and the suite's routings that they name in words.
    Raises PlanError where one of them is not Python.
    """
    roots = training_roots(cell)
    if not is_custom(cell.routing):
        return source_digest(roots)
    # Once a house: a process imports the user's file once, and what it trains later it trains with that.
    known = house.custom_sources
    if (key := (*roots, cell.routing)) not in known:
        files = custom_files(cell.routing, house.path.parent)
        named = [f"capsbench.routing.{name.replace('-', '_')}" for name in routings_named(files.values())]
        known[key] = source_digest([*roots, *named], files)
    return known[key]


def training_roots(cell: Cell) -> list[str]:
    """The modules of capsbench from which everything that trains a cell is imported."""
    roots = ["capsbench.training.together", *TASK_MODULES[cell.task], MODELS[cell.spec.model].split(":")[0]]  # type: ignore[attr-defined]
    if not cell.routing or is_custom(cell.routing):
        return roots
    return [*roots, f"capsbench.routing.{cell.routing.replace('-', '_')}"]


def evaluation_source(cell: Cell) -> str:
    """Digest of the source that decides a run's predictions and metrics, given its weights."""
    return source_digest(evaluation_roots(cell))


def evaluation_roots(cell: Cell) -> list[str]:
    """The modules from which everything that evaluates a cell is imported."""
    return [f"capsbench.evaluation.{cell.task}"]


def cost_keys(house: House) -> list[tuple[Cell, str]]:
    """Every cell with a digest of the model that it trains at its image's size, of all that decides what it costs."""
    return [
        (cell, digest_of([cell.config()["variant"], list(cell.options.IMAGE), cell.task, training_source(house, cell)]))
        for cell in house.cells
    ]


def cost_digest(house: House) -> str:
    """Digest of what decides what is measured of a plan's costs: models, options, source. The machine does not."""
    options = house.plan.cost.model_dump() if house.plan.cost else None
    measured = [[cell.label, key] for cell, key in cost_keys(house)]
    return digest_of([options, measured, source_digest(["capsbench.evaluation.cost"])])


def is_measured(folder: Path, digest: str) -> bool:
    """Whether cost.json in a results folder is whole and of this digest."""
    return bool(read_record(folder / "cost.json").get("digest") == digest)


def run_digests(house: House, cell: Cell, seed: int, data_digest: str, test_set: str | None = None) -> dict[str, str]:
    """The digests in a run's manifest; `run` is the one that says whether it is done.

    `plan` and `claims` stand there for the record alone: editing a claim trains nothing again. `test_set`: what is
    looked at along training, where that may be one of several (capsbench.data.affnist_place).
    """
    digests = {
        "config": cell.config_digest(seed),
        "training_source": training_source(house, cell),
        "data": data_digest,
        **({"test_set": test_set} if test_set is not None else {}),
    }
    return {"run": _run_digest(digests), **digests, "plan": house.digest, "claims": load_claims().digest}


def _run_digest(digests: Mapping[str, str]) -> str:
    return digest_of({key: digests[key] for key in DECIDE if key in digests})


def trial_digest(house: House, trial: Cell, seed: int, data_digest: str) -> str:
    """The digest that a trial's stored figure must have: its training, and the source that judges it."""
    return digest_of([run_digests(house, trial, seed, data_digest)["run"], source_digest(["capsbench.training.tune"])])


def tuning_digest(house: House, cell: Cell, data_digest: str) -> str:
    """The digest that a tuned row's stored choice must have: every trial's, under every seed."""
    trials = house.trials(cell)
    return digest_of([trial_digest(house, trial, seed, data_digest) for trial in trials for seed in trial.seeds])


def is_tuned(cell: Cell, digest: str) -> bool:
    """Whether the choice for a tuned row is stored and was made by these very trials."""
    if cell.tuned is None or cell.tuned.point is None:
        return False
    return bool(read_record(cell.tuned.path).get("digest") == digest)


def read_again(cell: Cell) -> Cell:
    """A tuned row with the choice that is stored now: another process may have made it since the plan was read."""
    if cell.tuned is None:
        return cell
    return replace(cell, tuned=replace(cell.tuned, point=read_choice(cell.tuned.path, cell.tuned.recipe)))


def is_done(folder: Path, digests: Mapping[str, str]) -> dict[str, Any] | None:
    """The manifest in `folder` if it belongs to the run of these `run_digests` and is whole, else None.

    A run by another source that was shown to give it the same bits (`same_bits`) is that run too.
    """
    try:
        manifest = read_record(folder / "manifest.json")
    except OSError as error:
        raise PlanError(f"{folder / 'manifest.json'} cannot be read: {error.strerror}.") from None
    return manifest if _is_whole(manifest) and _is_of(manifest, digests) else None


def _is_of(manifest: dict[str, Any], digests: Mapping[str, str]) -> bool:
    if manifest.get("digest") == digests["run"]:
        return True
    others = same_sources(digests["training_source"], manifest)
    return manifest.get("digest") in [_run_digest({**digests, "training_source": source}) for source in others]


def _is_whole(manifest: dict[str, Any]) -> bool:
    """Whether what other stages read without asking is there: a file that lost it says nothing, and is made again."""
    run = manifest.get("run")
    return (
        manifest.get("status") in ("done", "failed")
        and isinstance(manifest.get("weights"), str)
        and isinstance(manifest.get("dataset"), dict)
        and isinstance(run, dict)
        and {"task", "variant", "seed"} <= run.keys()
    )
