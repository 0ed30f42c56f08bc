"""The learning rate: exponential decay, continuous, with a floor (section 4; constants from the authors' code)."""

from __future__ import annotations

from capsbench.plan.schema import PUBLISHED_STEPS, Training

PUBLISHED_PERIOD = 2000


def rate_at(step: int, steps: int, training: Training) -> float:
    """max(rate * decay^(step / period), floor) at `step` of `steps`.

    `scaled` shrinks the period with the run's length, so that a short run ends at the rate where the published 300k
    steps end; a period that is a number is taken as it is.
    """
    said = training.decay_period
    if said == "scaled":
        period = PUBLISHED_PERIOD * steps / PUBLISHED_STEPS
    else:
        period = PUBLISHED_PERIOD if said == "published" else said
    return max(training.rate * training.decay ** (step / period), training.floor)
