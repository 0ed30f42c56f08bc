"""The table and the figure `cost`: read from cost.json, shown only where it is of the plan's own models."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import toy
from published import PUBLISHED

from capsbench.plan import House
from capsbench.plan.done import cost_digest
from capsbench.report import build_report
from capsbench.report.collect import collect
from capsbench.report.extras import extra_tables
from capsbench.report.figures import NotDrawnError, figures
from capsbench.report.figures.style import MARKERS, house_style

RESULTS = Path(__file__).resolve().parents[2] / "results"
CONFIG = RESULTS.parent / "config"


@pytest.mark.slow
def test_the_table_has_a_row_for_every_variant_of_every_task(folder: Path) -> None:
    build_report(folder)
    table = pd.read_csv(folder / "tables" / "cost.csv")
    assert list(zip(table["task"], table["variant"], strict=True)) == [(t, v) for t in toy.TASKS for v in toy.TASKS[t]]
    stored = json.loads((folder / "cost.json").read_text())["rows"]
    assert table["parameters"].tolist() == [row["parameters"] for row in stored]
    assert table["images_per_second_backward"].tolist() == [40.25] * len(stored)
    (extra,) = (extra for extra in extra_tables(collect(folder)) if extra.name == "cost")
    texts = [entry.text for entry in extra.table.rows[0].entries]
    assert texts[1] == "mnist (28x28)"
    assert texts[3:6] == ["400.0", "400.0", "800.0"]
    assert texts[-2:] == ["40.2", "512.5"]
    caption = " ".join(extra.table.caption)
    for words in (
        "AMD EPYC, 2 threads, torch 2.11.0",
        "batch 128; medians of 10 rounds",
        "Reduced models: width 1/8.",
        "on a single image",
    ):
        assert words in caption
    assert "other processes" not in caption
    assert "What each variant costs" in (folder / "report.html").read_text()


def test_a_cost_measured_beside_others_says_so(folder: Path) -> None:
    """Without the figure, as files had it until now, nothing is said."""
    toy.change_json(folder / "cost.json", others=7.5, machine={"processor": "AMD EPYC", "gpu": None, "cores": 8})
    (extra,) = (extra for extra in extra_tables(collect(folder)) if extra.name == "cost")
    assert "other processes kept 7.5 of the 8 cores busy, of which this was to have 2" in " ".join(extra.table.caption)


def test_rows_that_share_a_measurement_say_so(folder: Path) -> None:
    """A row in bf16 has float32's figures, which says nothing of bf16."""

    def caption() -> str:
        (extra,) = (extra for extra in extra_tables(collect(folder)) if extra.name == "cost")
        return " ".join(extra.table.caption)

    assert "share one measurement" not in caption()
    stored = json.loads((folder / "cost.json").read_text())["rows"]
    first, second = (row for row in stored if row["task"] == "mnist" and row["variant"].startswith("capsnet-r1"))
    second["images_per_second"] = first["images_per_second"]
    toy.change_json(folder / "cost.json", rows=stored)
    titles = collect(folder).plan.title
    assert caption().endswith(
        f"precision included, share one measurement: {titles(first['variant'])} and {titles(second['variant'])}."
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_report_asks_for_the_costs_that_today_s_source_measures(name: str) -> None:
    """Drawn again it would differ from what is committed otherwise: `capsbench report` of these plans mends it."""
    stored = json.loads((RESULTS / name / "plan.json").read_text())
    house = House.load(CONFIG / f"{name}.yaml")
    assert stored["cost"] == (cost_digest(house) if house.plan.cost is not None else None)


def without_a_phase(folder: Path) -> None:
    rows = json.loads((folder / "cost.json").read_text())["rows"]
    del rows[0]["flops"]["forward"]
    toy.change_json(folder / "cost.json", rows=rows)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: toy.change_json(folder / "cost.json", digest="0" * 64), "for other models, options or source"),
        (lambda folder: toy.truncate(folder / "cost.json"), "truncated or is not JSON"),
        (without_a_phase, "`forward` is missing"),
        (lambda folder: (folder / "cost.json").unlink(), "is not there"),
        (lambda folder: toy.change_json(folder / "plan.json", cost=None), "the plan does not ask for costs"),
    ],
)
def test_costs_that_are_not_the_plan_s_are_not_shown(folder: Path, spoil, reason: str) -> None:
    spoil(folder)
    results = collect(folder)
    assert "cost" not in [extra.name for extra in extra_tables(results)]
    with pytest.raises(NotDrawnError, match=reason):
        figures()["cost"](results)


def test_the_figure_stands_on_logarithmic_axes_with_a_mark_a_variant(healthy: Path) -> None:
    with house_style():
        drawing = figures()["cost"](collect(healthy))
    panels = drawing.figure.axes
    assert len(panels) == 2 * len(toy.TASKS)
    assert {axes.get_xscale() for axes in panels} == {"log"}
    shown = [axes.get_ylabel().split("\n")[0] for axes in panels[::2]]
    assert shown == ["mnist (test)", "affnist (converged)", "multimnist (test)", "two_digit (56x28)"]
    marks = [line for line in panels[0].lines if line.get_marker() in list(MARKERS)]
    stored = json.loads((healthy / "cost.json").read_text())["rows"]
    assert [line.get_xdata()[0] for line in marks] == [row["parameters"] for row in stored if row["task"] == "mnist"]
    times = [line for line in panels[1].lines if line.get_marker() in list(MARKERS)]
    expected = [1000 / row["images_per_second"]["inference"] for row in stored if row["task"] == "mnist"]
    assert [line.get_xdata()[0] for line in times] == pytest.approx(expected)


@pytest.mark.parametrize(("device", "where"), [("cpu", "AMD EPYC"), ("cuda", "NVIDIA H200 (driver 570)")])
def test_costs_name_what_they_were_measured_on_and_nothing_beside_it(folder: Path, device: str, where: str) -> None:
    machine = {"processor": "AMD EPYC", "gpu": "NVIDIA H200", "driver": "570"}
    toy.change_json(folder / "cost.json", device=device, machine=machine)
    (extra,) = (extra for extra in extra_tables(collect(folder)) if extra.name == "cost")
    assert f"Measured in one process on {where}, 2 threads" in " ".join(extra.table.caption)


def test_an_image_s_height_comes_before_its_width(folder: Path) -> None:
    stored = json.loads((folder / "cost.json").read_text())["rows"]
    toy.change_json(folder / "cost.json", rows=[row | {"image": [56, 28]} for row in stored])
    (extra,) = (extra for extra in extra_tables(collect(folder)) if extra.name == "cost")
    assert extra.table.rows[0].entries[1].text == "mnist (56x28)"
    assert (set(extra.frame["height"]), set(extra.frame["width"])) == ({56}, {28})
