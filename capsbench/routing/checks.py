"""What goes into a routing and what comes out of it, checked; every message is completed by the routing's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from capsbench.errors import RoutingError, nearest
from capsbench.routing.parameters import SIZES
from capsbench.routing.types import Routed

CALL_KEYWORDS = ("children", "iterations", "trace")  # given at each call; a routing takes those it knows


class Keywords(NamedTuple):
    """The keywords of a routing: their names, those without a default, and whether any other is taken as well."""

    names: frozenset[str]
    required: frozenset[str]
    any: bool

    def __contains__(self, word: object) -> bool:
        return self.any or word in self.names


def keywords_of(routing: Callable[..., Any]) -> Keywords:
    """The keywords of a function or module after its votes, or of an nn.Module subclass's constructor."""
    parameters = list(
        inspect.signature(routing.forward if isinstance(routing, nn.Module) else routing).parameters.values()
    )
    if not isinstance(routing, type):
        parameters = parameters[1:]  # the votes
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return Keywords(
        frozenset(p.name for p in named),
        frozenset(p.name for p in named if p.default is p.empty),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def option_names(routing: Callable[..., Any]) -> list[str]:
    """The words that a routing takes as options: its keywords but for what each call or the layer gives it."""
    reserved = SIZES if isinstance(routing, type) else CALL_KEYWORDS
    return sorted(keywords_of(routing).names - set(reserved))


def check_options(routing: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise RoutingError for an option the routing does not take, or one it needs that is not given."""
    takes, known = keywords_of(routing), option_names(routing)
    for word in options:
        if word not in known and not (takes.any and word not in (*SIZES, *CALL_KEYWORDS)):
            raise RoutingError(f"it takes no option {word!r}{nearest(word, known) if known else '; it takes none.'}")
    for word in known:
        if word in takes.required and word not in options:
            raise RoutingError(f"it needs the option {word!r}.")


def check_votes(votes: Tensor, children: Tensor | None, iterations: int | None) -> None:
    """Raise RoutingError unless votes are floating [B, I, J, D], children [B, I, d] and iterations at least 1."""
    if votes.dim() != 4 or not votes.is_floating_point():
        raise RoutingError(f"votes must be floating point [B, I, J, D], not {votes.dtype} {list(votes.shape)}.")
    if children is not None and (children.dim() != 3 or children.shape[:2] != votes.shape[:2]):
        raise RoutingError(
            f"children must be [B, I, d] with the votes' [B, I] = {list(votes.shape[:2])}, not {list(children.shape)}."
        )
    check_iterations(iterations)


def check_iterations(iterations: int | None) -> None:
    """Raise RoutingError unless iterations is None or a whole number, at least 1."""
    if iterations is not None and (isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1):
        raise RoutingError(f"iterations must be a whole number, at least 1, not {iterations!r}.")


def check_result(result: Any, votes: Tensor) -> Routed:
    """`result` as a `Routed`. Raises RoutingError unless it has poses, couplings and scores of the votes' sizes."""
    batch, inputs, outputs, dim = votes.shape
    expected = {"poses": (batch, outputs, dim), "couplings": (batch, inputs, outputs), "scores": (batch, outputs)}
    for word, shape in expected.items():
        value = getattr(result, word, None)
        if not isinstance(value, Tensor):
            raise RoutingError(
                f"it must return capsbench.routing.Routed(poses, couplings, scores), but {type(result).__name__} "
                f"has no tensor {word!r}."
            )
        if value.shape != shape:
            raise RoutingError(f"it must return {word} of shape {list(shape)}, not {list(value.shape)}.")
    return Routed(result.poses, result.couplings, result.scores, getattr(result, "trace", None))


def check_finite(routed: Routed, votes: Tensor) -> None:
    """Raise RoutingError if poses, couplings or scores hold NaN or infinity. Waits for the device."""
    for word in ("poses", "couplings", "scores"):
        if not getattr(routed, word).isfinite().all():
            cause = "although its votes are finite" if votes.isfinite().all() else "as its votes do"
            raise RoutingError(f"it returned {word} with values that are not finite, {cause}.")
