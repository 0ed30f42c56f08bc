"""What is claimed of a single row, as marks beside its numbers: whose claim it is shows in colour and legend."""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from capsbench.report.figures.style import COLOURS, MUTED
from capsbench.report.results import Results
from capsbench.report.verdicts.words import is_ours

PAPER = COLOURS[5]
SHAPES = {"value": ("D", "claimed"), "greater": (">", "claimed: more than"), "less": ("<", "claimed: less than")}
OWN_WORDS = {
    "value": "expected (ours)",
    "greater": "threshold: more than (ours)",
    "less": "threshold: less than (ours)",
}


class Mark(NamedTuple):
    """One number that a claim expects of a row. `shape` is a key of SHAPES; `ours`: this suite's own threshold."""

    variant: str
    condition: str
    metric: str
    value: float
    shape: str
    ours: bool

    def plot(self, axes: Axes, y: float, size: float) -> None:
        """Draw it at its value and the height `y`."""
        marker, colour = SHAPES[self.shape][0], MUTED if self.ours else PAPER
        axes.plot(self.value, y, marker, color=colour, mfc="white", mew=1, ms=size, zorder=4)


def marks_of(results: Results, task: str) -> list[Mark]:
    """The marks of a task's rows, from every claim of one row that expects a number and could be judged."""
    found = []
    for judgement in results.judged.judgements if results.judged else []:
        claim = judgement.claim
        if judgement.verdict == "not run" or claim.expected is None:
            continue
        side = judgement.sides[0]  # the only one, since it expects a number
        if side.task == task:
            shape = claim.direction or "value"
            found.append(Mark(side.variant, claim.condition or "", side.metric, claim.expected, shape, is_ours(claim)))
    return found


def handles_of(marks: list[Mark]) -> list[Line2D]:
    """The legend of the marks that are drawn; this suite's own are told from what others claim."""
    used = dict.fromkeys((mark.ours, mark.shape) for mark in marks)
    return [
        Line2D(
            [], [], color=MUTED if ours else PAPER, marker=SHAPES[shape][0], mfc="white", ls="", ms=5,
            label=OWN_WORDS[shape] if ours else SHAPES[shape][1],
        )
        for ours, shape in sorted(used, key=lambda key: (key[0], list(SHAPES).index(key[1])))
    ]  # fmt: skip


def in_words(marks: list[Mark]) -> list[str]:
    """The caption's sentence about the marks; none where none is drawn."""
    if not marks:
        return []
    own = "; grey ones are this suite's own" if any(mark.ours for mark in marks) else ""
    return [
        f"Diamonds: what is claimed of a row; triangles: a bound that it is claimed to lie above or below{own}; "
        "table `claims` says by whom."
    ]
