"""Models: CapsNet, the CNN baselines, the two-digit models."""

from capsbench.models.build import build_model, count_parameters
from capsbench.routing.squash import squash

__all__ = ["build_model", "count_parameters", "squash"]
