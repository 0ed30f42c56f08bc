"""A plan, its data and what of it is done. The Snakefile asks for `Pipeline`, commands for the rest; no torch here."""

from capsbench.pipeline.copies import begin_results, write_plan
from capsbench.pipeline.house import STAND_IN, dataset_record, open_house, open_results
from capsbench.pipeline.promises import Pipeline
from capsbench.pipeline.state import (
    described,
    described_now,
    finished,
    is_over,
    numbers_digest,
    shown_digests,
    with_current_choice,
)

__all__ = [
    "STAND_IN",
    "Pipeline",
    "begin_results",
    "dataset_record",
    "described",
    "described_now",
    "finished",
    "is_over",
    "numbers_digest",
    "open_house",
    "open_results",
    "shown_digests",
    "with_current_choice",
    "write_plan",
]
