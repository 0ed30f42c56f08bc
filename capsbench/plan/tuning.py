"""Tuning: one small grid of learning rate x schedule for every variant, judged on held-out training digits.

The same effort for CapsNet and for its baselines: nobody's row is better because somebody looked longer for its rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, PositiveInt, model_validator

from capsbench.files import read_json
from capsbench.plan.spec import Strict
from capsbench.plan.task import Epochs, Seeds

RATES = (3e-4, 1e-3, 3e-3)
# What MNIST's rate falls to by the end: 0.0022 of the first rate, as where the authors' 300k steps end, 0.048 of it, or
# all of it, as the source of the two digits trains.
DECAYS = (0.96, 0.98, 1.0)
PERIOD = "scaled"  # so that a choice made in short trainings holds for long ones


class Point(NamedTuple):
    """One point of the grid: Adam's first learning rate, and the decay in each period of a run (on MNIST 150)."""

    rate: float
    decay: float

    @property
    def name(self) -> str:
        """The point as a folder."""
        return f"rate-{self.rate:g}-decay-{self.decay:g}"

    def training_keys(self) -> dict[str, Any]:
        """The training keys that the point sets."""
        return {"rate": self.rate, "decay": self.decay, "decay_period": PERIOD}


GRID = tuple(Point(rate, decay) for rate in RATES for decay in DECAYS)


class Tuning(Strict):
    """What a plan says of tuning: how long each point of the grid is trained, with which seeds, judged on how many."""

    epochs: Epochs | None = None
    steps: PositiveInt | None = None
    seeds: Seeds = Field(default=[1000])  # none that the plan itself uses
    held_out: PositiveInt = 10_000  # the first training digits: not trained on, and what a point is judged by

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.epochs is None and self.steps is None:
            raise ValueError("tuning gives no length; write epochs or steps")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("tuning must give either epochs or steps, not both")
        return self


@dataclass(frozen=True)
class Trial:
    """A training that only tuning makes: at one point of the grid, without the first `held_out` training digits."""

    point: Point
    held_out: int


@dataclass(frozen=True)
class Tuned:
    """What a tuned row is made of: where its choice is stored, which choice would be its own, and what was chosen."""

    path: Path
    recipe: str  # digest of the grid, the trials' configs and their seeds (capsbench/plan/runs.py)
    point: Point | None  # None: not chosen yet


def read_choice(path: Path, recipe: str) -> Point | None:
    """The point stored in `path` if it was chosen by this very recipe, else None: then it has to be tuned (again)."""
    try:
        stored = read_json(path)
        chosen = stored["chosen"]
        point = Point(float(chosen["rate"]), float(chosen["decay"]))
        return point if stored["recipe"] == recipe and point in GRID else None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
