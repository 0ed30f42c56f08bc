"""The spec of the two-digit transfer's models: pooling or capsules on one trunk."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from capsbench.plan.routed import RoutingOptions, routing_and_loss
from capsbench.plan.routings import trained_by_input
from capsbench.plan.spec import LinkedLoss, Spec, length_and_loss


class TwoDigitSpec(RoutingOptions, Spec):
    """The two-digit transfer's models: one small trunk, then pooling and dense layers, or capsules."""

    SCALED = ("channels", "dense")

    model: Literal["two-digit"]
    loss: LinkedLoss = "margin"
    down_weight: Annotated[float, Field(gt=0)] = 0.25  # as in the source; 0.5 is a variant
    channels: list[PositiveInt] = Field(default=[64, 64, 128, 128], min_length=4, max_length=4)
    head: Literal["pool", "capsules"]
    pooling: Literal["average", "sum", "max"] = "average"
    dense: list[PositiveInt] = Field(default=[128])  # hidden layers of the pooling head; [] is a linear head
    scores: Literal["classes", "length"] = "classes"  # of the pooling head: as a CNN's
    dim: PositiveInt = 16
    share: Literal["all"] = "all"  # one W for all positions: the only sharing that takes images of any size

    @model_validator(mode="after")
    def _loss_takes_the_scores(self) -> Self:
        if self.head == "capsules":
            routing_and_loss(self.routing, self.loss)
        length_and_loss(self.loss, self.scores)
        if self.head == "capsules" and self.scores != "classes":
            raise ValueError(
                "scores can be set only with head: pool; with head: capsules they are the lengths of the capsules"
            )
        return self

    @model_validator(mode="after")
    def _routes_any_number_of_inputs(self) -> Self:
        """A pair of digits has more lower capsules than the one digit that the model trains on."""
        own = trained_by_input(self.routing, self.routing_options) if self.head == "capsules" else []
        if own:
            raise ValueError(
                f"routing {self.routing} trains {' and '.join(own)} for each lower capsule, so it needs a fixed number "
                "of them; a two-digit model has more of them in a pair of digits than in one"
            )
        return self

    def idle(self) -> dict[str, str]:
        """As of every spec; beside the loss's, those of the other head and of the routing."""
        if self.head == "capsules":
            other = dict.fromkeys(("pooling", "dense", "scores"), "it is of head: pool, and head is capsules")
            return super().idle() | other | self.idle_of_routing()
        of_capsules = dict.fromkeys(RoutingOptions.model_fields, "it is of head: capsules, and head is pool")
        by_number = {"dim": "scores: classes gives each class a number and no vector"}
        return super().idle() | of_capsules | (by_number if self.scores == "classes" else {})

    def takes_any_size(self) -> bool:
        """By pooling, or by one W for all positions."""
        return True

    def smallest_image(self) -> int:
        """Two 3x3 convolutions, a 2x2 pooling, two more 3x3 convolutions, none padded."""
        return 14

    def routes(self) -> bool:
        """With capsules, not with pooling."""
        return self.head == "capsules"
