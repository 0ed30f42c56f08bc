"""What a spec has to know of the routing algorithms without torch: their own choices, and the switches they take.

The code in capsbench/routing/ decides; a test holds this table to it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CUSTOM_ROUTING = re.compile(r"(?=.{1,100}$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)  # my_file:my_routing
CUSTOM_PASSES = 3  # of a routing outside the package, where a plan does not say
SWITCHES = frozenset({"squash", "normaliser", "detach_inner", "bias"})


class RoutingFacts(NamedTuple):
    """An algorithm's own number of passes, squash and normaliser (None: it has none), and the switches it takes."""

    passes: int
    squash: str | None
    normaliser: str | None
    takes: frozenset[str]


ROUTINGS = {
    "dynamic": RoutingFacts(3, "hinton", "softmax", SWITCHES),
    "leaky": RoutingFacts(3, "hinton", "leaky", SWITCHES - {"normaliser"}),
    "uniform": RoutingFacts(1, "hinton", None, frozenset({"squash", "bias"})),
    "learned": RoutingFacts(1, "hinton", "softmax", SWITCHES - {"detach_inner"}),
    "replace": RoutingFacts(3, "hinton", "softmax", SWITCHES),
    "kmeans": RoutingFacts(3, "half", "softmax", SWITCHES),
    "optimised": RoutingFacts(3, "half", "softmax", SWITCHES),
    "scaled-distance": RoutingFacts(3, "hinton", None, SWITCHES - {"normaliser"}),
    "em-vector": RoutingFacts(3, None, None, frozenset()),
    "self-attention": RoutingFacts(1, "exp", None, frozenset({"squash"})),
    "inverted-attention": RoutingFacts(2, None, None, frozenset()),
    "self-routing": RoutingFacts(1, None, None, frozenset()),
}


def is_custom(routing: str) -> bool:
    """Whether the routing is named `my_file:my_routing`: code outside the package."""
    return ":" in routing
