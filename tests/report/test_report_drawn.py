"""What figures draw stands where their axes, titles and legends say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from capsbench.report.collect import collect
from capsbench.report.figures import Drawing, figures
from capsbench.report.figures.mosaic import GAP
from capsbench.report.figures.style import house_style, looks, looks_of, seeds_and_mean
from capsbench.report.figures.training_curves import POINTS
from capsbench.report.readers import OVERLAP


def draw(name: str, folder: Path) -> Drawing:
    with house_style():
        return figures()[name](collect(folder))


def thick(axes: Any) -> list[Any]:
    """The lines of means."""
    return [line for line in axes.lines if line.get_linewidth() == 1.7]


# ---- means and their intervals ---------------------------------------------------------------------------------------


def test_the_strokes_of_a_panel_are_the_seeds_of_its_condition(healthy: Path) -> None:
    results = collect(healthy)
    for axes, condition in zip(draw("affnist_accuracy", healthy).figure.axes, ("matched", "converged"), strict=True):
        assert axes.get_title(loc="left") == condition
        strokes = [sorted(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"]
        expected = [sorted(results.values("affnist", condition, "accuracy", v)) for v in toy.TASKS["affnist"]]
        assert strokes == [pytest.approx(of) for of in expected]


def test_the_paper_s_diamond_has_its_deviation_where_the_paper_gives_one(mnist_alone: Path) -> None:
    (axes,) = draw("mnist_error", mnist_alone).figure.axes
    ends = [line.get_segments()[0][:, 0] for line in axes.collections if line.get_segments()]  # type: ignore[attr-defined]
    assert [high - low for low, high in ends] == pytest.approx([2 * sd for sd in (0.032, 0.011, 0.036, 0.005)])


@pytest.mark.parametrize(("budget", "said"), [("reduced", True), ("short", False)])
def test_the_paper_s_value_is_for_orientation_where_the_protocol_is_reduced(
    tmp_path: Path, budget: str, said: bool
) -> None:
    folder = toy.write_toy(tmp_path / budget, tasks={"mnist": ["cnn"]}, budget=budget, reductions={})
    caption = draw("mnist_error", folder).caption
    assert "Diamond: the paper's value" in caption
    assert ("for orientation, not for comparison" in caption) == said


def test_the_thick_line_is_the_mean_of_the_seeds_and_not_their_median() -> None:
    frame = pd.DataFrame({"seed": [0, 1, 2] * 2, "x": [1] * 3 + [2] * 3, "y": [0.0, 1.0, 8.0, 2.0, np.nan, 4.0]})
    axes = Figure().subplots()
    seeds_and_mean(axes, looks_of(["a"])["a"], frame, "x", "y")
    (mean,) = thick(axes)
    assert (list(mean.get_xdata()), list(mean.get_ydata())) == ([1, 2], [3, 3])


@pytest.mark.parametrize("name", ["affnist_factors", "training_curves"])
def test_a_name_in_a_legend_has_the_colour_of_its_line(healthy: Path, name: str) -> None:
    figure = draw(name, healthy).figure
    legend: Any = figure.legends[0] if figure.legends else figure.axes[1].get_legend()
    results = collect(healthy)
    own = looks(results) if figure.legends else looks_of(toy.TASKS["affnist"])
    said = {
        text.get_text().replace("\n", " "): to_hex(line.get_color())
        for text, line in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    expected = {results.plan.title(variant): own[variant].colour.lower() for variant in toy.TASKS["affnist"]}
    assert said == expected


# ---- affNIST ---------------------------------------------------------------------------------------------------------


def test_a_factor_s_panel_has_its_unit_and_the_mean_accuracy_in_per_cent(healthy: Path) -> None:
    panels = {axes.get_xlabel(): axes for axes in draw("affnist_factors", healthy).figure.axes}
    assert list(panels) == ["rotation, degrees", "shear, factor", "scale, factor", "translation, pixels"]
    paths = sorted(healthy.glob("runs/affnist/cnn-valid/*/converged/factors.csv"))
    frames = pd.concat(pd.read_csv(path) for path in paths)
    expected = 100 * frames[frames["factor"] == "rotation"].groupby("value")["accuracy"].mean()
    line = thick(panels["rotation, degrees"])[0]
    assert list(line.get_xdata()) == pytest.approx(list(expected.index))
    assert list(line.get_ydata()) == pytest.approx(list(expected))


def test_a_curve_goes_from_held_out_to_transformed_digits_and_its_large_marker_is_its_end(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"affnist": ["cnn-pool"]})
    path = toy.run_folder(folder, "affnist", "cnn-pool", 0)
    columns = {"step": [96, 48, 144], "held_out_accuracy": [0.96, 0.95, 0.97], "affnist_accuracy": [0.7, 0.6, 0.8]}
    pd.DataFrame(columns).to_csv(path / "curve.csv", index=False)
    (axes,) = draw("affnist_curves", folder).figure.axes
    line, end, level = axes.lines
    assert np.array(line.get_xydata()).ravel().tolist() == pytest.approx([95, 60, 96, 70, 97, 80])
    assert np.array(end.get_xydata()).ravel().tolist() == pytest.approx([97, 80])
    assert "held-out" in axes.get_xlabel()
    assert "transformed" in axes.get_ylabel()
    assert set(level.get_xdata()) == {95}  # that of condition matched; converged is at 97.5
    assert "matched at 95 %" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("name", "task", "variant"),
    [
        ("affnist_curves", "affnist", "capsnet-r3-recon"),
        ("affnist_factors", "affnist", "capsnet-r3-recon"),
        ("multimnist_overlap", "multimnist", "capsnet-r3-recon"),
    ],
)
def test_a_legend_of_many_rows_takes_no_room_from_the_panels(
    tmp_path: Path, name: str, task: str, variant: str
) -> None:
    """As the ablation's 21 rows of affNIST, under whose legend the panel was a third as high and its label cut off."""
    heights = []
    for count in (2, 21):
        rows = [variant, *(f"{variant}+r{k}" for k in range(2, count + 1))]
        titles = {row: f"A title that leaves room for two, {k}" for k, row in enumerate(rows)}
        folder = toy.write_toy(tmp_path / str(count), seeds=(0,), tasks={task: rows}, titles=titles)
        figure = draw(name, folder).figure
        figure.draw_without_rendering()
        heights.append(min(axes.get_position().height for axes in figure.axes) * figure.get_figheight())
    assert heights[1] == pytest.approx(heights[0], rel=0.15)


