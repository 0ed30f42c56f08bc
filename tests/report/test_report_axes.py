"""Figure `axes`: the answers along digits a class and passes of routing, and the claims that name its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWN, CARETUP

from capsbench.plan.claims import Claim
from capsbench.report.collect import collect
from capsbench.report.figures import NotDrawnError
from capsbench.report.figures.axes import draw
from capsbench.report.figures.style import bar, house_style
from capsbench.report.verdicts.judged import Judgement
from capsbench.report.verdicts.sides import Side

ARROWS = (CARETDOWN, CARETUP)
DIGITS = [
    {"axis": "per_class", "variant": "capsnet-r1", "base": "capsnet-r1-recon", "value": 10},
    {"axis": "per_class", "variant": "capsnet-r1-recon", "base": "capsnet-r1-recon", "value": 6000},
]
PAIRS = [
    {"axis": "iterations", "variant": "two-digit-uniform", "base": "two-digit-kmeans", "value": 1},
    {"axis": "iterations", "variant": "two-digit-kmeans", "base": "two-digit-kmeans", "value": 3},
]
CLAIM = Claim(
    id="of-an-axis", sentence="One pass does.", source="toy", kind="value", family="toy", cell="mnist/capsnet-r1",
    condition="test", metric="error", data="mnist", expected=0.3, delta=0.05, test="student",
)  # fmt: skip


def error(folder: Path, variant: str, seed: int) -> float:
    metrics = json.loads((toy.run_folder(folder, "mnist", variant, seed) / "test" / "metrics.json").read_text())
    return float(metrics["metrics"]["error"]["value"])


def test_a_panel_for_each_axis_condition_and_the_gap(folder: Path) -> None:
    axes = json.loads((folder / "plan.json").read_text())["axes"]
    toy.change_json(folder / "plan.json", axes={"mnist": axes["mnist"] + DIGITS, "two_digit": PAIRS})
    path = toy.run_folder(folder, "mnist", "capsnet-r1", 0) / "test" / "metrics.json"
    gap = {"train_test_gap": {"value": 0.25, "unit": "%"}}
    toy.change_json(path, metrics=json.loads(path.read_text())["metrics"] | gap)
    with house_style():
        drawing = draw(collect(folder))
    panels = [
        (panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel())
        for panel in drawing.figure.axes
        if panel.get_visible()
    ]
    assert panels == [
        ("mnist", "passes of routing in training", "error, %"),
        ("mnist", "passes of routing in training", "train-test gap, %"),
        ("mnist", "training digits a class", "error, %"),
        ("mnist", "training digits a class", "train-test gap, %"),
        ("two_digit, 56x28", "passes of routing in training", "top-2, last epochs, %"),
        ("two_digit, 28x56", "passes of routing in training", "top-2, last epochs, %"),
    ]
    digits = drawing.figure.axes[2]
    assert [label.get_text() for label in digits.get_xticklabels()] == ["10", "6,000"]
    line = digits.lines[0]
    means = [sum(error(folder, v, s) for s in (0, 1, 2)) / 3 for v in ("capsnet-r1", "capsnet-r1-recon")]
    assert list(line.get_xdata()) == [10, 6000]
    assert list(line.get_ydata()) == pytest.approx(means)


def test_what_is_not_finished_is_not_drawn(folder: Path) -> None:
    for seed in (0, 1, 2):
        (toy.run_folder(folder, "mnist", "capsnet-r1", seed) / "manifest.json").unlink()
    with pytest.raises(NotDrawnError, match="no row of an axis is finished"):
        draw(collect(folder))
    toy.change_json(folder / "plan.json", axes={})
    with pytest.raises(NotDrawnError, match="the plan has no axes"):
        draw(collect(folder))


@pytest.mark.parametrize(("variant", "named"), [("capsnet-r1", True), ("capsnet-r3", False)])
def test_a_claim_about_a_row_of_an_axis_names_the_figure(folder: Path, variant: str, named: bool) -> None:
    results = collect(folder)
    side = Side("claimed", "mnist", variant, "test", "error", [], [1.0], "%", "mnist", "MNIST", 0, 1)
    said = Judgement(CLAIM, [side], "undecided").as_json(results, ["mnist_error", "axes"])
    assert ("axes" in said["figures"]) is named
    assert "mnist_error" in said["figures"]


def test_an_interval_that_leaves_its_panel_ends_in_an_arrow_at_the_edge(folder: Path) -> None:
    # The interval of these begins below the panel; that of the other row of the toy ends above it.
    for seed, value in enumerate((0.2, 0.3, 0.7)):
        path = toy.run_folder(folder, "mnist", "capsnet-r1", seed) / "test" / "metrics.json"
        stored = json.loads(path.read_text())["metrics"]
        toy.change_json(path, metrics=stored | {"error": {"value": value, "unit": "%"}})
    with house_style():
        panel = draw(collect(folder)).figure.axes[0]
    low, high = panel.get_ylim()
    heads = {line.get_marker(): line.get_ydata()[0] for line in panel.lines if line.get_marker() in ARROWS}
    assert heads == dict(zip(ARROWS, (low, high), strict=True))
    bars = [line.get_ydata() for line in panel.lines if line.get_marker() == "None" and len(line.get_ydata()) == 2]
    ends = [end for bar in bars for end in bar]
    assert (min(ends), max(ends)) == (low, high)


def test_an_interval_inside_of_its_panel_has_no_arrow() -> None:
    panel = Figure().subplots()
    bar(panel, 3.0, (0.25, 0.75), (0.0, 1.0), "#000000", 1.0, upright=True)
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in panel.lines] == [([3.0, 3.0], [0.25, 0.75])]
