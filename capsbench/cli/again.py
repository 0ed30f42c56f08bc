"""Finished runs that a command is about to make again: said before, since nothing brings the old ones back."""

from __future__ import annotations

from rich.console import Console

from capsbench.data.affnist_place import measured_on
from capsbench.files import read_json, read_record
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests
from capsbench.plan.same_bits import same_sources

PARTS = {"config": "config", "training_source": "training source", "data": "data", "test_set": "affNIST test set"}
NAMED = 3


def say_what_is_made_again(console: Console, house: House, runs: list[tuple[Cell, int]], data: str) -> None:
    """Name the finished ones among `runs` (cell, seed), which are not done any more, and what changed since.

    `data`: the digest of what would be trained on.
    """
    again: dict[str, list[str]] = {}
    for cell, seed in runs:
        is_done = read_record(house.run_folder(cell, seed) / "manifest.json").get("status") == "done"
        if is_done and (changed := what_changed(house, cell, seed, data)):
            again.setdefault(changed, []).append(f"{cell.label} seed {seed}")
    for changed, labels in again.items():
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        said = f"made again, as the {changed} changed: {', '.join(labels[:NAMED])}{more}"
        console.print(said, style="yellow", markup=False)


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
