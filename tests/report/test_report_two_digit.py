"""The figures of two digits: of which weights a number is, and whose claim a mark shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy
from judging import claim, judged, measure, results_of
from matplotlib.figure import Figure

from capsbench.plan import House, config_folder, load_variants
from capsbench.plan.claims import load_claims
from capsbench.report.collect import collect
from capsbench.report.figures import Drawing, NotDrawnError, figures
from capsbench.report.figures.claimed_marks import PAPER, Mark, handles_of
from capsbench.report.figures.style import MUTED, groups, house_style
from capsbench.report.protocol import protocol_rows
from capsbench.report.results import Results, Run
from capsbench.report.tables import SPECS, last_epochs, spec_for
from capsbench.report.verdicts.words import is_ours
from capsbench.report.wide import wide_table

CELLS = {"two_digit": ["two-digit-average-mlp", "two-digit-kmeans"]}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    folder = results_of(tmp_path / "pairs", CELLS, seeds=3)
    for path in folder.glob("runs/two_digit/*/*/manifest.json"):
        toy.change_json(path, config={"task": {"last_epochs": 5}})
    metrics = {metric.name: 50.0 for metric in SPECS["two_digit"].main}
    for variant in CELLS["two_digit"]:
        for seed in range(3):
            for condition in ("56x28", "28x56"):
                measure(folder, "two_digit", variant, seed, condition, **metrics)
    return folder


def draw(name: str, results: Results) -> Drawing:
    with house_style():
        return figures()[name](results)


def test_every_heading_says_of_which_weights_it_is(pairs: Path) -> None:
    """A share of these two alone can be above that of both only because the weights are others."""
    results = collect(pairs)
    headings = [column.label for column in wide_table(results, "two_digit").columns if column.kind == "value"]
    assert headings == [
        "top-2, last 5 epochs, %",
        "top-2, final weights, %",
        "both > 0.5, last 5 epochs, %",
        "these two alone > 0.5, final weights, %",
    ]
    panels = [axes.get_xlabel().replace("\n", " ") for axes in draw("two_digit_accuracy", results).figure.axes]
    assert panels == headings
    assert "one digit above the other; 28x56: side by side" in " ".join(wide_table(results, "two_digit").caption)


def test_the_epochs_of_a_mean_are_those_of_the_manifests(pairs: Path) -> None:
    manifests = sorted(pairs.glob("runs/two_digit/*/*/manifest.json"))
    assert last_epochs(collect(pairs), "two_digit") == "last 5 epochs"
    for path in manifests[:3]:  # of one variant
        toy.change_json(path, config={"task": {"last_epochs": 5}, "training": {"epochs": 2}})
    assert last_epochs(collect(pairs), "two_digit") == "last 2 to 5 epochs"
    for path in manifests:
        toy.change_json(path, config={"task": {"last_epochs": 1}})
    assert spec_for("two_digit", collect(pairs)).main[0].heading == "top-2, last epoch, %"
    (figure,) = (row for row in protocol_rows(collect(pairs), "two_digit") if row.what == "the figure")
    assert figure.here.startswith("the mean over the ends of the last epoch; ")
    assert not figure.differs
    for path in manifests:
        toy.change_json(path, config={})
    assert last_epochs(collect(pairs), "two_digit") == "last epochs"


def over(number: float, source: str, **more: object) -> dict[str, object]:
    said = {"baseline": None, "expected": number, "direction": "greater", "test": "student", "source": source}
    where = {"cell": "two_digit/two-digit-kmeans", "condition": "56x28", "metric": "top2_accuracy"}
    return claim("direction", **said | where | more)


@pytest.mark.parametrize("figure", ["two_digit_top2", "two_digit_accuracy"])
def test_this_suite_s_own_threshold_does_not_read_as_what_others_claim(pairs: Path, figure: str) -> None:
    for seed, value in enumerate((96.0, 97.0, 98.0)):
        measure(pairs, "two_digit", "two-digit-kmeans", seed, "56x28", top2_accuracy=value)

    def legend(*said: dict[str, object]) -> tuple[set[str], str]:
        found, results = judged(pairs, *said)
        results.judged = found
        drawing = draw(figure, results)
        words = {text.get_text() for text in drawing.figure.legends[0].get_texts()}
        return {word for word in words if "more than" in word}, drawing.caption

    theirs, own = over(90, "Su, January 2018"), over(80, "Positive control of the protocol", id="own")
    assert legend(theirs)[0] == {"claimed: more than"}
    assert legend(own)[0] == {"threshold: more than (ours)"}
    words, caption = legend(theirs, own)
    assert words == {"claimed: more than", "threshold: more than (ours)"}
    assert "grey ones are this suite's own" in caption


def test_of_the_claims_on_two_digits_the_control_s_threshold_is_ours() -> None:
    single = {c.id: c for c in load_claims().claims if c.family.startswith("two-digit") and c.expected is not None}
    assert [name for name, found in single.items() if is_ours(found)] == ["two-digit-control-works"]


def test_the_large_figure_has_a_line_a_row_with_its_numbers(pairs: Path) -> None:
    for seed, value in enumerate((96.0, 97.0, 98.0)):
        measure(pairs, "two_digit", "two-digit-kmeans", seed, "56x28", top2_accuracy=value)
    (axes,) = draw("two_digit_top2", collect(pairs)).figure.axes
    assert len(axes.get_yticklabels()) == 2
    assert "97.0 (94.5 to 99.5)" in [text.get_text() for text in axes.texts]
    assert len(axes.texts) == 4  # two rows under two conditions
    for path in pairs.glob("runs/two_digit/*/*/manifest.json"):
        path.unlink()
    with pytest.raises(NotDrawnError):
        draw("two_digit_top2", collect(pairs))


def test_the_large_figure_names_fewer_seeds_where_a_condition_has_fewer(pairs: Path) -> None:
    """The row's n is that of the condition with the most."""
    for seed, value in enumerate((96.0, 98.0, 97.0)):
        measure(pairs, "two_digit", "two-digit-kmeans", seed, "28x56", top2_accuracy=value)
    path = toy.run_folder(pairs, "two_digit", "two-digit-kmeans", 2) / "28x56" / "metrics.json"
    toy.change_json(path, metrics={"top2_accuracy": {"value": None, "unit": "%"}})
    (axes,) = draw("two_digit_top2", collect(pairs)).figure.axes
    assert "97.0 (84.3 to 100.0), n=2" in [text.get_text() for text in axes.texts]
    assert sum("n=" in text.get_text() for text in axes.texts) == 1
    assert "1 undefined" in draw("two_digit_accuracy", collect(pairs)).caption


