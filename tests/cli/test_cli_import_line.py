"""An error that a file beside a plan raises when it is imported is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import REPOSITORY, Place
from rich.console import Console

from capsbench.cli.inputs import try_routings
from capsbench.cli.variants import find_variant
from capsbench.errors import RoutingError
from capsbench.plan import House

FAULTS = {
    "name": ("X = nothing_like_it", "line 1"),
    "missing": ("\nimport no_such_module_anywhere", "line 2"),
    "size": ("from capsbench.routing import trained\nfrom capsbench.routing.parameters import Parameter\n\n"
             "@trained(t=Parameter(('output',)))", "line 4"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_line_is_named(tmp_path: Path, fault: str) -> None:
    text, line = FAULTS[fault]
    module = f"fails_by_{fault}"
    (tmp_path / f"{module}.py").write_text(f"{text}\ndef mine(votes, t=None): ...\n")
    plan = Place(tmp_path, REPOSITORY).plan(variants=f"['{module}:mine']")
    house = House.load(plan)
    with pytest.raises(RoutingError, match=rf"See {module}\.py, {line}\.$"):
        try_routings(Console(quiet=True), house, house.cells)
    with pytest.raises(RoutingError, match=rf"See {module}\.py, {line}\.$"):
        find_variant(f"{module}:mine", tmp_path, {})


def test_a_line_that_is_named_already_is_not_named_twice(tmp_path: Path) -> None:
    (tmp_path / "fails_late.py").write_text("def mine(votes):\n    return votes / None\n")
    house = House.load(Place(tmp_path, REPOSITORY).plan(variants="['fails_late:mine']"))
    with pytest.raises(RoutingError, match=r"fails_late\.py, line 2: it raised TypeError") as refused:
        try_routings(Console(quiet=True), house, house.cells)
    assert str(refused.value).count("line 2") == 1
