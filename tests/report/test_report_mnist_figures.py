"""The figures of calibration and attacks: which images a point stands for."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import toy

from capsbench.evaluation.attacks import STEPS
from capsbench.evaluation.calibration import BINS
from capsbench.report.attack_table import WORDS
from capsbench.report.collect import collect
from capsbench.report.extras import extra_tables
from capsbench.report.figures import Drawing, draw_figure
from capsbench.report.figures.mnist_attacks import PANELS
from capsbench.report.figures.style import house_style
from capsbench.report.results import Results
from capsbench.report.tables import long_table


def draw(name: str, results: Results) -> Drawing:
    with house_style():
        return draw_figure(name, results)


def test_calibration_takes_seeds_together_and_leaves_out_what_few_images_tell(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0, 1), tasks={"mnist": ["cnn"]})
    other = folder / "runs" / "mnist" / "cnn" / "seed-1" / "test" / "reliability.csv"
    frame = pd.read_csv(other)
    frame.loc[1, ["images", "confidence", "accuracy"]] = [200, 0.65, 0.9]
    frame.to_csv(other, index=False)
    results = collect(folder)
    drawing = draw("mnist_calibration", results)
    assert f"one of {BINS} bins" in drawing.caption
    (axes,) = drawing.figure.axes
    diagonal, line = axes.get_lines()
    assert list(zip(*diagonal.get_data(), strict=True)) == [(0, 0), (1, 100)]
    # 600 at 0.63 and 200 at 0.65; ten images between 8/15 and 0.6 are too few
    assert line.get_xdata().tolist() == pytest.approx([0.635, 0.96])
    assert line.get_ydata().tolist() == pytest.approx([60, 99])


def test_attacks_begin_with_the_accuracy_without_any_and_name_their_images(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0,), tasks={"mnist": ["cnn"]})
    drawing = draw("mnist_attacks", collect(folder))
    mean = [axes.get_lines()[-1].get_xydata().tolist() for axes in drawing.figure.axes]
    assert mean == [[[0, 98], [0.1, 70], [0.3, 10]], [[0, 98], [0.1, 40], [0.3, 0]]]
    assert "Data: MNIST, the first 100 test images." in drawing.caption


def test_the_table_of_attacks_has_the_metrics_of_its_condition_and_no_task_s_table_has(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0, 1, 2), tasks={"mnist": ["cnn", "capsnet-r1"]})
    results = collect(folder)
    (made,) = (extra for extra in extra_tables(results) if extra.name == "attacks")
    assert [column.label for column in made.table.columns] == ["variant", "PGD 0.1, %", "n", "failed"]
    assert [row.variant for row in made.table.rows] == ["cnn", "capsnet-r1"]
    assert (
        made.frame[["condition", "metric", "n", "mean"]].to_numpy().tolist()
        == [["attacked", "pgd_error_e10", 3, 60.0]] * 2
    )
    assert "attacked" not in {row.cell.condition for row in long_table(results, "mnist")}


def test_captions_and_evaluation_have_the_same_number_of_steps() -> None:
    assert f"by {STEPS} smaller ones (PGD)" in " ".join(WORDS)
    assert PANELS["pgd"].endswith(f"{STEPS} steps")