def test_an_empty_column_of_a_curve_leaves_its_panel_empty(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "curves", CELLS, seeds=2)
    for path in folder.glob("runs/two_digit/*/*/curve.csv"):
        frame = pd.read_csv(path)
        frame["56x28.both_above_half_accuracy"] = None
        frame.to_csv(path, index=False)
    panels = draw("two_digit_curves", collect(folder)).figure.axes
    assert [axes.get_ylabel() for axes in panels] == ["top-2, %", "both > 0.5, %"]
    drawn = [any(np.isfinite(line.get_ydata()).any() for line in axes.lines) for axes in panels]
    assert drawn == [True, False]


@pytest.mark.parametrize("plan", ["paper", "ablation", "ladder"])
def test_the_name_of_every_row_of_capsules_has_its_squash(plan: str) -> None:
    """Rows can be compared by name only where all of them say it, k-means too, which brings its own."""
    cells = [cell for cell in House.load(config_folder() / f"{plan}.yaml").cells if cell.task == "two_digit"]
    capsules = {cell.spec.title: cell.spec for cell in cells if getattr(cell.spec, "head", None) == "capsules"}
    assert capsules
    words = {"hinton": "squash 1", "half": "squash 0.5"}
    assert [
        title for title, spec in capsules.items() if words[str(vars(spec)["squash"])] not in title.split(", ")
    ] == []


# ---- curves ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Five CNNs and four capsules: more rows than there are colours."""
    rows = [f"cnn-{k}" for k in range(5)] + [f"two-digit-kmeans-{k}" for k in range(4)]
    folder = results_of(tmp_path / "many", {"two_digit": rows}, seeds=2, titles={})
    for path in folder.glob("runs/two_digit/two-digit-kmeans-*/*/manifest.json"):
        toy.change_json(path, config={"variant": {"model": "two-digit", "head": "capsules"}})
    for path in folder.glob("runs/two_digit/cnn-*/*/manifest.json"):
        toy.change_json(path, config={"variant": {"model": "two-digit", "head": "pool"}})
    return folder


