"""Runs, finished or half trained, that a command is about to make again: said before, as nothing brings them back."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from safetensors import SafetensorError, safe_open

from capsbench.data.affnist_place import measured_on
from capsbench.files import read_json, read_record
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests
from capsbench.plan.same_bits import same_sources

PARTS = {"config": "config", "training_source": "training source", "data": "data", "test_set": "affNIST test set"}
NAMED = 3


def say_what_is_made_again(console: Console, house: House, runs: list[tuple[Cell, int]], data: str) -> None:
    """Name those among `runs` (cell, seed) that are finished but not done any more, and what changed since.

    And those that were stopped half-way, of another training than they would be now: that their checkpoints are not
    gone on from. `data`: the digest of what would be trained on.
    """
    again: dict[str, list[str]] = {}
    for cell, seed in runs:
        folder = house.run_folder(cell, seed)
        is_done = read_record(folder / "manifest.json").get("status") == "done"
        if is_done and (changed := what_changed(house, cell, seed, data)):
            again.setdefault(f"made again, as the {changed} changed", []).append(f"{cell.label} seed {seed}")
        elif (of := _half_trained(folder)) and of != run_digests(house, cell, seed, data, measured_on(house, cell))[
            "run"
        ]:
            why = "begun again, as config, source or data changed since the checkpoint"
            again.setdefault(why, []).append(f"{cell.label} seed {seed}")
    for why, labels in again.items():
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        console.print(f"{why}: {', '.join(labels[:NAMED])}{more}", style="yellow", markup=False)


def _half_trained(folder: Path) -> str | None:
    """The digest of the run whose last checkpoint lies in a folder; None where there is none that can be read."""
    path = folder / "checkpoint" / "last.safetensors"
    try:
        with safe_open(path, framework="numpy") as file:
            said = json.loads((file.metadata() or {}).get("capsbench", "{}")).get("run")
    except (OSError, SafetensorError, ValueError, AttributeError):
        return None
    return said if isinstance(said, str) else None


def what_changed(house: House, cell: Cell, seed: int, data: str) -> str:
    """What the run in a folder was made of that is another now, `config and data` say; empty where nothing is."""
    try:
        manifest = dict(read_json(house.run_folder(cell, seed) / "manifest.json"))
        were = dict(manifest["digests"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    now = run_digests(house, cell, seed, data, measured_on(house, cell))
    if str(were.get("training_source")) in same_sources(now["training_source"], manifest):
        were["training_source"] = now["training_source"]
    return " and ".join(words for key, words in PARTS.items() if were.get(key) != now.get(key))
