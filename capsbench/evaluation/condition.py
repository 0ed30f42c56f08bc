"""What evaluation gives for one condition of a run, and how it is stored."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from capsbench.files import whole_file, write_json, write_text


@dataclass
class Condition:
    """One condition: metrics with units, predictions, pictures as arrays, curves as tables.

    `metrics` maps a name to (value, unit), None where it has no value for this run; `arrays` a file's stem to its
    arrays; `frames` a file's stem to its table. Of the arrays, `predictions` is what the report reads and travels;
    `scores` is the rest of the answers, which like the weights stays where it was made.
    """

    name: str
    images: int
    metrics: Mapping[str, tuple[float | None, str]]
    arrays: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    status: str = "done"
    reason: str | None = None
    dataset: dict[str, str] | None = None  # where it is not the plan's: affnist-synth

    def summary(self) -> str:
        """One line for the terminal."""
        found = [(name, value, unit) for name, (value, unit) in self.metrics.items() if value is not None]
        shown = ", ".join(f"{name} {value:.4g} {unit}".rstrip() for name, value, unit in found[:3])
        return f"{self.name}: {shown or self.status}"

    def write(self, folder: Path, *, manifest: dict[str, Any], digest: str, seconds: float) -> None:
        """Write arrays and tables, and metrics.json last: it says that the condition is done.

        Args:
            folder: the run's; manifest: the run's, for its name, data and weights; digest: of this evaluation.
        """
        place = folder / self.name
        place.mkdir(parents=True, exist_ok=True)
        for old in sorted(place.iterdir(), key=lambda path: path.name != "metrics.json"):  # what says "done" first
            old.unlink()
        for stem, arrays in self.arrays.items():
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
            with whole_file(place / f"{stem}.npz") as temporary:
                temporary.write_bytes(buffer.getvalue())
        for stem, frame in self.frames.items():
            write_text(place / f"{stem}.csv", frame.to_csv(index=False))
        write_json(
            place / "metrics.json",
            {
                "schema": 1,
                "run": manifest["run"],
                "condition": self.name,
                "status": self.status,
                "reason": self.reason,
                "dataset": self.dataset or manifest["dataset"],
                "images": self.images,
                "digest": digest,
                "weights": manifest["weights"],
                "seconds": round(seconds, 3),
                "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in self.metrics.items()},
            },
        )
