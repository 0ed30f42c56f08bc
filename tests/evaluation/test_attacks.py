"""White-box attacks: on a model whose worst direction is known, and on every variant that MNIST may have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from stand_ins import coded_digits, spec_of, trained
from torch import Tensor, nn

from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.evaluation import attacks
from capsbench.evaluation.attacks import EPSILONS, attacked_condition, projected_gradient, uphill
from capsbench.evaluation.mnist import evaluate
from capsbench.models import build_model
from capsbench.models.output import Output
from capsbench.plan import House, config_folder
from capsbench.plan.tasks import TASKS


class Brightness(nn.Module):
    """Class 1 where an image is brighter than a half on the whole, else class 0; an affine function of its pixels."""

    def __init__(self, slope: float = 1.0) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope))

    def forward(self, images: Tensor) -> Output:
        mean = self.slope * (images.flatten(1).mean(1) - 0.5)
        return Output(torch.stack([-mean, mean], dim=1))


class Linear(nn.Module):
    """Ten logits of all pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = spec_of("cnn", channels=[1], kernels=[1], head="average")
        self.dense = nn.Linear(784, 10)

    def forward(self, images: Tensor) -> Output:
        return Output(self.dense(images.flatten(1)))


def grey(*values: float) -> Tensor:
    return torch.tensor(values)[:, None, None, None].expand(-1, 1, 28, 28).clone()


def test_uphill_is_where_the_wrong_answer_gains() -> None:
    direction = uphill(Brightness(), grey(0.3, 0.8), torch.tensor([0, 1]))
    assert direction[0].unique().tolist() == [1]
    assert direction[1].unique().tolist() == [-1]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_projected_gradient_goes_to_the_edge_and_no_further(epsilon: float) -> None:
    images = grey(0.3, 0.8, 0.98)
    moved = projected_gradient(Brightness(), images, torch.tensor([0, 1, 0]), epsilon)
    expected = grey(0.3 + epsilon, 0.8 - epsilon, min(0.98 + epsilon, 1))
    assert moved == pytest.approx(expected, abs=1e-6)


def test_each_of_twenty_steps_goes_an_eighth_of_epsilon_uphill_from_where_the_last_one_ended(monkeypatch) -> None:
    asked: list[Tensor] = []

    def brighter(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        asked.append(images)
        return torch.ones_like(images)

    monkeypatch.setattr(attacks, "uphill", brighter)
    projected_gradient(Brightness(), grey(0.5), torch.tensor([0]), 0.2)
    places = [float(images.mean()) for images in asked]
    assert places == pytest.approx([min(0.5 + 0.025 * step, 0.7) for step in range(20)], abs=1e-5)


def test_no_pixel_leaves_what_an_image_can_show() -> None:
    """13 of 28 rows are white and stay so: by 0.05 the 15 others brighten the image to 0.491, by 0.1 to 0.518."""
    images = torch.zeros(1, 28, 28, dtype=torch.uint8)
    images[:, :13] = 255
    found = attacked_condition(Brightness(), DigitSet(images, torch.tensor([0]))).metrics
    for attack in ("fgsm", "pgd"):
        assert [found[f"{attack}_error_{name}"][0] for name in ("e5", "e10")] == [0, 100]


def test_an_answer_falls_where_its_distance_from_the_boundary_is_less_than_epsilon() -> None:
    images = (255 * grey(0.42, 0.35, 0.28, 0.1, 0.7)[:, 0]).to(torch.uint8)
    model = Brightness()
    with torch.inference_mode():  # as evaluation runs
        found = attacked_condition(model, DigitSet(images, torch.tensor([0, 0, 0, 0, 0])))
    assert found.images == 5
    values = {name: value for name, (value, unit) in found.metrics.items() if unit == "%"}
    errors_at = {"e5": 20.0, "e10": 40.0, "e20": 60.0, "e30": 80.0}  # the last image is wrong as it is
    assert values == {"error": 20.0, "masked": 0.0} | {
        f"{attack}_error_{name}": value for attack in ("fgsm", "pgd") for name, value in errors_at.items()
    }
    frame = found.frames["attacks"]
    assert frame.columns.tolist() == ["attack", "epsilon", "error", "images"]
    assert frame["attack"].tolist() == ["none", *["fgsm", "pgd"] * 4]


def test_a_model_without_a_gradient_is_said_to_hide_it() -> None:
    digits = DigitSet((255 * grey(0.1, 0.3)[:, 0]).to(torch.uint8), torch.tensor([0, 0]))
    found = attacked_condition(Brightness(0.0), digits)
    assert found.metrics["masked"] == (100.0, "%")
    assert found.metrics["pgd_error_e30"] == (0.0, "%")


class Upper(Brightness):
    """Looks at the upper half alone."""

    def forward(self, images: Tensor) -> Output:
        return super().forward(images[:, :, :14])


def test_a_gradient_that_is_zero_at_some_pixels_hides_nothing() -> None:
    digits = DigitSet((255 * grey(0.1, 0.3)[:, 0]).to(torch.uint8), torch.tensor([0, 0]))
    assert attacked_condition(Upper(), digits).metrics["masked"] == (0.0, "%")


# of rows that differ only in what training sees (few digits, a tuned rate), which no attack does, the first
MODELS = {
    cell.spec.model_dump_json(exclude=set(cell.spec.WORDS)): cell.variant
    for cell in reversed(House.load(config_folder() / "ablation.yaml").cells)
    if cell.task == "mnist"
}


@pytest.mark.parametrize("variant", sorted(MODELS.values()))
def test_every_model_of_the_ablation_can_be_attacked(variant: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text((config_folder() / "ablation.yaml").read_text().replace("width: 1.0", "width: 0.0625"))
    cell = next(cell for cell in House.load(plan).cells if (cell.task, cell.variant) == ("mnist", variant))
    torch.manual_seed(0)
    model = build_model(cell.spec, TASKS["mnist"].IMAGE[0]).eval()
    with torch.no_grad():  # some begin with a last layer of zeros, which answers alike whatever it sees
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    digits = coded_digits(4)
    with torch.inference_mode():
        found = attacked_condition(model, digits)
    assert found.metrics["masked"] == (0.0, "%")
    assert found.metrics["error"][0] <= found.metrics["fgsm_error_e30"][0] <= 100


def test_a_plan_that_asks_for_it_has_the_condition(tmp_path: Path) -> None:
    digits = Digits(coded_digits(30), coded_digits(30))
    run = trained("mnist", Linear(), digits, tmp_path, attack_images=20)
    with torch.inference_mode():
        conditions = {condition.name: condition for condition in evaluate(run)}
    assert conditions["attacked"].images == 20
    assert run.cell.options.conditions(run.cell.spec)[-1] == "attacked"


def test_every_batch_of_images_counts_with_its_own_labels(monkeypatch) -> None:
    monkeypatch.setitem(attacks.BATCH, "cpu", 2)
    digits = DigitSet((255 * grey(0.1, 0.1, 0.9, 0.1, 0.9)[:, 0]).to(torch.uint8), torch.tensor([0, 1, 1, 0, 1]))
    found = attacked_condition(Brightness(), digits).metrics
    assert [found[name][0] for name in ("error", "fgsm_error_e5", "pgd_error_e5")] == [20, 20, 20]  # the second alone
    assert attacked_condition(Brightness(0.0), digits).metrics["masked"] == (100.0, "%")
