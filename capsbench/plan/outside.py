"""The spec of a model outside the package, `my_file:MyModel`: what a plan can know of it without running its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, field_validator

from capsbench.plan.routings import CUSTOM_ROUTING, is_custom
from capsbench.plan.spec import DecoderOptions, Loss, Spec, Width, writable


class OutsideSpec(DecoderOptions, Spec):
    """A model of the user's own: a class or function beside the plan, and what the suite does around it."""

    SCALED = ("decoder",)

    model: str
    loss: Loss
    model_options: dict[str, Any] = Field(default={})  # keywords for its constructor
    capsules: bool = True  # false: a baseline, with which reports compare capsules
    any_size: bool = False  # true: takes images of other sizes than it was built for, as two digits side by side are
    width: Width = 1.0  # the plan's, for a constructor that takes it

    @field_validator("model")
    @classmethod
    def _is_a_name(cls, model: str) -> str:
        if not CUSTOM_ROUTING.fullmatch(model):
            raise ValueError(f"there is no model {model!r}; outside the package it is my_file:MyModel")
        return model

    @field_validator("model_options")
    @classmethod
    def _can_be_written_down(cls, options: dict[str, Any]) -> dict[str, Any]:
        return writable(options)

    @property
    def routing(self) -> str:
        """The code that it names, where digests, copies and trials ask a spec for code from outside."""
        return self.model

    @property
    def head(self) -> str:
        """As of a CNN whose average takes images of any size, where the two-digit transfer asks for that."""
        return "average" if self.any_size else ""

    def takes_any_size(self) -> bool:
        """As it says; the trial looks whether it does."""
        return self.any_size

    def scaled(self, width: float) -> Self:
        """Its constructor's business, which is told the width and refuses one that it does not take."""
        return self if width == 1 else super().scaled(width).model_copy(update={"width": self.width * width})

    def idle(self) -> dict[str, str]:
        """As of every spec; beside the loss's, the decoder's."""
        idle = super().idle() | self.idle_of_decoder()
        return idle | ({"dim": "reconstruction is none"} if self.reconstruction == "none" else {})


def code_of(variant: Mapping[str, Any]) -> str:
    """The code from outside that a variant's mapping names, as in a manifest, with what it is; empty if none."""
    for what in ("model", "routing"):
        if is_custom(name := str(variant.get(what, ""))):
            return f"{what} {name}"
    return ""


def code_named(spec: Spec) -> str:
    """The code from outside that a spec names, as errors name it: `model 'my_file:MyModel'` or `routing '...'`."""
    return f"{'model' if isinstance(spec, OutsideSpec) else 'routing'} {getattr(spec, 'routing', '')!r}"
