"""What is shown of a measurement: on a narrow terminal, on the roofline, and where memory ends before all is there."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.cli.bench import bench_table, growth_table, routing_table
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.report.figures.style import house_style
from capsbench.report.speed import _growth, _roofline, draw_speed, fastest_uncounted
from capsbench.training.what_to_lower import says_what_to_lower

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


def test_growth_has_a_line_for_every_size_and_model_on_a_narrow_terminal() -> None:
    growth = json.loads((RESULTS / "cpu-epyc-2-threads.json").read_text())["growth"]
    said = io.StringIO()
    Console(file=said, width=80).print(growth_table(growth))
    lines = [" ".join(line.split()) for line in said.getvalue().splitlines()]
    words = {"batch": "batch: {:,}", "inputs": "input capsules: {:,}", "seeds": "seeds at once: {:,}"}
    assert [line for line in lines if line.startswith(("batch:", "input capsules:", "seeds at once:"))] == [
        f"{words[what].format(row['size'])} {row['name']}, {row['precision']} {row['images_per_second']:,.0f} "
        f"{row['peak_bytes'] / 1e6:,.0f}"
        for what, rows in growth.items()
        for row in rows
    ]


def test_a_table_says_that_a_row_is_narrower_than_the_plain_capsnet(stored) -> None:
    full = bench_table(stored).caption
    assert bench_table(stored | {"width": {"capsnet-r3-recon": 1.0}}).caption == full
    assert bench_table(stored | {"width": {"capsnet-r3-recon": 0.125, "cnn": 1.0}}).caption == (
        f"{full} Not at full width, as the plain CapsNet is: capsnet-r3-recon (0.125); x plain compares models of two "
        "sizes."
    )


def shown(*words: str) -> str:
    """What `bench --from` answers: its output, or the sentence in its place."""
    said = CliRunner().invoke(app, ["bench", "--from", *words])
    assert said.exception is None or isinstance(said.exception, CapsbenchError), said.exception
    return said.output if said.exception is None else str(said.exception)


def test_what_is_stored_is_shown_and_drawn_without_measuring(tmp_path: Path) -> None:
    names = [path for path in RESULTS.glob("*.json") if path.name not in ("quick-shares.json", "two-from-one.json")]
    assert len(names) > 10
    for path in names:
        rows = json.loads(path.read_text())["rows"]
        said = shown(str(path))
        assert all(f" {row['images_per_second']:,.0f} " in said for row in rows)
    assert "routing forward and backward" in shown(str(RESULTS / "gpu-h200.json"))
    assert "a training step as it grows" in shown(str(RESULTS / "cpu-epyc-2-threads.json"))
    assert "a training step as it grows" not in shown(str(RESULTS / "cpu-xeon-2-threads.json"))
    drawn = tmp_path / "figures"
    assert f"drawn: {drawn / 'growth.png'}" in shown(str(RESULTS / "cpu-epyc-2-threads.json"), "--figures", str(drawn))
    assert all((drawn / name).stat().st_size > 10_000 for name in ("roofline.png", "growth.png"))


def test_a_file_that_is_no_measurement_is_refused_in_a_sentence(stored, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    wrong = {
        "schema: ": {"rows": []},
        "rows: ": stored | {"rows": []},
        "has no tf32, which `rows` names": stored | {"product_flops_per_second": {"float32": 1.0, "bf16": 1.0}},
        "`flops` without": stored | {"rows": [stored["rows"][0] | {"flops_per_second": None}]},
        "images_per_second: ": stored | {"rows": [stored["rows"][0] | {"images_per_second": float("nan")}]},
    }
    for words, content in wrong.items():
        file.write_text(json.dumps(content))
        said = shown(str(file), "--figures", str(tmp_path / "figures"))
        assert words in said
        assert said.startswith(f"{file} is not in the format of docs/results-format.md: ")
        assert said.endswith("; name a file that `capsbench bench --json` wrote.")
    assert shown(str(tmp_path / "none.json")).startswith(f"{tmp_path / 'none.json'} is not there; name a file")
    file.write_text(json.dumps(stored | {"rows": [stored["rows"][0] | {"moved_bytes": None}]}))
    assert "Nothing is drawn" in shown(str(file), "--figures", str(tmp_path / "figures"))


def test_what_measures_is_refused_beside_a_stored_measurement(tmp_path: Path) -> None:
    words = ["config/quick.yaml", "--task", "mnist", "--batch", "4", "--grow", "32", "--routing", "--json", "b.json"]
    assert shown(str(RESULTS / "gpu-h200.json"), *words) == (
        "--from shows a stored measurement and makes none; leave out the plan, --task, --batch, --grow, --routing, "
        "--json."
    )


def test_where_nothing_can_be_drawn_that_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "capsbench.report.speed")
    monkeypatch.setattr("capsbench.bench.run.bench", pytest.fail)
    said = CliRunner().invoke(app, ["bench", "--device", "cpu", "--figures", str(tmp_path)])
    assert isinstance(said.exception, CapsbenchError)
    assert str(said.exception) == (
        "--figures needs matplotlib, which is not installed here; leave it out, and draw where it is, from what --json "
        "writes: `capsbench bench --from FILE --figures FOLDER`."
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
        *_, keep = given
        print("growing")
        with says_what_to_lower("bench --grow at batch 64", "choose a --grow under 64"):
            keep(sofar)
            raise torch.OutOfMemoryError("CUDA out of memory.")

    def routing_alone(*given: Any) -> None:
        *_, keep = given
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
    table, _, after = after.partition("\nwritten: ")  # the sizes there are, and no others
    assert "batch: 2,048" in table
    assert "seeds at once" not in table
    assert [line.split(":")[0] for line in after.splitlines()[1:] if line] == ["drawn", "drawn"]
    written = json.loads(file.read_text())
    assert (written["growth"], written["routing"], written["rows"]) == (sofar, routing, stored["rows"])
    assert {path.name for path in figures.glob("*.png")} == {"roofline.png", "growth.png"}
