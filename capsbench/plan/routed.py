"""What a spec says of its routing: the algorithm, and the switches and options beside it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from capsbench.errors import nearest
from capsbench.plan.routings import CUSTOM_PASSES, CUSTOM_ROUTING, ROUTINGS, is_custom
from capsbench.plan.spec import Squash, Strict, writable


class RoutingOptions(Strict):
    """How capsules of one layer send their votes to the next.

    A variant that names another routing than its `base` gets that routing's own passes, squash, normaliser and options
    (`OF_THE_ROUTING`), and not its base's; so does one that says nothing of them.
    """

    OF_THE_ROUTING: ClassVar[tuple[str, ...]] = ("iterations", "squash", "normaliser", "routing_options")

    routing: str = "dynamic"  # a name of capsbench.routing, or my_file:my_routing
    iterations: PositiveInt = 3  # r: passes, the first with uniform couplings (procedure 1)
    # W_ij of each pair | of each primary type | of all positions and types
    share: Literal["none", "type", "all"] = "none"
    normaliser: Literal["softmax", "leaky", "sigmoid"] | None = None  # over the OUTPUT capsules (eq. 3: softmax)
    squash: Squash | None = None  # of the output capsules (eq. 1: hinton); null: the routing has none
    detach_inner: bool = False  # True: gradient through the last pass only (not what the authors do)
    bias: Literal["paper", "official"] = "paper"  # official: a [classes, dim] bias added to s_j before each squash
    routing_options: dict[str, Any] = Field(default={})  # options that only this routing takes, such as alpha or prior

    @model_validator(mode="before")
    @classmethod
    def _as_the_routing_has_it(cls, values: Any) -> Any:
        """What is not said is the routing's own."""
        if not isinstance(values, dict) or not isinstance(values.get("routing", ""), str):
            return values
        facts = ROUTINGS.get(values.get("routing", "dynamic"))
        own: dict[str, Any] = {"iterations": facts.passes if facts else CUSTOM_PASSES}
        if facts:
            own |= {"squash": facts.squash, "normaliser": facts.normaliser}
        return {**values, **{key: value for key, value in own.items() if values.get(key) is None}}

    @field_validator("routing_options")
    @classmethod
    def _can_be_written_down(cls, options: dict[str, Any]) -> dict[str, Any]:
        return writable(options)

    @model_validator(mode="after")
    def _routing_takes_it(self) -> Self:
        """Every switch is one that the routing knows; what a routing from outside knows is seen when it is built."""
        if CUSTOM_ROUTING.fullmatch(self.routing):
            return self
        facts = ROUTINGS.get(self.routing)
        if facts is None:
            hint = (
                "; outside the package it is my_file:my_routing"
                if is_custom(self.routing) or not {".", "_"}.isdisjoint(self.routing)  # the suite's names have a hyphen
                else ""
            )
            raise ValueError(f"there is no routing {self.routing!r}{hint or nearest(self.routing, ROUTINGS)}")
        if facts.passes == 1 and self.iterations != 1:
            raise ValueError(f"routing {self.routing} makes one pass: iterations must be 1, not {self.iterations}")
        said = {
            "squash": self.squash if self.squash != facts.squash else None,
            "normaliser": self.normaliser if self.normaliser != facts.normaliser else None,
            "detach_inner": self.detach_inner or None,
            "bias": self.bias if self.bias != "paper" else None,
        }
        for key, value in said.items():
            if value is not None and key not in facts.takes:
                raise ValueError(f"routing {self.routing} takes no {key}, which is {value!r} here")
        for key in self.routing_options:
            if key in facts.takes:
                raise ValueError(f"routing_options names {key}, which belongs beside routing and not among its options")
            if key not in facts.options:
                hint = nearest(key, facts.options) if facts.options else "; it takes none."
                raise ValueError(f"routing_options: routing {self.routing} takes no option {key!r}{hint}")
        return self

    def idle_of_routing(self) -> dict[str, str]:
        """Of these keys those that do nothing, as `Spec.idle` has them; a routing from outside knows best."""
        if self.iterations > 1 or is_custom(self.routing):
            return {}
        return {"detach_inner": "of one pass there are no others that gradient could flow through"}


def routing_and_loss(routing: str, loss: str) -> None:
    """Raise ValueError where the routing's scores are not what the loss takes; a routing from outside knows best."""
    if is_custom(routing):
        return
    by_logits = routing == "inverted-attention"
    if by_logits and "cross-entropy" not in loss:
        raise ValueError(
            f"routing inverted-attention scores with logits, since its capsules all have the same length: "
            f"loss must be cross-entropy or sigmoid-cross-entropy, not {loss}"
        )
    if "cross-entropy" in loss and not by_logits:
        raise ValueError(f"routing {routing} scores with lengths in [0, 1), and loss {loss} takes logits")
    if loss == "nll" and routing != "self-routing":
        raise ValueError(f"loss nll takes scores that sum to 1, which self-routing produces and {routing} does not")
