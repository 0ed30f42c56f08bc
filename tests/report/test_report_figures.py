"""Figures: drawn from what is there, the same bytes each time, never an empty picture."""

from __future__ import annotations

import shutil
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import toy

from capsbench.report import Report
from capsbench.report.captions import budget_words
from capsbench.report.collect import collect
from capsbench.report.figures import Drawing, NotDrawnError, draw_figure, draw_figures, figures
from capsbench.report.figures.mosaic import GAP, grid, headline_run, tile
from capsbench.report.figures.style import canvas, footnote, house_style, looks, looks_of
from capsbench.report.readers import read_arrays, read_series
from capsbench.report.results import Results


def draw(name: str, results: Results) -> Drawing:
    with house_style():
        return figures()[name](results)


def test_every_figure_is_drawn_in_both_formats_with_its_caption(spoiled: tuple[Path, Report]) -> None:
    folder, report = spoiled
    # they are reduced, and judge no claim
    assert [figure.name for figure in report.figures] == [name for name in figures() if name != "claims"]
    for figure in report.figures:
        assert figure.png.read_bytes().startswith(b"\x89PNG")
        assert figure.pdf.read_bytes().startswith(b"%PDF")
        assert figure.caption in (folder / "figures" / f"{figure.name}.txt").read_text()


def test_captions_name_the_data(spoiled: tuple[Path, Report]) -> None:
    for figure in spoiled[1].figures:
        assert ("affnist-synth" if figure.name.startswith("affnist") else "Data: MNIST") in figure.caption


def test_figures_of_one_run_say_no_more_than_one_run_tells(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": toy.TASKS["mnist"]})
    for path in (folder / "runs" / "mnist").iterdir():
        if path.name != "capsnet-r3-recon":
            shutil.rmtree(path)
    results = collect(folder)
    error = draw("mnist_error", results)
    assert [text.get_text() for text in error.figure.legends[0].get_texts()] == ["mean", "a seed", "the paper's value"]
    assert [tick.get_text() for tick in error.figure.axes[0].get_yticklabels()] == ["CapsNet r=3, reconstruction"]
    assert error.caption.startswith(
        "Dot: the mean over seeds; strokes: single seeds. One seed, or several that agree, have no interval."
    )
    assert f"{len(toy.TASKS['mnist']) - 1} rows without a run yet." in error.caption
    hardest = draw("hardest", results)
    assert "that the only run, of CapsNet r=3, reconstruction, gets wrong" in hardest.caption
    written = [text.get_text() for text in hardest.figure.findobj(mpl.text.Text) if "→" in text.get_text()]
    assert written
    assert not any("/" in words for words in written)
    assert "All rows have the same loss." in draw("training_curves", results).caption


def test_losses_that_are_weighed_differently_are_not_said_to_be_the_same(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0,), tasks={"two_digit": toy.TASKS["two_digit"]})
    for k, path in enumerate(sorted((folder / "runs" / "two_digit").glob("*/seed-0/manifest.json"))):
        variant = {"model": "two-digit", "loss": "margin", "down_weight": (0.25, 0.5)[k % 2], "train_on": "task"}
        toy.change_json(path, config={"variant": variant, "training": {}, "task": {}, "dataset": "mnist"})
    caption = draw("training_curves", collect(folder)).caption
    assert "The margin loss weighs absent classes differently (lambda 0.25 and 0.5): compare the shapes" in caption
    assert "All rows have the same loss." not in caption


def test_a_budget_s_length_is_not_said_of_a_plan_that_trains_mnist_otherwise(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "short", tasks={"mnist": ["cnn"]})
    toy.change_json(folder / "plan.json", budget="short", reductions={}, reduced={})
    assert budget_words(collect(folder), "mnist") == "short (100 epochs, the decay scaled to the length)"
    reduced = {"mnist/cnn": [{"kind": "training", "words": "2 epochs"}]}
    toy.change_json(folder / "plan.json", reduced=reduced, reductions={"mnist": ["2 epochs"]})
    assert budget_words(collect(folder), "mnist") == "short"


def test_what_a_plan_notes_of_the_two_digits_stands_under_its_figures(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "small", seeds=(0,), tasks={"two_digit": toy.TASKS["two_digit"]})
    toy.change_json(folder / "plan.json", notes={"two_digit": ["Pairs are resized for one row."]})
    for name in ("two_digit_top2", "two_digit_accuracy", "two_digit_curves"):
        assert draw(name, collect(folder)).caption.endswith(" Pairs are resized for one row.")
    toy.fail(folder, "two_digit", toy.TASKS["two_digit"][0], 0)  # its row is gone from the pictures
    for name in ("two_digit_top2", "two_digit_curves"):
        assert "Left out of the means, listed on the report page: 1 failed." in draw(name, collect(folder)).caption


