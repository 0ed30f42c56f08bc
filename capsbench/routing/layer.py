"""A routing as a layer: one construction and one call for functions, trained ones and code from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsbench.errors import RoutingError
from capsbench.routing.checks import (
    check_finite,
    check_iterations,
    check_options,
    check_result,
    check_votes,
    keywords_of,
)
from capsbench.routing.fused import can_fuse, route_fused
from capsbench.routing.parameters import SIZES, parameters_of, value_of
from capsbench.routing.resolve import resolve
from capsbench.routing.squash import at_least_float32
from capsbench.routing.types import Pass, Routed

CHUNK_BYTES = 3 * 2**20  # votes of the images routed at a time on a CPU: about what its cache holds


class RoutingLayer(nn.Module):
    """Routes votes [B, I, J, D] by a function with its options and trained parameters, or by a module.

    It computes in float32, or float64 if the votes are that, under autocast too. Images do not see each other, so on a
    CPU the package's own algorithms take a few at a time, whose votes stay in the cache through all passes.
    """

    def __init__(
        self,
        name: str,
        routing: Callable[..., Any],
        options: Mapping[str, Any],
        parameters: Mapping[str, nn.Parameter],
    ):
        super().__init__()
        self.routing_name = name
        self.routing = routing
        self.options = dict(options)
        self.trained = tuple(parameters)
        for word, parameter in parameters.items():
            self.register_parameter(word, parameter)
        self.takes = keywords_of(routing)

    def forward(
        self,
        votes: Tensor,
        children: Tensor | None = None,
        iterations: int | None = None,
        trace: bool = False,
        check_values: bool = False,
    ) -> Routed:
        """Route votes [B, I, J, D]; children [B, I, d] are the lower capsules, for the algorithms that look at them.

        `iterations` None is the algorithm's own default; one-pass algorithms ignore it. With `trace` the result
        carries one `Pass` per pass (None from a routing outside the package that keeps none). `check_values` looks for
        NaN and infinity in the result, which waits for the device. Raises RoutingError for arguments or results that
        do not fit.
        """
        try:
            check_votes(votes, children, iterations)
            votes, children = at_least_float32(votes), None if children is None else at_least_float32(children)
            with torch.autocast(votes.device.type, enabled=False):
                routed = self._route(votes, children, iterations, trace)
            if check_values:
                check_finite(routed, votes)
        except RoutingError as error:
            raise RoutingError(f"routing {self.routing_name!r}: {error}") from None
        return routed

    def _route(self, votes: Tensor, children: Tensor | None, iterations: int | None, trace: bool) -> Routed:
        ours = ":" not in self.routing_name  # code from outside may look across the batch
        few = ours and not getattr(self.routing, "takes_all", False)
        if few and votes.device.type == "cpu" and not torch.compiler.is_compiling():
            images = max(1, CHUNK_BYTES // (votes[0].numel() * votes.element_size())) if votes.numel() else 1
            if votes.shape[0] > images:
                parts = votes.split(images)
                lower = [None] * len(parts) if children is None else children.split(images)
                return joined([self._call(*part, iterations, trace) for part in zip(parts, lower, strict=True)])
        return self._call(votes, children, iterations, trace)

    def fusible(self) -> bool:
        """Whether `fused` can do what `forward` does without a trace."""
        ours = ":" not in self.routing_name  # what wraps an algorithm of the package may carry its marks
        return ours and can_fuse(self.routing, {**self.options, **dict(self.named_parameters())})

    def fused(self, u: Tensor, weight: Tensor, iterations: int | None = None) -> Routed:
        """Route the votes W_ij u_i of u [B, I, d] and W [I, J, d, D] float32 without making them (`fused.route_fused`).

        For a routing that is `fusible`, where `fused.runs` says yes. Raises RoutingError as `forward` does.
        """
        parameters = {word: getattr(self, word) for word in self.trained}
        try:
            check_iterations(iterations)
            with torch.autocast(u.device.type, enabled=False):
                return route_fused(self.routing, u, weight, iterations, {**self.options, **parameters})
        except RoutingError as error:
            raise RoutingError(f"routing {self.routing_name!r}: {error}") from None

    def _call(self, votes: Tensor, children: Tensor | None, iterations: int | None, trace: bool) -> Routed:
        given: dict[str, Any] = {"children": children, "trace": trace}
        if iterations is not None:
            given["iterations"] = iterations
        keywords = {word: value for word, value in given.items() if word in self.takes}
        parameters = {word: getattr(self, word) for word in self.trained}
        return check_result(self.routing(votes, **keywords, **self.options, **parameters), votes)


def build_routing(
    name: str,
    inputs: int | None,
    outputs: int,
    dim: int,
    child_dim: int | None = None,
    folder: str | Path | None = None,
    **options: Any,
) -> RoutingLayer:
    """The routing `name` as a layer from I `inputs` of `child_dim` dimensions to J `outputs` of `dim` dimensions.

    `inputs` None: any number, for transforms shared by all inputs. Trained parameters (`describe(name).parameters`) are
    made here, at their neutral value or from the number given; optional ones (`bias`, `prior`) where the option is true
    or a number. A name outside the package, looked for in `folder` first, may be a subclass of nn.Module: it is
    constructed with the options and those of inputs, outputs, dim, child_dim that its constructor takes.
    Raises RoutingError for a name or an option that is not known.
    """
    routing = resolve(name, folder)
    sizes = dict(zip(SIZES, (inputs, outputs, dim, child_dim), strict=True))
    try:
        check_options(routing, options)
        if isinstance(routing, type):
            takes = keywords_of(routing)
            module = routing(**{word: size for word, size in sizes.items() if word in takes}, **options)
            return RoutingLayer(name, module, {}, {})
        parameters = {}
        for word, parameter in parameters_of(routing).items():
            given = options.pop(word, not parameter.optional)
            if not parameter.optional or not (given is None or given is False):
                value = value_of(word, parameter, given, sizes, torch.empty(0))
                parameters[word] = nn.Parameter(value.detach().clone())
        return RoutingLayer(name, routing, options, parameters)
    except RoutingError as error:
        raise RoutingError(f"routing {name!r}: {error}") from None


def joined(parts: list[Routed]) -> Routed:
    """One result of the results for consecutive images, for layers that make and route votes a few images at a time."""
    poses, couplings, scores = (torch.cat(tensors) for tensors in zip(*(part[:3] for part in parts), strict=True))
    traces = [part.trace for part in parts if part.trace is not None]
    trace = (
        tuple(Pass(*map(torch.cat, zip(*one, strict=True))) for one in zip(*traces, strict=True)) if traces else None
    )
    return Routed(poses, couplings, scores, trace)
