"""Trained parameters of a routing function: declared beside it, made by the layer, given by keyword otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from capsbench.errors import RoutingError, nearest

SIZES = ("inputs", "outputs", "dim", "child_dim")  # I, J, D and d, the dimensions of a lower capsule

Function = TypeVar("Function", bound=Callable[..., Any])


class Parameter(NamedTuple):
    """A trained tensor: its shape in words of `SIZES`, its neutral value to start from, whether only on request."""

    shape: tuple[str, ...]
    start: float = 0.0
    optional: bool = False


BIAS = Parameter(("outputs", "dim"), optional=True)  # added to s_j before each squash (the authors' code)
PRIOR = Parameter(("inputs", "outputs"), optional=True)  # initial logits, trained (Sabour 2017, section 2)


def trained(**parameters: Parameter) -> Callable[[Function], Function]:
    """Declare keywords of a routing function as trained parameters.

    `route` takes them as tensors (None is neutral), `build_routing` makes them: those that are not optional always,
    the others when the option is `True` or a number to start from.
    """
    for name, parameter in parameters.items():
        for word in parameter.shape:
            if word not in SIZES:
                raise RoutingError(f"parameter {name!r} has the unknown size {word!r}{nearest(word, SIZES)}")

    def declare(function: Function) -> Function:
        function.__dict__["parameters"] = parameters
        return function

    return declare


def parameters_of(routing: Callable[..., Any]) -> dict[str, Parameter]:
    """The trained parameters that a routing function declares, by name."""
    declared: dict[str, Parameter] = getattr(routing, "__dict__", {}).get("parameters", {})
    return declared


def shape_of(name: str, parameter: Parameter, sizes: Mapping[str, int | None]) -> tuple[int, ...]:
    """The shape of a parameter for these sizes. Raises RoutingError where a size is not known (shared transforms)."""
    shape = []
    for word in parameter.shape:
        size = sizes[word]
        if size is None:
            raise RoutingError(f"parameter {name!r} needs a fixed number of {word}, which this layer does not have.")
        shape.append(size)
    return tuple(shape)


def value_of(name: str, parameter: Parameter, given: object, sizes: Mapping[str, int | None], like: Tensor) -> Tensor:
    """The tensor for an option `given` as tensor, number or True (its neutral value). Raises RoutingError otherwise."""
    shape = shape_of(name, parameter, sizes)
    if isinstance(given, Tensor):
        if given.shape != shape:
            raise RoutingError(f"{name} must have the shape {_words(parameter, shape)}, not {list(given.shape)}.")
        return given
    if given is True:
        given = parameter.start
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise RoutingError(f"{name} must be a tensor {_words(parameter, shape)}, a number or true, not {given!r}.")
    return torch.full(shape, float(given), dtype=like.dtype, device=like.device)


def _words(parameter: Parameter, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(f'{word} {size}' for word, size in zip(parameter.shape, shape, strict=True))}]"