# ---- two digits in one picture ---------------------------------------------------------------------------------------


def test_an_overlap_is_drawn_in_the_middle_of_its_bin_beside_that_of_the_copied_input(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", tasks={"multimnist": ["capsnet-r3-recon"]})
    for path in folder.glob("runs/multimnist/*/*/test/overlap.csv"):
        copied = [(0.2 * k, 0.2 * k + 0.2, 60, "baseline_ssim", 0.5 - 0.1 * k) for k in range(5)]
        frame = pd.concat([pd.read_csv(path), pd.DataFrame(copied, columns=list(OVERLAP))])
        frame.to_csv(path, index=False)
    panels = {axes.get_ylabel(): axes for axes in draw("multimnist_overlap", folder).figure.axes}
    for axes in (panels["error, %"], panels["SSIM"]):
        assert list(thick(axes)[0].get_xdata()) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert [text.get_text() for text in panels["SSIM"].texts] == ["copied input"]
    assert list(panels["SSIM"].lines[-1].get_ydata()) == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1])
    assert not panels["error, %"].texts


def test_pairs_that_were_recognised_are_on_the_left_each_above_its_digits_and_their_decodes(healthy: Path) -> None:
    panels = draw("multimnist_pictures", healthy).figure.axes
    (right, wrong, absent), others = panels[:3], panels[3:]
    titles = ["CapsNet r=3, reconstruction, seed 0\nright", "wrong: label, then answer"]
    assert [axes.get_title(loc="left") for axes in (right, wrong)] == titles
    assert [axes.get_title(loc="left") for axes in others[::3]] == ["CapsNet r=1, reconstruction, seed 0\nright"]
    stored = np.load(toy.run_folder(healthy, "multimnist", "capsnet-r3-recon", 0) / "test" / "segmentation.npz")
    pair = {key: ["+".join(map(str, of)) for of in stored[key]] for key in ("labels", "predicted")}
    assert [tick.get_text().strip() for tick in right.get_xticklabels()] == pair["labels"][:5]  # the others are wrong
    both = [f"{label}\n{answer}" for label, answer in zip(pair["labels"], pair["predicted"], strict=True)]
    assert [tick.get_text() for tick in wrong.get_xticklabels()] == both[5:]
    asked = [f"{label}\n{digit}?" for label, digit in zip(pair["labels"], stored["absent_class"], strict=True)]
    assert [tick.get_text() for tick in absent.get_xticklabels()] == asked[:5]
    rows = [tick.get_text() for tick in right.get_yticklabels()]
    assert rows == ["input", "digit 1", "digit 2", "decoded 1", "decoded 2"]
    for axes, first in ((right, 0), (wrong, 5)):
        column = np.asarray(axes.images[0].get_array())[:, :36]
        drawn = [column[k * (36 + GAP) : k * (36 + GAP) + 36] for k in range(5)]
        parts = [stored["merged"][first], *stored["digits"][first], *stored["reconstructions"][first]]
        assert all((picture == part).all() for picture, part in zip(drawn, parts, strict=True))


