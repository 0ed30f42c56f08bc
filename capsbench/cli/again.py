"""Finished runs that a command is about to make again: said before, since nothing brings the old ones back."""

from __future__ import annotations

from rich.console import Console

from capsbench.files import read_json
from capsbench.plan import Cell, House
from capsbench.plan.done import run_digests

PARTS = {"config": "config", "training_source": "training source", "data": "data"}  # of affNIST: cli/affnist.py
NAMED = 3


def say_what_is_made_again(console: Console, house: House, runs: list[tuple[Cell, int]], data: str) -> None:
    """Name the finished ones among `runs` (cell, seed), which are not done any more, and what changed since.

    `data`: the digest of what would be trained on.
    """
    again: dict[str, list[str]] = {}
    for cell, seed in runs:
        try:
            manifest = read_json(house.run_folder(cell, seed) / "manifest.json")
            status, were = manifest["status"], dict(manifest["digests"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        now = run_digests(house, cell, seed, data)
        changed = " and ".join(words for key, words in PARTS.items() if were.get(key) != now[key])
        if status == "done" and changed:
            again.setdefault(changed, []).append(f"{cell.label} seed {seed}")
    for changed, labels in again.items():
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        said = f"made again, as the {changed} changed: {', '.join(labels[:NAMED])}{more}"
        console.print(said, style="yellow", markup=False)
