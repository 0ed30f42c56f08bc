"""Routing as one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from capsbench.errors import RoutingError
from capsbench.routing.checks import check_options, check_votes
from capsbench.routing.layer import RoutingLayer, build_routing
from capsbench.routing.parameters import SIZES, parameters_of, value_of
from capsbench.routing.resolve import resolve
from capsbench.routing.types import Routed


def route(
    name: str,
    votes: Tensor,
    iterations: int = 3,
    *,
    children: Tensor | None = None,
    trace: bool = False,
    check_values: bool = True,
    folder: str | Path | None = None,
    **options: Any,
) -> Routed:
    """Route votes [B, I, J, D], float32 or float64, by the algorithm `name`: poses, couplings, scores, trace.

    `iterations` passes, the first with uniform couplings; one-pass algorithms accept and ignore it. The default of 3
    is the paper's of dynamic routing, whatever the algorithm; a plan gives each its own (`capsbench variants`).
    `children` [B, I, d] are the lower capsules, for the algorithms that look at them. Trained parameters are keywords
    too: tensors, neutral where they are missing. `folder`: where a name `my_file:my_routing` is looked for first; an
    nn.Module subclass behind it is constructed anew at each call. Raises RoutingError for a name, an option or a shape
    that does not fit, and, with `check_values` (which waits for the device), for a result that is not finite.
    """
    routing = resolve(name, folder)
    try:
        check_votes(votes, children, iterations)
        check_options(routing, options)
        _, inputs, outputs, dim = votes.shape
        child_dim = None if children is None else children.shape[-1]
        declared = parameters_of(routing)
        sizes = dict(zip(SIZES, (inputs, outputs, dim, child_dim), strict=True))
        for word in declared.keys() & options.keys():
            given = options[word]
            absent = given is None or given is False
            options[word] = None if absent else value_of(word, declared[word], given, sizes, votes)
    except RoutingError as error:
        raise RoutingError(f"routing {name!r}: {error}") from None
    if isinstance(routing, type):
        layer = build_routing(name, inputs, outputs, dim, child_dim, folder, **options).to(votes)
    else:
        layer = RoutingLayer(name, routing, options, {})
    routed: Routed = layer(votes, children, iterations, trace, check_values)
    return routed
