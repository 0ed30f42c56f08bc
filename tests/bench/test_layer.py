"""The capsule layer alone: every size, both ways, and the same gradients either way."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from tools import unavailable

from capsbench.bench import layer
from capsbench.bench.layer import FUSED, IN_MEMORY, routing_alone
from capsbench.cli.bench import routing_table
from capsbench.errors import ResourceError
from capsbench.plan import House
from capsbench.routing import cpu_fused

PLAN = """
budget: reduced
seeds: [0]
width: 0.125
training: {steps: 1, batch: 4}
tasks:
  mnist: {variants: [capsnet-r3-recon]}
"""


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "plan.yaml").write_text(PLAN)
    return House.load(tmp_path / "plan.yaml")


def test_both_ways_of_every_size_and_how_they_compare(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "PIXELS", (22, 28))
    said: list[str] = []
    rows = routing_alone(house.cells[0], 6, 3, torch.device("cpu"), said.append)
    ways = [IN_MEMORY, FUSED] if cpu_fused.why_not() is None else [IN_MEMORY]
    assert [(row["inputs"], row["name"]) for row in rows] == [(4 * n, way) for n in (9, 36) for way in ways]
    assert not any(row["captured"] for row in rows)
    for row in rows:
        plain = next(r for r in rows if (r["inputs"], r["name"]) == (row["inputs"], IN_MEMORY))
        assert row["times"] == plain["seconds"] / row["seconds"] > 0
        assert row["less_memory"] == plain["peak_bytes"] / row["peak_bytes"] > 0
        assert len(row["all_seconds"]) == 3
        assert row["seconds"] == statistics.median(row["all_seconds"])
    assert (FUSED in ways) == (not any("alone" in line for line in said))
    assert routing_table(rows).row_count == len(rows)


def test_what_is_timed_are_gradients_of_all_and_the_same_either_way(house: House) -> None:
    if (reason := cpu_fused.why_not()) is not None:
        unavailable(f"fused routing {reason}")
    spec = house.cells[0].spec
    made = layer.CapsuleLayer(types=2, places=9, child_dim=8, outputs=10, dim=16, options=spec)
    torch.nn.init.normal_(made.weight, std=0.1)
    plainly: list[object] = []
    made.routing.register_forward_pre_hook(lambda *_: plainly.append(1))
    plain, fused = (layer._BothWays(made, 5, 18, way)() for way in (False, True))
    assert len(plainly) == 1  # else both would be the same way
    assert [g.shape for g in plain] == [(5, 18, 8), *(p.shape for p in made.parameters())]
    for a, b in zip(plain, fused, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_where_a_layer_cannot_be_fused_the_reason_is_said(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "PIXELS", (22,))
    monkeypatch.setattr(layer, "why_not_fused", lambda _: "needs Triton, which cannot be imported")
    called: list[object] = []
    monkeypatch.setattr(layer._BothWays, "__call__", lambda self: called.append(self))
    monkeypatch.setattr(layer, "peak_bytes", lambda call, device: len(called))
    said: list[str] = []
    rows = routing_alone(house.cells[0], 2, 2, torch.device("cpu"), said.append)
    assert [row["name"] for row in rows] == [IN_MEMORY]
    assert rows[0]["peak_bytes"] == 1  # the first call, for which libraries set themselves up, is not measured
    assert said[0].endswith("alone, since fused routing needs Triton, which cannot be imported.")


def test_each_size_is_kept_when_it_is_there_and_want_of_memory_says_what_to_lower(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_one_size(_: Any, pixels: int, *__: Any) -> list[dict[str, Any]]:
        if pixels == 40:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [{"pixels": pixels}]

    monkeypatch.setattr(layer, "_of_one_size", of_one_size)
    kept: list[int] = []
    expected = r"^bench: routing of 576 inputs at batch 6: out of memory; choose a smaller --batch\.$"
    with pytest.raises(ResourceError, match=expected):
        routing_alone(house.cells[0], 6, 3, torch.device("cpu"), str, lambda rows: kept.append(len(rows)))
    assert kept == [1, 2, 3]
