"""Malformed inputs: what they are made from, and how many of a kind a test tries."""

from __future__ import annotations

import copy
import datetime
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from counting import SEED
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

DEADLINE = datetime.timedelta(seconds=30)  # of one input: beyond, it hangs

ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 10**30, 2**63, 1e308, -0.0, "", "../x; rm", "a" * 300, "null", "1e-3", "${HOME}", "{x}"])
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


def many(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`number` examples of an input, the same ones each time."""
    every = list(HealthCheck)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        given = settings(max_examples=number, deadline=DEADLINE, database=None, suppress_health_check=every)(test)
        marked: Callable[..., None] = pytest.mark.slow(seed(SEED)(given))
        marked.__dict__["examples"] = number
        return marked

    return decorate


def declared(module: ModuleType) -> int:
    """How many examples the tests of a module try, each set of parameters counted."""
    total = 0
    for test in vars(module).values():
        if "examples" in getattr(test, "__dict__", {}):
            sets = [len(mark.args[1]) for mark in test.pytestmark if mark.name == "parametrize"]
            total += test.examples * math.prod(sets)
    return total


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a nested value, as the keys that lead there."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*at, key))


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """A copy of a JSON value with one to four places replaced, removed, renamed or doubled."""
    value = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 4))):
        *way, last = draw(st.sampled_from(list(places(value)) or [()])) or [None]
        if last is None:
            return draw(ODD)
        inner = value
        for key in way:
            inner = inner[key]
        act = draw(st.sampled_from(["replace", "replace", "remove", "add", "wrap"]))
        if act == "replace":
            inner[last] = draw(ODD)
        elif act == "remove":
            del inner[last]
        elif act == "wrap":
            inner[last] = [inner[last]]
        elif isinstance(inner, dict):
            inner[draw(st.text(max_size=8))] = draw(ODD)
        else:
            inner.append(draw(ODD))
    return value


@st.composite
def torn(draw: st.DrawFn, whole: bytes) -> bytes:
    """A copy of a file with some bytes replaced, inserted or cut off."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        act = draw(st.sampled_from(["replace", "replace", "insert", "cut"]))
        if act == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif act == "cut":
            del content[place : place + draw(st.integers(1, 1 + len(content) // 4))]
        elif content:
            content[place] = draw(st.integers(0, 255))
    return bytes(content)


def one_sentence(error: Exception, start: str) -> None:
    """What the user is told is one line and begins with the file it is about."""
    assert "\n" not in str(error)
    assert str(error).startswith(start)


PLAN = """
name: tiny
about: A plan with a little of everything.
budget: reduced
seeds: [0, 1]
uci_digits: true
width: 0.0625
training: {steps: 4, batch: 16, rate: 1.0e-3, decay: 0.96, decay_period: scaled, precision: float32}
variants:
  mine: {base: cnn, title: My own, training: {rate: 1.0e-2}}
  other: {base: capsnet-r3, routing: leaky, iterations: 2}
tasks:
  mnist: {variants: [cnn, mine, other], test_images: 20, widths: {cnn: 0.5}}
  two_digit: {variants: [two-digit-kmeans], seeds: [3], training: {epochs: 1.5}, pairs: 10}
"""
