"""Read YAML by rules of our own; every mistake becomes one sentence with the file and the line."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import yaml

from capsbench.errors import PlanError, nearest

NO_PLANS = ("claims", "published", "variants")  # what else lies in config/
LONGEST = 100  # digits of a whole number; Python writes out none of some thousands
LARGEST = 100_000  # values in a file, aliases written out: a few of them can stand for billions
DEEPEST = 2_000  # of brackets in brackets, or columns of indentation: libyaml ends the process where its stack does


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node stands for. Raises MarkedYAMLError where it contains itself."""
    if id(node) not in sizes:
        sizes[id(node)] = 0  # while it is looked into
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        inner = parts if isinstance(node, yaml.CollectionNode) else []
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in inner)
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":int") and len(node.value) > LONGEST:
        raise yaml.MarkedYAMLError(problem=f"a number of {len(node.value):,} digits", problem_mark=node.start_mark)
    if isinstance(node, yaml.ScalarNode) and any("\ud800" <= letter <= "\udfff" for letter in node.value):
        raise yaml.MarkedYAMLError(problem="half of a character, which no file can hold", problem_mark=node.start_mark)
    if sizes[id(node)] == 0:
        raise yaml.MarkedYAMLError(problem="a value contains itself", problem_mark=node.start_mark)
    return sizes[id(node)]


class _Rules:
    """YAML with numbers such as 1e-3 read as numbers, no key twice, and no aliases that stand for more than LARGEST."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()  # type: ignore[misc]
        if node is not None and _size(node, {}) > LARGEST:
            raise yaml.MarkedYAMLError(
                problem=f"it stands for more than {LARGEST:,} values", problem_mark=node.start_mark
            )
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<`: the base class puts in what it stands for
                continue
            key = self.construct_object(key_node, deep=True)  # type: ignore[attr-defined]
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is not a word", problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"key '{key}' appears twice", problem_mark=key_node.start_mark)
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return mapping


class _Loader(_Rules, yaml.SafeLoader):
    """In Python: its complaints are the ones that users read."""


class _FastLoader(_Rules, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same by libyaml, several times as fast; it takes a few things, such as some tabs, that Python's refuses."""


for _one in (_Loader, _FastLoader):
    _one.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )


def _value_of(text: str, large: bool) -> Any:
    """What a text of YAML holds. Raises YAMLError, ValueError and RecursionError."""
    depth = text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0)  # at the most
    if large and depth < DEEPEST:
        with contextlib.suppress(
            yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError
        ):  # said below, in other words
            return yaml.load(text, Loader=_FastLoader)
    return yaml.load(text, Loader=_Loader)


def read_yaml(path: Path, large: bool = False) -> dict[str, Any]:
    """The mapping in a YAML file. `large`: one of many thousand values. Raises PlanError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        files = (p.name for p in path.parent.glob("*.y*ml") if p.stem not in NO_PLANS) if path.parent.is_dir() else ()
        raise PlanError(f"There is no file {path}{nearest(path.name, files)}") from None
    except IsADirectoryError:
        raise PlanError(f"{path} is a folder; name a file in it.") from None
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise PlanError(f"{path} cannot be read as text (UTF-8): {error.reason} at byte {error.start}.") from None
    try:
        value = _value_of(text, large)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise PlanError(f"{path}{where}: not valid YAML: {problem}.") from None
    except (LookupError, AttributeError):  # of PyYAML's constructors
        raise PlanError(f"{path}: not valid YAML: a value is not what its tag, such as !!bool, says.") from None
    except (ValueError, RecursionError) as error:  # a number or a nesting that YAML's own rules let through
        raise PlanError(f"{path}: not valid YAML: {error}.") from None
    if value is None:
        raise PlanError(f"{path} is empty; it must hold keys and values.")
    if not isinstance(value, dict):
        raise PlanError(f"{path} holds {type(value).__name__}, not a mapping of keys to values.")
    return value
