"""The specs of models with capsules: the paper's CapsNet, and matrix capsules."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from capsbench.plan.routed import RoutingOptions, routing_and_loss
from capsbench.plan.spec import DecoderOptions, Loss, Spec, Squash


class CapsNetSpec(DecoderOptions, RoutingOptions, Spec):
    """The CapsNet of section 4, figures 1 and 2."""

    SCALED = ("channels", "primary_types", "decoder")

    model: Literal["capsnet"]
    loss: Loss = "margin"
    channels: PositiveInt = 256  # Conv1
    kernel: PositiveInt = 9  # Conv1 and PrimaryCapsules
    primary_types: PositiveInt = 32
    primary_dim: PositiveInt = 8
    primary_squash: Literal[Squash, "none"] = "hinton"
    primary_scale: Literal["paper", "official"] = "paper"  # official: pre-activation times 1/primary_types
    init: Literal["paper", "official"] = "paper"  # the paper is silent: PyTorch's defaults, W ~ N(0, 0.1)

    @model_validator(mode="after")
    def _loss_takes_the_scores(self) -> Self:
        routing_and_loss(self.routing, self.loss)
        return self

    def idle(self) -> dict[str, str]:
        """As of every spec; beside the loss's, the decoder's and the routing's."""
        return super().idle() | self.idle_of_decoder() | self.idle_of_routing()

    def smallest_image(self) -> int:
        """Two `kernel` convolutions without padding, the second of stride 2."""
        return 2 * self.kernel - 1

    def routes(self) -> bool:
        """It does, uniform couplings included."""
        return True


class EmCapsNetSpec(Spec):
    """Matrix capsules with EM routing (Hinton, Sabour and Frosst 2018), its small configuration."""

    SCALED = ("channels", "primary_types", "capsule_types")

    model: Literal["em-capsnet"]
    loss: Literal["spread", "margin"] = "spread"
    channels: PositiveInt = 64  # A: the 5x5 convolution of stride 2
    primary_types: PositiveInt = 8  # B
    capsule_types: list[PositiveInt] = Field(default=[16, 16], min_length=2, max_length=2)  # C, D: 3x3, stride 2 and 1
    iterations: PositiveInt = 3

    def smallest_image(self) -> int:
        """One place left after 5x5 of stride 2, 3x3 of stride 2 and 3x3 of stride 1, none padded."""
        return 17

    def routes(self) -> bool:
        """By EM, in three layers; the couplings of the last are looked at."""
        return True