def test_captions_say_how_much_was_measured(spoiled: tuple[Path, Report]) -> None:
    captions = {figure.name: figure.caption for figure in spoiled[1].figures}
    for name in ("multimnist_pictures", "affnist_confusion", "affnist_reconstructions", "mnist_confusion", "hardest"):
        what = "test pairs" if name == "multimnist_pictures" else "test images"
        for words in (what, "Budget: reduced", "Reductions: width 1/8; 3 of 5 seeds", "Training steps: 960"):
            assert words in captions[name], name
    for task in toy.TASKS:
        assert f"Task {task}: Budget: reduced. Reductions: width 1/8; 3 of 5 seeds." in captions["training_curves"]
    assert "on 300 pairs" in captions["multimnist_overlap"]  # of the 2,000 that are classified
    assert "Each point: 500 test digits." in captions["affnist_factors"]
    assert "on 300 pairs" in (spoiled[0] / "tables" / "multimnist.md").read_text()
    assert "on 300 pairs" not in (spoiled[0] / "tables" / "mnist.md").read_text()


def trade_data(folder: Path, name: str, badge: str) -> None:
    """The results as they would be on other digits than MNIST; affNIST's are made of those."""
    dataset = {"name": name, "badge": badge, "digest": toy.DATA_DIGEST}
    toy.change_json(folder / "plan.json", dataset=dataset)
    for path in folder.glob("runs/**/manifest.json"):
        toy.change_json(path, dataset=dataset)
    for path in folder.glob("runs/**/metrics.json"):
        of = {"name": "affnist-synth", "badge": f"affnist-synth of {badge}"} if "affnist" in path.parts else dataset
        toy.change_json(path, dataset=of)


@pytest.mark.parametrize(
    ("figure", "on_mnist", "on_other_digits"),
    [
        ("mnist_error", [], ["data: UCI digits, not MNIST"]),
        ("multimnist_pictures", [], ["data: UCI digits, not MNIST"]),
        ("training_curves", [], ["data: UCI digits, not MNIST"]),
        ("affnist_accuracy", ["data: affnist-synth"], ["data: affnist-synth of UCI digits, not MNIST"]),
        ("affnist_curves", ["data: affnist-synth"], ["data: affnist-synth of UCI digits, not MNIST"]),
        ("affnist_confusion", ["data: affnist-synth"], ["data: affnist-synth of UCI digits, not MNIST"]),
        (
            "cost",
            ["data: affnist-synth"],
            ["data: UCI digits, not MNIST; affnist-synth of UCI digits, not MNIST"],
        ),
    ],
)
def test_a_picture_names_data_that_are_not_the_paper_s(
    folder: Path, figure: str, on_mnist: list[str], on_other_digits: list[str]
) -> None:
    def said() -> list[str]:
        with house_style():
            drawing = draw_figure(figure, collect(folder))
        assert "affNIST" not in drawing.title
        return [text.get_text() for text in drawing.figure.texts if text.get_text().startswith("data:")]

    assert said() == on_mnist
    trade_data(folder, "digits", "UCI digits, not MNIST")
    assert said() == on_other_digits
    if figure.startswith("affnist"):
        for path in folder.glob("runs/affnist/**/metrics.json"):
            toy.change_json(path, dataset={"name": "affnist", "badge": "affNIST"})
        assert said() == []


def test_the_large_marker_is_where_training_ended_or_is_not_drawn(folder: Path) -> None:
    path = folder / "runs" / "affnist" / "cnn-pool" / "seed-1" / "curve.csv"
    curve = pd.read_csv(path)
    curve.loc[curve.index[-1], "held_out_accuracy"] = 0.5  # it fell at the end, out of what is shown
    curve.to_csv(path, index=False)
    with house_style():
        drawing = draw_figure("affnist_curves", collect(folder))
    (axes,) = drawing.figure.axes
    seeds = len(list(folder.glob("runs/affnist/*/seed-*/curve.csv")))
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_markersize() == 8) == seeds - 1
    assert "are not shown, including 1 end of training" in drawing.caption


def test_a_footnote_covers_nothing() -> None:
    with house_style():
        figure = canvas(6.0, 3.0)
        axes = figure.subplots()
        axes.set_xlabel("a label at the foot")
        footnote(figure, "data: others")
        figure.draw_without_rendering()
        (words,) = figure.texts
        assert words.get_window_extent().y0 >= 0
        assert words.get_window_extent().y1 <= axes.get_tightbbox().y0  # type: ignore[union-attr]