@pytest.mark.parametrize(("figure", "columns"), [("two_digit_curves", 2), ("training_curves", 1)])
def test_no_colour_stands_twice_in_a_panel_of_curves(many: Path, figure: str, columns: int) -> None:
    panels = draw(figure, collect(many)).figure.axes
    assert [len({line.get_color() for line in axes.lines}) for axes in panels] == [5] * columns + [4] * columns
    legends = [legend for axes in panels if (legend := axes.get_legend()) is not None]
    assert [len(legend.get_texts()) for legend in legends] == [5, 4]
    titles = [axes.get_title(loc="left").removeprefix("Trained on single digits, tested on two: ") for axes in panels]
    assert titles == ["CNNs"] * columns + ["capsules"] * columns


def test_rows_are_split_no_further_than_colours_need(many: Path) -> None:
    results = collect(many)
    rows = results.plan.tasks["two_digit"]
    assert groups(results, "two_digit", rows[:7]) == {"": rows[:7]}
    found = groups(results, "two_digit", rows * 2)  # ten CNNs
    assert {name: len(variants) for name, variants in found.items()} == {
        "CNNs, 1 of 2": 5,
        "CNNs, 2 of 2": 5,
        "capsules, 1 of 2": 4,
        "capsules, 2 of 2": 4,
    }


def test_rows_of_squeezed_pairs_have_a_panel_of_their_own(many: Path) -> None:
    results = collect(many)
    rows = results.plan.tasks["two_digit"]
    for run in results.done("two_digit", rows[-1]):
        run.manifest.config["task"] = {"squeezed": True}
    found = groups(results, "two_digit", rows)
    assert found["squeezed pairs"] == [rows[-1]]
    assert [rows[-1] in names for names in found.values()].count(True) == 1


def test_epochs_before_the_last_are_counted_down_to_0(many: Path) -> None:
    figure = draw("two_digit_curves", collect(many)).figure
    with house_style():
        figure.draw_without_rendering()
    right = figure.axes[-1].get_xlim()[1]
    shown = [text.get_text() for text in figure.axes[-1].get_xticklabels() if text.get_position()[0] <= right]
    assert shown[-1] == "0"
    assert shown == sorted(shown, reverse=True)


def test_training_curves_have_the_task_s_words_for_a_title(healthy: Path) -> None:
    titles = [axes.get_title(loc="left") for axes in draw("training_curves", collect(healthy)).figure.axes]
    assert titles == [
        "One digit",
        "One digit, to be tested under affine transforms",
        "Two overlapping digits",
        "Trained on single digits, tested on two",
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"variant": {"model": "capsnet"}, "task": {"last_epochs": 5}},
        {"variant": {"model": "two-digit", "head": "capsules"}, "task": {"last_epochs": 5, "squeezed": True}},
    ],
)
def test_a_row_whose_pairs_were_squeezed_says_so_in_the_figures(pairs: Path, config: dict[str, Any]) -> None:
    for path in pairs.glob("runs/two_digit/two-digit-kmeans/*/manifest.json"):
        toy.change_json(path, config=config)
    for name in ("two_digit_top2", "two_digit_accuracy"):
        axes = draw(name, collect(pairs)).figure.axes[0]
        names = [" ".join(tick.get_text().split()) for tick in axes.get_yticklabels()]
        assert [" (squeezed pairs), n=" in said for said in names] == [False, True]


def test_a_manifest_tells_the_models_of_one_size_as_their_specs_do() -> None:
    for spec in load_variants().values():
        manifest: Any = SimpleNamespace(config={"variant": spec.model_dump()})
        key: Any = None
        assert Run(key, Path(), manifest).sees_squeezed_pairs == (not spec.takes_any_size())


# ---- what stands where -----------------------------------------------------------------------------------------------


def test_a_mark_points_where_its_claim_says_and_is_grey_where_the_claim_is_ours() -> None:
    marks = [Mark("a", "56x28", "m", 50.0, *of) for of in (("greater", True), ("less", False), ("value", False))]
    panel = Figure().subplots()
    for mark in marks:
        mark.plot(panel, 0.0, 4)
    assert [(line.get_marker(), line.get_color()) for line in panel.lines] == [(">", MUTED), ("<", PAPER), ("D", PAPER)]
    assert [(handle.get_label(), handle.get_marker(), handle.get_color()) for handle in handles_of(marks)] == [
        ("claimed", "D", PAPER),
        ("claimed: less than", "<", PAPER),
        ("threshold: more than (ours)", ">", MUTED),
    ]


