"""Routing between capsule layers: votes in, poses, couplings and scores out.

`route(name, votes)` is the one call, `build_routing(name, ...)` the layer; the algorithms lie one to a file and are
loaded by name (`registry.py`), never imported from here, so that a run's digest covers only the one it uses.
"""

from capsbench.routing.describe import Description, describe
from capsbench.routing.functional import route
from capsbench.routing.layer import RoutingLayer, build_routing, joined
from capsbench.routing.parameters import BIAS, PRIOR, Parameter, trained
from capsbench.routing.resolve import names, resolve
from capsbench.routing.squash import SQUASH_KINDS, length, squash
from capsbench.routing.types import Pass, Routed

__all__ = [
    "BIAS",
    "PRIOR",
    "SQUASH_KINDS",
    "Description",
    "Parameter",
    "Pass",
    "Routed",
    "RoutingLayer",
    "build_routing",
    "describe",
    "joined",
    "length",
    "names",
    "resolve",
    "route",
    "squash",
    "trained",
]