def test_no_metadata_tells_when_or_with_what(spoiled: tuple[Path, Report]) -> None:
    for figure in spoiled[1].figures:
        assert b"Software" not in figure.png.read_bytes()
        assert b"CreationDate" not in figure.pdf.read_bytes()


def test_what_has_no_data_is_not_drawn_and_says_why(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "small", seeds=(0,), tasks={"mnist": ["cnn"]})
    (folder / "figures").mkdir()
    (folder / "figures" / "reconstructions.png").write_bytes(b"of an earlier report")
    drawn, not_drawn = draw_figures(collect(folder), folder / "figures")
    names = {
        "mnist_error",
        "mnist_confusion",
        "mnist_calibration",
        "mnist_attacks",
        "hardest",
        "training_curves",
        "cost",
    }
    assert {figure.name for figure in drawn} == names
    assert set(not_drawn) == set(figures()) - names
    assert "decoder" in not_drawn["reconstructions"]
    assert "of task mnist" in not_drawn["reconstructions"]
    assert "of task affnist" in not_drawn["affnist_reconstructions"]
    assert "affnist" in not_drawn["affnist_curves"]
    assert not (folder / "figures" / "reconstructions.png").exists()


@pytest.mark.parametrize(
    ("figure", "file"),
    [
        ("reconstructions", "mnist/capsnet-r3-recon/seed-0/test/reconstructions.npz"),
        ("mnist_confusion", "mnist/cnn/seed-0/test/predictions.npz"),
        ("affnist_confusion", "affnist/cnn-pool/seed-0/converged/predictions.npz"),
        ("mnist_calibration", "mnist/cnn/seed-0/test/reliability.csv"),
        ("mnist_attacks", "mnist/cnn/seed-0/attacked/attacks.csv"),
        ("hardest", "mnist/cnn/seed-0/test/hardest.npz"),
        ("perturbations", "mnist/capsnet-r3-recon/seed-0/test/perturbations.npz"),
        ("multimnist_pictures", "multimnist/capsnet-r3-recon/seed-0/test/segmentation.npz"),
        ("multimnist_overlap", "multimnist/capsnet-r3-recon/seed-0/test/overlap.csv"),
        ("affnist_curves", "affnist/cnn-pool/seed-1/curve.csv"),
        ("affnist_factors", "affnist/cnn-pool/seed-1/converged/factors.csv"),
        ("two_digit_curves", "two_digit/two-digit-kmeans/seed-1/curve.csv"),
        ("training_curves", "mnist/cnn/seed-1/history.csv"),
    ],
)
def test_a_broken_file_is_named_and_the_next_one_drawn(folder: Path, figure: str, file: str) -> None:
    path = folder / "runs" / file
    if path.suffix == ".npz":
        toy.truncate(path)
    else:
        path.write_text("step,los\n1,x\n")
    results = collect(folder)
    assert draw(figure, results).caption
    (problem,) = results.problems
    assert problem.kind == "not drawn"
    assert problem.file == f"runs/{file}"
    assert len(results.frame) == len(collect(folder).frame)  # the means are whole


def test_arrays_of_other_shapes_and_pickles_are_refused(folder: Path) -> None:
    shapes = {"images": "n h w", "labels": "n", "pairs": "n 2"}
    good: dict[str, np.ndarray] = {"images": np.zeros((3, 4, 5)), "labels": np.zeros(3), "pairs": np.zeros((3, 2))}
    spoilt: list[dict[str, np.ndarray]] = [
        {"labels": np.zeros(2)},
        {"images": np.zeros((3, 4))},
        {"pairs": np.zeros((3, 3))},
        {"labels": np.array(["a", "b", "c"])},
        {"labels": np.array([1, None, 2], dtype=object)},
    ]
    results = collect(folder)
    run = results.done("mnist")[0]
    np.savez(run.folder / "a.npz", **good)  # type: ignore[arg-type]
    assert read_arrays(results, run, "a.npz", shapes) is not None
    assert read_arrays(results, run, "none.npz", shapes) is None
    assert results.problems == []
    for change in spoilt:
        results.problems.clear()
        np.savez(run.folder / "a.npz", **(good | change))  # type: ignore[arg-type]
        assert read_arrays(results, run, "a.npz", shapes) is None
        assert [problem.kind for problem in results.problems] == ["not drawn"]


