"""Two makings of a run: how far arrays differ, and what else was not the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capsbench.cli.second_making import array_differences, circumstances, other_parts
from capsbench.report.contract import Manifest


def test_differences_of_arrays() -> None:
    a = {"x": np.array([1.0, np.nan, 3.0]), "y": np.zeros(2), "z": np.array([0.0]), "only": np.zeros(1)}
    b = {"x": np.array([1.0, np.nan, 3.5]), "y": np.zeros(3), "z": np.array([-0.0])}
    assert array_differences(a, b) == [
        "only is only in the stored making",
        "x differs in 1 of 3 values, by 0.5 at most",
        "y is float64 [2], now float64 [3]",
        "z differs in 1 of 1 values, by 0 at most",
    ]
    assert array_differences(a, a) == []


@pytest.mark.parametrize(
    ("stored", "again", "words"),
    [
        ([np.nan, 1.0, 2.0], [1.0, 1.0, 2.0], "1 of 3 values, 1 of them NaN or infinite"),
        ([np.nan, 1.0, 2.0], [1.0, 1.25, 2.0], "2 of 3 values, by 0.25 at most, 1 of them NaN or infinite"),
        ([np.inf, np.inf, 2.0], [1.0, np.inf, 2.5], "2 of 3 values, by 0.5 at most, 1 of them NaN or infinite"),
        ([[1, 200], [3, 4]], [[1, 7], [4, 4]], "2 of 4 values, by 193 at most"),
        ([True, True], [True, False], "1 of 2 values, by 1 at most"),
        (["seven", "eight"], ["seven", "three"], "1 of 2 values"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_values_that_differ_are_counted_by_their_bytes(stored: object, again: object, words: str) -> None:
    kind = np.uint8 if isinstance(stored, list) and isinstance(stored[0], list) else None
    sides = [{"x": np.array(values, dtype=kind)} for values in (stored, again)]
    assert array_differences(*sides) == [f"x differs in {words}"]


def manifest(**said: Any) -> Manifest:
    run, dataset = {"task": "mnist", "variant": "cnn", "seed": 0}, {"name": "mnist", "badge": "MNIST"}
    return Manifest.model_validate(
        {"schema": 1, "run": run, "status": "done", "digest": "d", "dataset": dataset, **said}
    )


def test_variables_that_alter_bits_are_named() -> None:
    """A program that counts two threads computes with fewer under OMP_DYNAMIC, depending on what else is at work."""
    stored, again = (
        manifest(machine={"processor": "one", **more}) for more in ({"environment": "OMP_DYNAMIC=true"}, {})
    )
    assert circumstances(stored, again) == ["environment: was OMP_DYNAMIC=true, now None"]
    assert circumstances(again, stored) == ["environment: was None, now OMP_DYNAMIC=true"]
    assert circumstances(stored, stored) == []


@pytest.mark.parametrize(("resumed", "count"), [(None, 0), (0, 0), (2, 1)])
def test_of_a_run_that_was_gone_on_with_the_manifest_names_the_last_part_alone(resumed: int | None, count: int) -> None:
    assert len(other_parts(manifest(resumed=resumed))) == count
