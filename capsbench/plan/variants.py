"""Variant specs: what a model is, in words and numbers, without torch.

A spec is flat. Every default is the paper's choice ("Dynamic Routing Between Capsules", arXiv 1710.09829); where the
authors' released code does something else, the option is called `official`. What all say stands in `spec.py`, what is
said of a routing in `routed.py`, each family of models in a file of its own.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from capsbench.plan.capsnets import CapsNetSpec, EmCapsNetSpec
from capsbench.plan.cnns import CnnSpec, ResNetSpec
from capsbench.plan.outside import OutsideSpec
from capsbench.plan.routed import RoutingOptions
from capsbench.plan.routings import is_custom
from capsbench.plan.spec import DecoderOptions, Spec
from capsbench.plan.two_digit import TwoDigitSpec

__all__ = [
    "MODELS", "SPECS", "CapsNetSpec", "CnnSpec", "DecoderOptions", "EmCapsNetSpec", "OutsideSpec", "ResNetSpec",
    "RoutingOptions", "Spec", "TwoDigitSpec", "checked", "spec_of",
]  # fmt: skip

SPECS: dict[str, type[Spec]] = {
    "capsnet": CapsNetSpec,
    "cnn": CnnSpec,
    "resnet": ResNetSpec,
    "em-capsnet": EmCapsNetSpec,
    "two-digit": TwoDigitSpec,
}


class _Models(dict[str, str]):
    """The classes of models by their names; one from outside has a class of ours around it."""

    def __missing__(self, model: str) -> str:
        if is_custom(model):
            return "capsbench.models.outside:Outside"
        raise KeyError(model)


# Modules are named, not imported: a run's source digest follows imports, and one model is not another's business.
MODELS = _Models(
    {
        "capsnet": "capsbench.models.capsnet:CapsNet",
        "cnn": "capsbench.models.cnn:Cnn",
        "resnet": "capsbench.models.resnet:ResNet",
        "em-capsnet": "capsbench.models.em_capsnet:EmCapsNet",
        "two-digit": "capsbench.models.two_digit:TwoDigit",
    }
)


def spec_of(model: str) -> type[Spec] | None:
    """The class of a model's spec by its name, or by `my_file:MyModel`; None where there is no such model."""
    return OutsideSpec if is_custom(model) else SPECS.get(model)


def checked(spec: Spec, values: dict[str, Any]) -> Spec:
    """The spec with other values, held to its rules. Raises ValueError saying what is wrong with them."""
    try:
        return type(spec).model_validate(spec.model_dump() | values)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
