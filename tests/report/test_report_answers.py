"""Single images: confusion matrices count every wrong answer, the hardest images are those that all get wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import toy

from capsbench.report.answers import read_answers
from capsbench.report.collect import collect
from capsbench.report.figures import Drawing, figures
from capsbench.report.figures.mosaic import GAP
from capsbench.report.figures.style import house_style


def draw(name: str, folder: Path) -> Drawing:
    with house_style():
        return figures()[name](collect(folder))


def predictions(folder: Path, variant: str, seed: int) -> Path:
    return toy.run_folder(folder, "mnist", variant, seed) / "test" / "predictions.npz"


def test_answers_are_read_with_their_margins(healthy: Path) -> None:
    results = collect(healthy)
    found = read_answers(results, results.done("mnist", "cnn")[0], "test")
    assert found is not None
    wrong = np.flatnonzero(found.predicted != found.labels)
    assert [(int(i), int(found.predicted[i])) for i in wrong] == toy.WRONG
    assert (found.margin[wrong] < 0).all()
    assert (np.delete(found.margin, wrong) == 1).all()


NONE = np.zeros(4, np.uint8)


@pytest.mark.parametrize(
    "arrays",
    [
        {"labels": np.full(4, 10, np.uint8), "predicted": NONE, "margin": np.zeros(4)},
        {"labels": NONE, "predicted": np.array([-1, 0, 0, 0]), "margin": np.zeros(4)},
        {"labels": NONE, "predicted": NONE, "margin": np.full(4, np.nan, np.float16)},
        {"labels": NONE, "predicted": NONE, "margin": np.zeros(3)},
        {"labels": NONE, "predicted": NONE},
    ],
)
def test_predictions_that_are_none_are_named(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(predictions(folder, "cnn", 0), **arrays)  # type: ignore[arg-type]
    results = collect(folder)
    assert read_answers(results, results.done("mnist", "cnn")[0], "test") is None
    assert [problem.kind for problem in results.problems] == ["not drawn"]


def test_a_confusion_matrix_shows_the_mean_over_seeds(folder: Path) -> None:
    stored = {"labels": np.zeros(40, np.uint8), "predicted": np.full(40, 7, np.uint8), "margin": np.full(40, -1.0)}
    np.savez(predictions(folder, "cnn", 0), **stored)  # 40 zeros taken for 7; the other two seeds: none of them
    with house_style():
        panel = figures()["mnist_confusion"](collect(folder)).figure.axes[0]
    assert panel.get_title(loc="left") == "CNN (Table 1)"
    words = [text.get_text() for text in panel.texts]  # of 100 fields less the diagonal, row by row
    assert words[6] == "13"  # 40 / 3 in row 0, column 7
    assert sorted(word for word in words if word) == ["0.7", "0.7", "0.7", "13"]  # toy.WRONG in two of three seeds


def test_reconstructions_are_headed_by_what_they_show(healthy: Path) -> None:
    """Not by the words above the last of their panels, which are of wrong answers alone."""
    drawn = {name: draw(name, healthy) for name in ("reconstructions", "affnist_reconstructions")}
    assert drawn["reconstructions"].title == "Reconstructions of right and wrong digits"
    assert drawn["affnist_reconstructions"].title == "Reconstructions of transformed digits"


def test_the_hardest_images_are_wrong_everywhere_and_come_first(healthy: Path) -> None:
    drawing = draw("hardest", healthy)
    (panel,) = drawing.figure.axes
    words = [label.get_text() for label in panel.get_xticklabels()]
    assert sorted(words[:2]) == ["4→9\n15/15", "7→1\n15/15"]
    assert words[2:] == ["3→8\n3/15"]
    assert "2 test images are wrong in all 15 runs" in drawing.caption


def test_a_hard_image_that_nobody_stored_is_said_to_be_missing(folder: Path) -> None:
    for path in folder.glob("runs/mnist/*/*/test/hardest.npz"):
        np.savez(path, indices=np.array([33], np.uint16), images=np.zeros((1, 28, 28), np.uint8))
    drawing = draw("hardest", folder)
    assert "Not among the pictures that evaluation stored: 2 harder images." in drawing.caption


def test_right_digits_are_on_the_left_and_wrong_ones_on_the_right_each_above_its_decode(healthy: Path) -> None:
    right, wrong, *_ = draw("reconstructions", healthy).figure.axes
    stored = np.load(toy.run_folder(healthy, "mnist", "capsnet-r1-recon", 0) / "test" / "reconstructions.npz")
    assert right.get_title(loc="left") == "CapsNet r=1, reconstruction, seed 0: right"
    assert wrong.get_title(loc="left") == "wrong: label→answer"
    assert [tick.get_text() for tick in right.get_xticklabels()] == list("012345678")
    assert [tick.get_text() for tick in wrong.get_xticklabels()] == ["4→9", "7→1", "3→5", "9→4", "5→6"]
    for panel, first in ((right, 0), (wrong, 10)):
        picture = np.asarray(panel.images[0].get_array())
        assert (picture[:28, :28] == stored["images"][first]).all()
        assert (picture[28 + GAP :, :28] == stored["reconstructions"][first]).all()
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["input", "decoded"]


@pytest.mark.parametrize(("image", "words"), [(14, "4→9\n15/15"), (27, "7→1\n15/15")])
def test_of_images_that_are_wrong_alike_the_one_furthest_behind_is_first(folder: Path, image: int, words: str) -> None:
    for path in folder.glob("runs/mnist/*/*/test/predictions.npz"):
        stored = dict(np.load(path))
        stored["margin"][image] = -9
        np.savez(path, **stored)
    assert above_the_hardest(folder)[0] == words


def test_above_a_hard_image_stands_the_most_frequent_wrong_answer(folder: Path) -> None:
    stored = dict(np.load(predictions(folder, "cnn", 0)))
    stored["predicted"][14] = 1  # where all others say 9
    np.savez(predictions(folder, "cnn", 0), **stored)
    assert "4→9\n15/15" in above_the_hardest(folder)


def above_the_hardest(folder: Path) -> list[str]:
    (panel,) = draw("hardest", folder).figure.axes
    return [label.get_text() for label in panel.get_xticklabels()]


def test_every_harder_image_than_the_last_one_shown_is_missing_if_nobody_stored_it(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "two", seeds=(0, 1), tasks={"mnist": ["cnn"]})
    wrong = np.arange(60) < 50  # in both runs; image 0 is furthest behind
    stored = np.array([image for image in range(50) if image not in (35, 36, 37)], np.uint16)
    for seed in (0, 1):
        place = toy.run_folder(folder, "mnist", "cnn", seed) / "test"
        answers = {"labels": np.zeros(60, np.uint8), "predicted": wrong.astype(np.uint8)}
        np.savez(place / "predictions.npz", **answers, margin=np.arange(60.0) - 50)
        np.savez(place / "hardest.npz", indices=stored, images=np.zeros((len(stored), 28, 28), np.uint8))
    assert "evaluation stored: 3 harder images." in draw("hardest", folder).caption  # of the 36 the last is image 38


def test_a_row_none_of_whose_digits_is_right_keeps_its_name(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["capsnet-r3-recon"]})
    path = toy.run_folder(folder, "mnist", "capsnet-r3-recon", 0) / "test" / "reconstructions.npz"
    stored = dict(np.load(path))
    name = f"{collect(folder).plan.title('capsnet-r3-recon')}, seed 0:"
    for predicted, titles in (
        ((stored["labels"] + 1) % 10, [f"{name} none right among those stored", "wrong: label→answer"]),
        (stored["labels"], [f"{name} right", "none wrong among those stored"]),
    ):
        np.savez(path, **{**stored, "predicted": predicted})
        assert [axes.get_title(loc="left") for axes in draw("reconstructions", folder).figure.axes] == titles
