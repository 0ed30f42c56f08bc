"""Means over pairs, all of them and by how much the two digits overlap."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor

# Of the 28x28 boxes. Shifts of up to 4 px overlap by 0.51 at least, the authors' up to 6 px by 0.33.
EDGES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def mean_of(values: Tensor) -> float:
    """The mean of the values [N] that are there; summed in double precision, since there may be ten million."""
    return float(values.double().nanmean())


def by_overlap(overlaps: Tensor, values: Mapping[str, Tensor]) -> pd.DataFrame:
    """Each measure's mean in each bin of overlap: rows (overlap_low, overlap_high, pairs, metric, value).

    Args:
        overlaps: [N] float64 in [0.3, 1], how much of one digit's box the other's covers.
        values: name to [n] float, of the first n <= N pairs; NaN where a pair has not that measure.

    `pairs` counts the pairs in the mean. A bin contains its lower edge, the last one also 1; an empty one has no row.
    """
    bins = torch.bucketize(overlaps, torch.tensor(EDGES[1:-1], dtype=torch.float64), right=True)  # [N]
    rows = []
    for number, (low, high) in enumerate(itertools.pairwise(EDGES)):
        for name, value in values.items():
            here = value[(bins[: len(value)] == number) & ~value.isnan()]
            if len(here):
                rows.append((low, high, len(here), name, mean_of(here)))
    return pd.DataFrame(rows, columns=["overlap_low", "overlap_high", "pairs", "metric", "value"])
