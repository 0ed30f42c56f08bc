"""What a spec has to know of the routing algorithms without torch: their own choices, switches and options.

The code in capsbench/routing/ decides; a test holds this table to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

CUSTOM_ROUTING = re.compile(r"(?=.{1,100}$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)  # my_file:my_routing
CUSTOM_PASSES = 3  # of a routing outside the package, where a plan does not say
NONE: frozenset[str] = frozenset()
SWITCHES = frozenset({"squash", "normaliser", "detach_inner", "bias"})
PRIOR = frozenset({"prior"})
GATES = frozenset({"gate_weight", "gate_bias"})


class RoutingFacts(NamedTuple):
    """An algorithm's own number of passes, squash and normaliser (None: it has none), and the words that it takes.

    takes: of the SWITCHES, which a variant says beside its routing; options: what may stand in its `routing_options`;
    by_input: of what it always trains, the parameters of which each lower capsule has its own.
    """

    passes: int
    squash: str | None
    normaliser: str | None
    takes: frozenset[str]
    options: frozenset[str]
    by_input: frozenset[str] = NONE


ROUTINGS = {
    "dynamic": RoutingFacts(3, "hinton", "softmax", SWITCHES, PRIOR),
    "leaky": RoutingFacts(3, "hinton", "leaky", SWITCHES - {"normaliser"}, PRIOR),
    "uniform": RoutingFacts(1, "hinton", None, frozenset({"squash", "bias"}), NONE),
    "learned": RoutingFacts(1, "hinton", "softmax", SWITCHES - {"detach_inner"}, PRIOR, PRIOR),
    "replace": RoutingFacts(3, "hinton", "softmax", SWITCHES, PRIOR),
    "kmeans": RoutingFacts(3, "half", "softmax", SWITCHES, PRIOR),
    "optimised": RoutingFacts(3, "half", "softmax", SWITCHES, frozenset({"alpha", "prior"})),
    "scaled-distance": RoutingFacts(3, "hinton", None, SWITCHES - {"normaliser"}, NONE),
    "em-vector": RoutingFacts(3, None, None, NONE, frozenset({"beta_a", "beta_u"})),
    "self-attention": RoutingFacts(1, "exp", None, frozenset({"squash"}), frozenset({"average", "prior"}), PRIOR),
    "inverted-attention": RoutingFacts(2, None, None, NONE, frozenset({"gain", "shift", "head"})),
    "self-routing": RoutingFacts(1, None, None, NONE, GATES, GATES),
}


def is_custom(routing: str) -> bool:
    """Whether the routing is named `my_file:my_routing`: code outside the package."""
    return ":" in routing


def trained_by_input(routing: str, options: Mapping[str, Any]) -> list[str]:
    """The trained parameters of which each lower capsule has its own: with any, the routing needs so many of them.

    Of a routing from outside a plan knows none; its layer says so when it is built.
    """
    facts = ROUTINGS.get(routing)
    if facts is None:
        return []
    asked = options.get("prior")
    return sorted(facts.by_input | (NONE if asked is None or asked is False else PRIOR))
