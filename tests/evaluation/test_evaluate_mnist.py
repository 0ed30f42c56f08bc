"""What MNIST's evaluation stores: whose label and whose answer, which capsule is drawn, which dimension is moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from stand_ins import Reader, coded_digits, spec_of, trained
from torch import Tensor, nn

from capsbench.data.digits import Digits
from capsbench.evaluation.mnist import OFFSETS, evaluate, perturbations
from capsbench.evaluation.pictures import reconstructions
from capsbench.models.output import Output

CLASSES, DIM = 10, 4


class Showing(nn.Module):
    """A decoder that draws a capsule as it is: a picture of one row, a pixel a dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        return poses[torch.arange(len(poses)), classes][:, None]


def as_pixels(values: Tensor) -> np.ndarray:
    return (values.clamp(0, 1) * 255).round().to(torch.uint8).numpy()


def test_labels_are_the_digits_and_predicted_the_answers(tmp_path: Path) -> None:
    digits = coded_digits(40)
    with torch.inference_mode():
        test = evaluate(trained("mnist", Reader(off=1), Digits(digits, digits), tmp_path))[0]
    stored = test.arrays["predictions"]
    assert np.array_equal(stored["labels"], np.arange(40) % 10)
    assert np.array_equal(stored["predicted"], (np.arange(40) + 1) % 10)
    assert np.allclose(
        stored["margin"].astype(float), 0.1 - 0.9, atol=1e-3
    )  # the true class's score less the best other
    assert test.metrics["error"] == (100.0, "%")
    assert test.metrics["correct"] == (0.0, "images")


@pytest.mark.parametrize(("right", "ece", "overconfidence"), [(40, 10.0, -10.0), (30, 15.0, 15.0)])
def test_answers_of_a_score_of_nine_tenths_are_held_against_how_many_are_right(
    tmp_path: Path, right: int, ece: float, overconfidence: float
) -> None:
    labels = torch.arange(40) % 10
    labels[right:] = (labels[right:] + 1) % 10
    digits = coded_digits(40, labels)
    with torch.inference_mode():
        test = evaluate(trained("mnist", Reader(), Digits(digits, digits), tmp_path))[0]
    assert test.metrics["ece"] == (pytest.approx(ece, abs=1e-4), "%")
    assert test.metrics["overconfidence"] == (pytest.approx(overconfidence, abs=1e-4), "%")


def test_every_class_s_score_is_stored_as_the_model_gave_it(tmp_path: Path) -> None:
    digits = coded_digits(20)
    with torch.inference_mode():
        test = evaluate(trained("mnist", Reader(off=1), Digits(digits, digits), tmp_path))[0]
    expected = np.full((20, 10), 0.1)
    expected[np.arange(20), (np.arange(20) + 1) % 10] = 0.9
    assert np.allclose(test.arrays["scores"]["scores"].astype(float), expected, atol=1e-3)


def test_logits_are_told_as_probabilities(tmp_path: Path) -> None:
    """Of scores 3.0 for the digit and 0.1 for the nine others."""
    digits, softmax = coded_digits(20), spec_of("cnn", channels=[1], kernels=[1], head="average")
    with torch.inference_mode():
        test = evaluate(trained("mnist", Reader(spec=softmax, high=3.0), Digits(digits, digits), tmp_path))[0]
    p = np.exp(3.0) / (np.exp(3.0) + 9 * np.exp(0.1))
    assert test.metrics["ece"] == (pytest.approx(100 * (1 - p), abs=1e-3), "%")
    assert np.allclose(test.arrays["scores"]["scores"].max(1).astype(float), p, atol=1e-3)
    margin = p - np.exp(0.1) / (np.exp(3.0) + 9 * np.exp(0.1))
    assert np.allclose(test.arrays["predictions"]["margin"].astype(float), margin, atol=1e-3)


def test_images_beyond_the_plan_s_number_are_not_tested(tmp_path: Path) -> None:
    labels = torch.arange(60) % 10
    labels[20:] = (labels[20:] + 1) % 10
    digits = Digits(coded_digits(60), coded_digits(60, labels))
    with torch.inference_mode():
        test = evaluate(trained("mnist", Reader(), digits, tmp_path, test_images=20))[0]
    assert test.images == len(test.arrays["predictions"]["labels"]) == 20
    assert (test.metrics["error"], test.metrics["correct"]) == ((0.0, "%"), (20.0, "images"))


def test_an_image_is_drawn_from_the_capsule_of_the_answer() -> None:
    poses = torch.rand(6, CLASSES, DIM)
    labels, predicted = torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([0, 1, 9, 3, 8, 5])
    found = reconstructions(Showing(), coded_digits(6).images, labels, poses, predicted)
    order = [0, 1, 3, 5, 2, 4]  # right ones first
    assert found["labels"].tolist() == [labels[i] for i in order]
    assert found["predicted"].tolist() == [predicted[i] for i in order]
    assert np.array_equal(found["images"], coded_digits(6).images[order].numpy())
    for place, i in enumerate(order):
        assert np.array_equal(found["reconstructions"][place, 0], as_pixels(poses[i, predicted[i]])), i


def test_figure_4_moves_one_dimension_of_the_winning_capsule_by_each_offset() -> None:
    torch.manual_seed(0)
    poses = 0.3 + 0.4 * torch.rand(5, CLASSES, DIM)  # far enough from 0 and 1 to be moved by a quarter
    labels, predicted = torch.tensor([3, 3, 7, 7, 2]), torch.tensor([5, 3, 7, 7, 1])
    found = perturbations(Showing(), poses, labels, predicted)
    assert found["labels"].tolist() == [3, 7]  # of a class its first right digit; of class 2 there is none
    assert found["grid"].shape == (2, DIM, len(OFFSETS), 1, DIM)
    assert np.allclose(found["offsets"], np.arange(-0.25, 0.26, 0.05))
    for k, (i, digit) in enumerate(((1, 3), (2, 7))):
        for dimension in range(DIM):
            for j, offset in enumerate(OFFSETS):
                moved = poses[i, digit].clone()
                moved[dimension] += offset
                assert np.array_equal(found["grid"][k, dimension, j, 0], as_pixels(moved))


class Drawing(Reader):
    """Has capsules, each of its class's number in tenths, and draws one as it is."""

    def forward(self, images: Tensor) -> Output:
        poses = (torch.arange(10.0) / 10)[None, :, None].expand(len(images), 10, DIM)
        return Output(super().forward(images).scores, poses)

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        return poses[torch.arange(len(poses)), classes][:, None]


def test_what_is_stored_as_drawn_is_of_the_answer_and_the_hardest_image_is_the_one_it_got_wrong(tmp_path: Path) -> None:
    labels = torch.arange(20) % 10
    labels[7] = 3
    digits = coded_digits(20, labels)
    spec = spec_of("capsnet", reconstruction="paper")
    run = trained("mnist", Drawing(spec=spec), Digits(digits, digits), tmp_path, routing_images=0)
    with torch.inference_mode():
        arrays = evaluate(run)[0].arrays
    assert arrays["hardest"]["indices"][0] == 7
    drawn = arrays["reconstructions"]
    assert (drawn["labels"][-1], drawn["predicted"][-1]) == (3, 7)
    assert drawn["reconstructions"][-1, 0, 0] == round(0.7 * 255)
    assert arrays["perturbations"]["labels"].tolist() == list(range(10))
