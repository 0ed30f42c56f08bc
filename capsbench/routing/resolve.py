"""From the name of a routing to its code: a registered name, or `my_file:my_routing` outside the package."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from capsbench.errors import RoutingError, nearest

Routing = Callable[..., Any]  # a function on votes, or a subclass of nn.Module


def _algorithms() -> dict[str, str]:
    # Imported by name, not by statement: the table must stay outside the digest of a run (see registry.py).
    table: dict[str, str] = importlib.import_module("capsbench.routing.registry").ALGORITHMS
    return table


def names() -> tuple[str, ...]:
    """The names of the registered algorithms, in the order of their table."""
    return tuple(_algorithms())


def resolve(name: str, folder: str | Path | None = None) -> Routing:
    """The function, or nn.Module subclass, that `name` stands for.

    `name` is a registered name or `module:attribute`; the module is looked for in `folder` (that of the plan) first,
    then on Python's path. An attribute that is a module stands for the function of its name in it.
    Raises RoutingError where there is no such routing or its file cannot be imported.
    """
    algorithms = _algorithms()
    target = algorithms.get(name, name)
    folder = None if name in algorithms else folder  # a plan may lie beside a clone's own capsbench/
    module_name, _, attribute = target.partition(":")
    if not _dotted(module_name) or not attribute.isidentifier():
        wanted = "." if ":" in target else nearest(name, algorithms)
        raise RoutingError(f"routing {name!r} is neither a registered name nor of the form my_file:my_routing{wanted}")
    module = _import(name, module_name, folder)
    found = getattr(module, attribute, None)
    if found is None and hasattr(module, "__path__") and importlib.util.find_spec(f"{module_name}.{attribute}"):
        found = _import(name, f"{module_name}.{attribute}", folder)
    if isinstance(found, ModuleType):
        module, found = found, getattr(found, attribute, None)
    if found is None:
        callables = [word for word, value in vars(module).items() if callable(value) and not word.startswith("_")]
        raise RoutingError(f"routing {name!r}: {module.__name__} has no {attribute!r}{nearest(attribute, callables)}")
    if not (inspect.isroutine(found) or (isinstance(found, type) and issubclass(found, nn.Module))):
        raise RoutingError(f"routing {name!r} must be a function or a subclass of torch.nn.Module, not {found!r}.")
    return found


def _dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _import(name: str, module_name: str, folder: str | Path | None) -> ModuleType:
    """Import a module of the routing `name`; every way this can fail becomes a sentence."""
    try:
        with _importable(name, module_name, folder):
            return importlib.import_module(module_name)
    except RoutingError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise RoutingError(
                f"routing {name!r}: {module_name} needs the module {error.name!r}, which is not there."
            ) from error
        place = "on Python's path" if folder is None else f"in {folder} or on Python's path"
        raise RoutingError(f"routing {name!r}: there is no module {error.name!r} {place}.") from error
    except Exception as error:  # whatever the user's file does when it is imported
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise RoutingError(f"routing {name!r}: importing {module_name} failed with {what}.") from error


@contextlib.contextmanager
def _importable(name: str, module_name: str, folder: str | Path | None) -> Iterator[None]:
    """Put `folder` first on Python's path, and see that a module it holds is not hidden by another of its name."""
    if folder is None:
        yield
        return
    place = Path(folder).resolve()
    top = module_name.partition(".")[0]
    if (place / f"{top}.py").is_file() or (place / top / "__init__.py").is_file():
        loaded = Path(getattr(sys.modules.get(top), "__file__", None) or place / top).resolve()
        installed = {"site-packages", "dist-packages"} & set(loaded.parts) or top == __name__.partition(".")[0]
        if installed or top in sys.stdlib_module_names:
            raise RoutingError(f"routing {name!r}: there is another module named {top}; give the file another name.")
        if place not in loaded.parents:
            for word in [word for word in sys.modules if word == top or word.startswith(f"{top}.")]:
                del sys.modules[word]  # the same name in the folder of another plan
    importlib.invalidate_caches()  # the file may be younger than the last look at the folder
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
