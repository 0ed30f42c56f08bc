"""Calibration: whether a model is right as often as its highest score says."""

from __future__ import annotations

import numpy as np
import pandas as pd
from torch import Tensor

BINS = 15  # Guo et al. 2017, section 2


def reliability(scores: Tensor, labels: Tensor) -> pd.DataFrame:
    """How often answers of each confidence are right: a reliability diagram in numbers (Guo et al. 2017, section 2).

    The confidence of an answer is its score, the highest of the image's: a capsule's length, or a probability. BINS of
    equal width, each with its upper end; those without an image are left out.

    Args:
        scores: [N, K] in [0, 1]; labels: [N] int64.

    Returns a row a bin: `confidence_low`, `confidence_high`, `images`, `confidence` and `accuracy` (means, in [0, 1]).
    """
    confidence, answer = scores.double().max(1)  # [N], [N]
    ends = np.linspace(0, 1, BINS + 1)
    bins = np.digitize(confidence.numpy(), ends[1:-1], right=True)  # [N] in 0..BINS-1: ends[b] < score <= ends[b + 1]
    answers = pd.DataFrame({"confidence": confidence.numpy(), "accuracy": (answer == labels).double().numpy()})
    frame = answers.groupby(bins).mean()
    frame.insert(0, "images", answers.groupby(bins).size())
    frame.insert(0, "confidence_high", ends[1:][frame.index])
    frame.insert(0, "confidence_low", ends[:-1][frame.index])
    return frame.reset_index(drop=True)


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error in percent, of `reliability`'s rows (Guo et al. 2017, equation 3).

    The mean over images of how far their bin's accuracy is from its confidence; 0 is a model that knows what it knows.
    """
    return 100 * float(np.average((bins["accuracy"] - bins["confidence"]).abs(), weights=bins["images"]))


def overconfidence(bins: pd.DataFrame) -> float:
    """Mean confidence less accuracy, in percent: above 0 the model promises more than it keeps, below 0 less."""
    return 100 * float(np.average(bins["confidence"] - bins["accuracy"], weights=bins["images"]))
