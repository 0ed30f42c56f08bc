"""A network from outside before it has learned anything: state that can be stored, weights that follow a seed."""

from __future__ import annotations

from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor, nn

from capsbench.errors import RoutingError


def refuse_other_state(module: nn.Module, name: str) -> None:
    """Raise RoutingError, beginning with `name`, for what an optimiser or a file of weights cannot hold."""
    for word, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise RoutingError(f"{name}: a lazy layer has no size before its first image; give it one.")
        if parameter.dtype != torch.float32:
            raise RoutingError(f"{name}: its parameter {word} is of {parameter.dtype}, not torch.float32.")
    places: dict[int, str] = {}
    for word, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise RoutingError(f"{name}: its state has {word}, no tensor, which a file of weights cannot hold.")
        try:
            safetensors.torch.save({word: value.new_empty(0)})
        except KeyError:  # its table of dtypes
            raise RoutingError(
                f"{name}: its state has {word} of {value.dtype}, which a file of weights cannot hold."
            ) from None
        other = places.setdefault(value.untyped_storage().data_ptr(), word) if value.numel() else word
        if other != word:
            raise RoutingError(
                f"{name}: {other} and {word} lie in the same memory, which a file of weights cannot hold; keep what is "
                "shared under one name."
            )


def refuse_other_seeds(first: nn.Module, second: nn.Module, other: nn.Module, name: str) -> None:
    """Raise RoutingError unless first weights follow torch's seed: `first` and `second` have one, `other` another."""
    again: Mapping[str, Tensor] = second.state_dict()
    elsewhere = dict(other.named_parameters())
    if any(not torch.equal(value, again[word]) for word, value in first.state_dict().items()):
        raise RoutingError(
            f"{name}: built twice from one seed of torch it starts with other weights the second time; draw them from "
            "torch's own generator."
        )
    drawn = [(word, value) for word, value in first.named_parameters() if value.numel() and value.std(correction=0) > 0]
    if drawn and all(torch.equal(value, elsewhere[word]) for word, value in drawn):
        raise RoutingError(
            f"{name}: it starts with the same weights whatever torch's seed is, so that every seed would be the same "
            "run; draw them from torch's own generator, and set no seed."
        )


def refuse_own_seed(seed: int, name: str) -> None:
    """Raise RoutingError where torch's seed is no longer `seed`, from which something from outside was built."""
    if torch.initial_seed() != seed:
        raise RoutingError(f"{name}: it sets torch's seed, which is each run's own; leave it alone.")
