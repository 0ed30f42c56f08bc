"""docs/protocol.md, its cells and numbers, and what the shipped plans make of their rows."""

from __future__ import annotations

import re
from functools import cache

import pages

from capsbench.plan import Cell, House, config_folder
from capsbench.training.schedule import rate_at

PAGE = (pages.REPOSITORY / "docs" / "protocol.md").read_text()
WORDS = pages.words_of("docs/protocol.md")
NUMBER, TO = r"(-?[\d.]*\d(?:e-\d+)?)", r"(-?[\d.]*\d) to (-?[\d.]*\d)"


def cell(section: str, first: str, column: int = 4) -> str:
    """A cell of a section's table, by its row's first cell; `here`, the last column, if no other is asked for."""
    (_, below) = PAGE.split(f"\n## {section}\n")
    rows = [line.strip("|").split("|") for line in below.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    (found,) = [row for row in rows if row[0].strip().strip("`") == first]
    assert len(found) == 4
    return found[column - 1].strip()


def said(pattern: str, text: str = WORDS) -> list[float]:
    """As `pages.said`, of a text whose numbers have commas between thousands."""
    return pages.said(pattern, re.sub(r"(?<=\d),(?=\d{3})", "", text))


@cache
def house(plan: str) -> House:
    return House.load(config_folder() / f"{plan}.yaml")


def cells(plan: str, task: str) -> list[Cell]:
    found = [one for one in house(plan).cells if one.task == task]
    assert found
    return found


def lengths(plan: str, task: str) -> set[int]:
    """Of a task's rows: how many steps they train."""
    return {one.steps(house(plan).epoch_images(one.options)) for one in cells(plan, task)}


def last_rate(one: Cell, steps: int) -> float:
    return rate_at(steps, steps, one.training)
