"""What is shown of a stored measurement: on a narrow terminal, and on the roofline."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from capsbench.cli.bench import bench_table, routing_table
from capsbench.report.speed import draw_speed, fastest_uncounted

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@pytest.fixture
def stored() -> dict[str, Any]:
    return dict(json.loads((RESULTS / "gpu-h200.json").read_text()))


def test_a_narrow_terminal_breaks_names_and_never_a_number(stored) -> None:
    said = io.StringIO()
    Console(file=said, width=80).print(bench_table(stored), routing_table(stored["routing"]))
    assert "…" not in said.getvalue()
    for row in stored["rows"]:
        assert f" {row['images_per_second']:,.0f} " in said.getvalue()


def test_the_roofline_has_on_its_edge_the_fastest_rows_whose_bytes_nobody_counted(stored, tmp_path: Path) -> None:
    ways = {(row["precision"], row["phase"]): row["name"] for row in fastest_uncounted(stored["rows"])}
    assert ways == {
        ("float32", "training"): "capsnet-r3-recon, fused, captured",
        ("float32", "inference"): "capsnet-r3-recon, fused",
        ("bf16", "training"): "capsnet-r3-recon, fused, tiles, captured",
        ("bf16", "inference"): "capsnet-r3-recon, fused, tiles",
    }
    counted = [row for row in stored["rows"] if row["moved_bytes"]]
    assert fastest_uncounted(counted) == []
    for rows in (stored["rows"], counted):
        (drawn,) = draw_speed(stored | {"rows": rows}, tmp_path)
        assert drawn.stat().st_size > 10_000
