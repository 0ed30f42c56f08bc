"""What is shown of a measurement: on a narrow terminal, on the roofline, and where memory ends before all is there."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.cli.bench import bench_table, routing_table
from capsbench.errors import ResourceError
from capsbench.report.figures.style import house_style
from capsbench.report.speed import _growth, _roofline, draw_speed, fastest_uncounted

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


def test_a_table_says_that_a_row_is_narrower_than_the_plain_capsnet(stored) -> None:
    full = bench_table(stored).caption
    assert bench_table(stored | {"width": {"capsnet-r3-recon": 1.0}}).caption == full
    assert bench_table(stored | {"width": {"capsnet-r3-recon": 0.125, "cnn": 1.0}}).caption == (
        f"{full} Not at full width, as the plain CapsNet is: capsnet-r3-recon (0.125); x plain compares models of two "
        "sizes."
    )


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


def test_a_row_s_mark_stands_at_its_flops_a_byte_and_is_filled_where_it_trains(stored) -> None:
    counted = [row for row in stored["rows"] if row["flops"] and row["moved_bytes"]]
    with house_style():
        (axes,) = _roofline(stored | {"rows": counted}).axes
    marks = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert len(marks) == len(counted)
    for row in counted:
        mark = marks[f"{row['name']}, {row['precision']}, {row['phase']}"]
        assert mark.get_xdata()[0] == pytest.approx(row["flops"] / row["moved_bytes"])
        assert mark.get_ydata()[0] == pytest.approx(row["flops_per_second"] / 1e9)
        assert (mark.get_markerfacecolor() == mark.get_color()) == (row["phase"] == "training")


def test_growth_is_in_images_a_second_above_and_in_megabytes_below() -> None:
    growth = json.loads((RESULTS / "cpu-epyc-2-threads.json").read_text())["growth"]
    with house_style():
        panels = _growth(growth).axes
    (first, *_), size = growth["batch"], len(panels) // 2
    for axes, value in ((panels[0], first["images_per_second"]), (panels[size], first["peak_bytes"] / 1e6)):
        line = next(line for line in axes.lines if line.get_label() == f"{first['name']}, {first['precision']}")
        assert line.get_xydata()[0].tolist() == pytest.approx([first["size"], value])
    assert panels[0].get_ylabel().startswith("images per second")
    assert panels[size].get_ylabel().startswith("MB")


def test_what_is_measured_before_memory_ends_is_printed_written_and_drawn(
    stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    routing, growth = stored.pop("routing"), json.loads((RESULTS / "cpu-epyc-2-threads.json").read_text())["growth"]
    sofar = {"batch": growth["batch"], "inputs": [], "seeds": []}

    def grow(*given: Any) -> None:
        keep, guard = given[-2:]
        print("growing")
        with guard("bench --grow at batch 64", "choose a --grow under 64"):
            keep(sofar)
            raise torch.OutOfMemoryError("CUDA out of memory.")

    def routing_alone(*given: Any) -> None:
        keep, _ = given[-2:]
        keep(routing)

    monkeypatch.setattr("capsbench.bench.run.bench", lambda *_: stored | {"others": 0.0})
    monkeypatch.setattr("capsbench.bench.grow.grow", grow)
    monkeypatch.setattr("capsbench.bench.layer.routing_alone", routing_alone)
    file, figures = tmp_path / "b.json", tmp_path / "figures"
    words = f"bench --device cpu --threads 1 --grow 64 --routing --json {file} --figures {figures}"
    said = CliRunner().invoke(app, words.split())
    assert isinstance(said.exception, ResourceError)
    assert str(said.exception) == "bench --grow at batch 64: out of memory; choose a --grow under 64."
    before, _, after = said.output.partition("growing")
    assert "Medians of 5 rounds" in before
    assert "routing forward and backward" in before
    assert [line.split(":")[0] for line in after.splitlines() if line] == ["written", "drawn", "drawn"]
    written = json.loads(file.read_text())
    assert (written["growth"], written["routing"], written["rows"]) == (sofar, routing, stored["rows"])
    assert {path.name for path in figures.glob("*.png")} == {"roofline.png", "growth.png"}