def test_three_variants_take_pairs_apart_the_paper_s_first_and_a_fourth_is_named(tmp_path: Path) -> None:
    variants = ["capsnet-r1-recon", "capsnet-share-type", "multimnist-cnn", "capsnet-r3-recon", "capsnet-r5-recon"]
    drawing = draw("multimnist_pictures", toy.write_toy(tmp_path / "one", tasks={"multimnist": variants}))
    whose = [axes.get_title(loc="left").partition(", seed 0\n")[0] for axes in drawing.figure.axes[::3]]
    assert whose == ["CapsNet r=3, reconstruction", "CapsNet r=1, reconstruction", "capsnet-share-type"]
    assert "Not shown, for lack of space: capsnet-r5-recon. " in drawing.caption


# ---- one digit -------------------------------------------------------------------------------------------------------


def test_digits_whose_dimensions_are_drawn_are_called_by_their_own_names(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["capsnet-r3-recon"]})
    path = toy.run_folder(folder, "mnist", "capsnet-r3-recon", 0) / "test" / "perturbations.npz"
    stored = dict(np.load(path))
    labels = np.arange(7, dtype=np.uint8)
    pictures = np.zeros((7, *stored["grid"].shape[1:]), np.uint8) + 10 * labels[:, None, None, None, None]
    np.savez(path, grid=pictures, labels=labels, offsets=stored["offsets"])
    panels = draw("perturbations", folder).figure.axes
    shown = {axes.get_title(loc="left"): float(np.nanmax(axes.images[0].get_array())) for axes in panels}
    assert len(shown) == 3
    assert all(title == f"a {grey / 10:.0f}" for title, grey in shown.items())
    assert [tick.get_text() for tick in panels[0].get_yticklabels()] == [str(d) for d in range(1, 17)]


# ---- training --------------------------------------------------------------------------------------------------------


def history(folder: Path, steps: list[int], losses: list[float]) -> None:
    path = toy.run_folder(folder, "mnist", "cnn", 0) / "history.csv"
    pd.DataFrame({"step": steps, "loss": losses}).to_csv(path, index=False)


def test_a_step_that_was_trained_twice_has_its_last_loss_and_a_thinned_line_ends_at_the_last_step(
    tmp_path: Path,
) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["cnn"]})
    history(folder, [20, 40, 40, 60], [0.5, 0.4, 0.3, 0.2])  # resumed after step 20
    (line,) = draw("training_curves", folder).figure.axes[0].lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([20, 40, 60], [0.5, 0.3, 0.2])
    many = list(range(1, 2 * POINTS + 1))
    history(folder, many, [1 / step for step in many])
    (line,) = draw("training_curves", folder).figure.axes[0].lines
    assert list(line.get_xdata()) == many[1::2]
    assert line.get_ydata()[-1] == pytest.approx((1 / many[-2] + 1 / many[-1]) / 2)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"train_on": "pairs"}, "Some rows are trained on pairs: compare the shapes, not the heights"),
        (
            {"reconstruction": "paper"},
            "Not all rows add the same reconstruction term to their loss: compare the shapes",
        ),
        ({"loss": "cross-entropy"}, "The losses are different measures (cross-entropy and margin): compare the shapes"),
    ],
)
def test_what_keeps_losses_from_being_compared_is_said(tmp_path: Path, changed: dict[str, str], words: str) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0,), tasks={"mnist": ["cnn", "capsnet-r1"]})
    for variant in ("cnn", "capsnet-r1"):
        path = toy.run_folder(folder, "mnist", variant, 0) / "manifest.json"
        config = json.loads(path.read_text())["config"]
        spec = {"model": "cnn", "loss": "margin", "train_on": "task"} | (changed if variant == "cnn" else {})
        toy.change_json(path, config=config | {"variant": spec})
    assert words in draw("training_curves", folder).caption
