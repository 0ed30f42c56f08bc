"""curve.csv, what was measured along training; and reading one accuracy off at a level of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from capsbench.errors import DataError

Array = NDArray[np.float64]


class NotMatchedError(Exception):
    """The curve never gets to the level, or begins above it: a result, not an error."""


def read_curve(folder: Path, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of a run's curve.csv with `step` and `columns`, each a number, in the order of steps.

    Raises DataError if the file is missing, empty, truncated or has other columns.
    """
    path = folder / "curve.csv"
    remedy = "remove the run's manifest.json to train it again"
    try:
        # As text first: NumPy reads a number to its last bit, pandas' own parser does not in every version.
        frame = pd.read_csv(path, usecols=["step", *columns], dtype=str).astype(np.float64)
    except FileNotFoundError:
        raise DataError(f"{path} is not there; {remedy}.") from None
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is truncated or has other columns ({reason}); {remedy}.") from None
    if not len(frame) or not np.isfinite(frame.to_numpy()).all():
        raise DataError(f"{path} has {'an empty cell' if len(frame) else 'no rows'}; {remedy}.")
    return frame.sort_values("step", ignore_index=True)


def read_off(held_out: Array, measured: Array, level: float) -> float:
    """`measured` where `held_out` gets to `level`; both [n], evaluations in the order of training.

    Held-out accuracy rises along training, and jitters. Taking its first crossing picks an evaluation that jittered
    upwards, so a model that is not there yet. Instead held-out accuracy is fitted by what rises only (isotonic
    regression, least squares): evaluations that fall back are pooled, `measured` is averaged over the same pools, and
    the value is interpolated linearly in held-out accuracy between the two pools on either side of the level. A curve
    that does not jitter has pools of one evaluation each: then this is interpolation between neighbours.

    Raises:
        NotMatchedError: the level lies above the last pool or below the first; the sentence says which.
    """
    fit = isotonic_regression(held_out)
    starts = fit.blocks[:-1].astype(int)
    level_of = fit.x[starts]  # [pools], rising
    value_of = np.add.reduceat(measured, starts) / np.diff(fit.blocks)  # [pools]
    if level_of[-1] < level:
        raise NotMatchedError(
            f"held-out accuracy, smoothed to rise only, reached {level_of[-1]:.2%} and not {level:.2%}"
        )
    if level_of[0] > level:
        raise NotMatchedError(
            f"held-out accuracy was {level_of[0]:.2%} already when it was first measured, above {level:.2%}: "
            "say a smaller probe_every"
        )
    return float(np.interp(level, level_of, value_of))