@pytest.fixture
def apart(pairs: Path) -> Path:
    """Above each other the CNN has 20 % and the capsules 80 %, side by side 10 % less, and seeds lie 1 % apart."""
    metrics = [metric.name for metric in SPECS["two_digit"].main]
    for variant, percent in zip(CELLS["two_digit"], (20.0, 80.0), strict=True):
        for seed in range(3):
            for condition, less in (("56x28", 0), ("28x56", 10)):
                values = dict.fromkeys(metrics, percent - less + seed - 1)
                measure(pairs, "two_digit", variant, seed, condition, **values)
    return pairs


def test_bars_and_strokes_are_those_of_the_condition_that_the_legend_names(apart: Path) -> None:
    figure = draw("two_digit_accuracy", collect(apart)).figure
    bars: Any = figure.axes[0].patches
    legend: Any = figure.legends[0]
    colours = {text.get_text(): patch.get_facecolor() for text, patch in zip(*_parts(legend), strict=True)}
    shown = {round(bar.get_width()): bar.get_facecolor() for bar in bars}
    above, beside = colours["one digit above the other (56x28)"], colours["side by side (28x56)"]
    assert shown == {20: above, 10: beside, 80: above, 70: beside}
    middles = {round(bar.get_y() + bar.get_height() / 2, 6): round(bar.get_width()) for bar in bars}
    strokes = [line for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert len(strokes) == 4
    for line in strokes:
        mean = middles[round(float(line.get_ydata()[0]), 6)]
        assert list(line.get_xdata()) == pytest.approx([mean - 1, mean, mean + 1])


def _parts(legend: Any) -> tuple[Any, Any]:
    return legend.get_texts(), legend.legend_handles


def test_the_large_figure_s_dots_are_those_of_the_condition_that_the_legend_names(apart: Path) -> None:
    figure = draw("two_digit_top2", collect(apart)).figure
    colours = {text.get_text(): handle.get_color() for text, handle in zip(*_parts(figure.legends[0]), strict=True)}
    dots = {round(line.get_xdata()[0]): line.get_color() for line in figure.axes[0].lines if line.get_marker() in "os"}
    above, beside = colours["one digit above the other (56x28)"], colours["side by side (28x56)"]
    assert dots == {20: above, 10: beside, 80: above, 70: beside}


def test_a_row_without_a_number_says_what_became_of_its_runs(apart: Path) -> None:
    for seed in range(3):
        toy.fail(apart, "two_digit", "two-digit-kmeans", seed)
    texts = [text.get_text() for text in draw("two_digit_accuracy", collect(apart)).figure.axes[0].texts]
    assert texts == ["no run: 3 failed"] * 2


def test_an_epoch_that_was_measured_twice_has_its_last_value_in_per_cent(tmp_path: Path) -> None:
    """A training that was resumed measures an epoch again."""
    folder = results_of(tmp_path / "curves", {"two_digit": ["two-digit-kmeans"]}, seeds=1)
    path = toy.run_folder(folder, "two_digit", "two-digit-kmeans", 0) / "curve.csv"
    frame = pd.read_csv(path)
    metric = "56x28.top2_accuracy"
    frame[metric] = [0.5, 0.6, 0.7, 0.8, 0.9]
    again = frame[frame["epoch"] == 3].assign(**{metric: 0.3})
    pd.concat([frame, again]).to_csv(path, index=False)
    line = draw("two_digit_curves", collect(folder)).figure.axes[0].lines[-1]
    shown = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert shown == pytest.approx({-4: 50, -3: 60, -2: 30, -1: 80, 0: 90})


@pytest.mark.parametrize(("capsules", "cnn", "differs"), [(10, 20, False), (20, 20, True), (10, 10, True)])
def test_the_source_trains_capsules_for_ten_epochs_and_its_cnn_for_twenty(
    pairs: Path, capsules: int, cnn: int, differs: bool
) -> None:
    for variant, head, epochs in zip(CELLS["two_digit"], ("pool", "capsules"), (cnn, capsules), strict=True):
        for path in pairs.glob(f"runs/two_digit/{variant}/*/manifest.json"):
            toy.change_json(
                path, config={"variant": {"model": "two-digit", "head": head}, "training": {"epochs": epochs}}
            )
    training = {row.what: row for row in protocol_rows(collect(pairs), "two_digit")}["training"]
    assert training.differs == differs
