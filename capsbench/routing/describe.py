"""What a routing is, read from its code: the docstring, the signature, the declared parameters."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NamedTuple

from torch import nn

from capsbench.routing.checks import option_names
from capsbench.routing.parameters import Parameter, parameters_of
from capsbench.routing.resolve import resolve


class Description(NamedTuple):
    """A routing in words; `parameters` are the trained ones, `options` the other keywords."""

    name: str
    title: str
    source: str
    passes: int
    parameters: dict[str, Parameter]
    options: tuple[str, ...]


def describe(name: str, folder: str | Path | None = None) -> Description:
    """Title and source (first line and `Source:` line of the docstring), default passes, parameters, options.

    A routing whose code has no docstring is described by its name and file. Raises RoutingError for an unknown name.
    """
    routing = resolve(name, folder)
    lines = (inspect.getdoc(routing) or "").splitlines()
    sources = [line.removeprefix("Source:").strip() for line in lines if line.startswith("Source:")]
    call = routing.forward if isinstance(routing, type) and issubclass(routing, nn.Module) else routing
    default = inspect.signature(call).parameters.get("iterations")
    parameters = parameters_of(routing)
    return Description(
        name=name,
        title=lines[0].strip() if lines else name,
        source=sources[0].rstrip(".") if sources else Path(inspect.getfile(routing)).name,
        passes=default.default if default is not None and isinstance(default.default, int) else 1,
        parameters=parameters,
        options=tuple(word for word in option_names(routing) if word not in parameters),
    )