def test_series_are_numbers(folder: Path) -> None:
    results = collect(folder)
    run = results.done("mnist")[0]
    (run.folder / "history.csv").write_text("step,loss,more\n1,0.5,x\n2,,y\n")
    frame = read_series(results, run, "history.csv", {"step": float, "loss": float})
    assert frame is not None
    assert list(frame["step"]) == [1, 2]
    assert np.isnan(frame["loss"].iloc[1])
    (run.folder / "test" / "many.csv").write_text("iteration,change\n1,0.5\n2,inf\n")  # an evaluation's may be
    many = read_series(results, run, "test/many.csv", {"iteration": float, "change": float})
    assert many is not None
    assert np.isnan(many["change"].iloc[1])
    for text in ("step,loss\n1,x\n", "step,loss\n1,inf\n", "step\n1\n", "", "\x00"):
        (run.folder / "history.csv").write_text(text)
        assert read_series(results, run, "history.csv", {"step": float, "loss": float}) is None
    assert {(problem.kind, problem.file.rpartition("/")[2]) for problem in results.problems} == {
        ("not drawn", "history.csv")
    }


def test_looks_are_apart_without_colour(healthy: Path) -> None:
    found = looks(collect(healthy))
    assert len({(look.line, look.marker) for look in found.values()}) == len(found)
    of_mnist = [found[variant] for variant in toy.TASKS["mnist"]]
    assert len({look.marker for look in of_mnist}) == len({look.colour for look in of_mnist}) == 5


@pytest.mark.parametrize(("epochs", "averaged"), [(20, 5), (5, 5), (2.5, 3), (0.1, 1), (None, 5), ("many", 5)])
def test_no_mean_is_of_more_epochs_than_were_trained(healthy: Path, epochs: object, averaged: int) -> None:
    run = next(iter(collect(healthy).runs.values()))
    run.manifest.config.update({"task": {"last_epochs": 5}, "training": {"epochs": epochs}})
    assert run.averaged_epochs == averaged


def test_so_many_rows_as_a_plan_may_have_are_drawn_apart() -> None:
    found = list(looks_of(map(str, range(280))).values())
    assert len(set(found)) == 280
    assert len({(look.line, look.marker) for look in found[:40]}) == 40


def test_formulas_and_underscores_in_names_are_words(tmp_path: Path) -> None:
    names = ["_hidden", "$alpha_b^ % #$"]
    folder = toy.write_toy(tmp_path / "names", seeds=(0, 1), tasks={"mnist": names})
    results = collect(folder)
    with house_style():
        drawing = figures()["training_curves"](results)
        drawing.figure.draw_without_rendering()
        words = [text.get_text().strip() for text in drawing.figure.axes[0].get_legend().get_texts()]
    assert words == names


def test_styles_do_not_leak() -> None:
    def settings() -> dict[str, object]:
        return {key: value for key, value in mpl.rcParams.items() if "backend" not in key}  # which resolves itself

    before = settings()
    with house_style():
        assert mpl.rcParams["text.parse_math"] is False
    assert settings() == before


def test_mosaics_place_pictures_where_they_belong() -> None:
    pictures = grid(2, 3, {(0, 0): np.full((3, 4, 5), 9), (1, 1): np.full((1, 4, 5), 7)})
    image = tile(pictures)
    assert image.shape == (2 * (4 + GAP) - GAP, 3 * (5 + GAP) - GAP)
    assert image[0, 0] == 9
    assert image[4 + GAP, 5 + GAP] == 7
    assert np.isnan(image[4, 0])  # a gap
    assert np.isnan(image[4 + GAP, 0])  # a free place


def test_the_papers_model_stands_for_all(healthy: Path) -> None:
    runs = collect(healthy).done("mnist")
    assert headline_run(runs).key == ("mnist", "capsnet-r3-recon", 0)
    assert headline_run([run for run in runs if run.key.variant != "capsnet-r3-recon"]).key.variant == "capsnet-r3"


def test_failed_runs_are_not_drawn(folder: Path) -> None:
    for seed in (0, 1, 2):
        toy.fail(folder, "two_digit", "two-digit-kmeans", seed)
    figure = draw("two_digit_curves", collect(folder)).figure
    words = [text.get_text().replace("\n", " ") for text in figure.axes[-1].get_legend().get_texts()]
    assert words == ["CNN, average pooling, MLP, n=3", "Capsules, uniform couplings, n=3"]
    shutil.rmtree(folder / "runs" / "two_digit")
    with pytest.raises(NotDrawnError):
        draw("two_digit_curves", collect(folder))
