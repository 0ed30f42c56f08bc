"""The table and the figure `routing`: diagnostics beside the task's table, never in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import toy

from capsbench.report import build_report, format_tables_for_terminal
from capsbench.report.collect import collect
from capsbench.report.extras import extra_tables
from capsbench.report.figures import figures
from capsbench.report.figures.style import house_style


@pytest.fixture
def folder(mnist_alone: Path, tmp_path: Path) -> Path:
    """A copy of results of MNIST to spoil."""
    return Path(shutil.copytree(mnist_alone, tmp_path / "toy"))


def routing_folder(folder: Path, variant: str, seed: int) -> Path:
    return toy.run_folder(folder, "mnist", variant, seed) / "routing"


def test_the_table_shows_the_means_of_what_evaluation_stored(folder: Path) -> None:
    made = build_report(folder)
    table = pd.read_csv(folder / "tables" / "routing.csv")
    assert list(dict.fromkeys(table["variant"])) == toy.TASKS["mnist"][1:]  # a CNN routes nothing
    row = table[(table["variant"] == "capsnet-r3") & (table["metric"] == "mutual_information")].iloc[0]
    stored = [json.loads((routing_folder(folder, "capsnet-r3", s) / "metrics.json").read_text()) for s in (0, 1, 2)]
    values = [metrics["metrics"]["mutual_information"]["value"] for metrics in stored]
    assert row["mean"] == pytest.approx(sum(values) / 3)
    assert (row["n"], row["unit"], row["condition"]) == (3, "bits", "routing")
    for ending in ("csv", "md", "tex"):
        assert folder / "tables" / f"routing.{ending}" in made.tables
    page = (folder / "report.html").read_text()
    assert "Routing under the microscope" in page
    assert 'href="tables/routing.csv"' in page
    assert "Routing under the microscope" in format_tables_for_terminal(folder)[0]


@pytest.mark.slow
def test_the_task_s_table_has_no_row_of_it_even_where_it_is_missing(folder: Path) -> None:
    shutil.rmtree(routing_folder(folder, "capsnet-r3", 1))
    toy.truncate(routing_folder(folder, "capsnet-r1", 1) / "metrics.json")
    build_report(folder)
    table = pd.read_csv(folder / "tables" / "mnist.csv")
    assert set(table["condition"]) == {"test"}
    assert "routing" not in (folder / "figures" / "mnist_error.txt").read_text()
    diagnostics = pd.read_csv(folder / "tables" / "routing.csv").set_index("variant")
    assert set(diagnostics.loc["capsnet-r3", "n"]) == set(diagnostics.loc["capsnet-r1", "n"]) == {2}
    kinds = {(p.kind, p.variant, p.condition) for p in collect(folder).problems}
    assert kinds == {("missing", "capsnet-r3", "routing"), ("unreadable", "capsnet-r1", "routing")}


def test_what_a_variant_has_not_is_an_empty_place_and_named(folder: Path) -> None:
    for seed in (0, 1, 2):
        place = routing_folder(folder, "capsnet-r1", seed)
        (place / "logits.csv").unlink()
        place = routing_folder(folder, "capsnet-r3", seed) / "metrics.json"
        metrics = json.loads(place.read_text())["metrics"]
        toy.change_json(place, metrics={key: metrics[key] for key in metrics if not key.startswith(("flips", "dead"))})
    (table,) = (extra.table for extra in extra_tables(collect(folder)) if extra.name == "routing")
    caption = " ".join(table.caption)
    assert "Without logits from pass to pass: capsnet-r1." in caption
    assert "Without a number of passes to change: capsnet-r3." in caption
    assert "the first 2,000 test images" in caption
    (row,) = (row for row in table.rows if row.variant == "capsnet-r3")
    shown = dict(zip([column.label for column in table.columns], [entry.text for entry in row.entries], strict=True))
    assert shown["flips r=100, %"] == shown["dead, %"] == "–"
    assert shown["class, bits"] != "–"


@pytest.mark.slow
def test_a_table_that_has_nothing_to_show_any_more_is_removed(folder: Path) -> None:
    build_report(folder)
    for path in (folder / "runs").rglob("routing"):
        shutil.rmtree(path)
    made = build_report(folder)
    assert not list((folder / "tables").glob("routing.*"))
    assert "routing" not in {figure.name for figure in made.figures}
    assert not list((folder / "figures").glob("routing.*"))


def test_the_figure_has_a_line_a_variant_in_every_panel(healthy: Path) -> None:
    with house_style():
        drawing = figures()["routing"](collect(healthy))
    passes = drawing.figure.axes[0]
    thick = [line for line in passes.lines if line.get_linewidth() > 1.5 and line.get_marker() not in ("o", "None")]
    assert len({line.get_color() for line in passes.lines}) == len(toy.TASKS["mnist"][1:])
    assert thick
    assert all(list(line.get_xdata()) == [1, 2, 3, 5, 10, 30, 100] for line in thick)
    assert drawing.figure.axes[4].get_yscale() == "log"


def test_a_row_counts_the_runs_behind_it_and_those_that_failed(folder: Path) -> None:
    toy.fail(folder, "mnist", "capsnet-r3", 1)
    path = routing_folder(folder, "capsnet-r1", 0) / "metrics.json"
    metrics = json.loads(path.read_text())["metrics"]
    toy.change_json(path, metrics={key: metrics[key] for key in metrics if key != "coupling_entropy"})
    (table,) = (extra.table for extra in extra_tables(collect(folder)) if extra.name == "routing")
    assert [column.label for column in table.columns[-2:]] == ["n", "failed"]
    counts = {row.variant: [entry.text for entry in row.entries[-2:]] for row in table.rows}
    assert counts["capsnet-r3"] == ["2", "1"]
    assert counts["capsnet-r1"] == ["3", "0"]  # all but one metric are of three


def test_rings_are_at_the_trained_passes_and_the_energy_begins_at_one(healthy: Path) -> None:
    with house_style():
        panels = figures()["routing"](collect(healthy)).figure.axes
    for panel in panels[:4]:
        rings = [line for line in panel.lines if line.get_markersize() == 9]
        assert [list(line.get_xdata()) for line in rings] == [[1], [1], [3], [3]]  # of r1, r1-recon, r3 and r3-recon
    means = [line for line in panels[3].lines if line.get_linewidth() > 1.5]
    assert [line.get_ydata()[0] for line in means] == pytest.approx([1] * 4)
    uniform, hard = panels[5].get_xlim()
    assert uniform > hard
    assert "from uniform to hard" in panels[5].get_xlabel()


def test_a_spread_is_called_by_what_it_is_over(folder: Path) -> None:
    for seed in (0, 1, 2):
        path = routing_folder(folder, "capsnet-r3", seed) / "metrics.json"
        spreads = {
            "coupling_spread": {"value": 0.125, "unit": ""},
            "coupling_spread_within": {"value": 0.25, "unit": ""},
        }
        toy.change_json(path, metrics=json.loads(path.read_text())["metrics"] | spreads)
    (table,) = (extra.table for extra in extra_tables(collect(folder)) if extra.name == "routing")
    (row,) = (row for row in table.rows if row.variant == "capsnet-r3")
    shown = dict(zip([column.label for column in table.columns], [entry.text for entry in row.entries], strict=True))
    assert shown["spread over images"].startswith("0.1250")
    assert shown["spread in an image"].startswith("0.2500")
