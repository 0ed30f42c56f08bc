"""Routing under the microscope: the statistics against their definitions, and models whose answers are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from stand_ins import Reader, coded_digits, spec_of, trained
from torch import Tensor, nn

from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.evaluation import mnist
from capsbench.evaluation.couplings import CouplingStatistics, shares
from capsbench.evaluation.microscope import ITERATIONS, routing_condition
from capsbench.models import build_model
from capsbench.models.build import as_spec
from capsbench.models.output import Output
from capsbench.plan.tasks import TASKS
from capsbench.plan.variants import Spec
from capsbench.routing.energy import energy

NARROW = {"channels": 8, "primary_types": 2}
IMAGES, INPUTS, OUTPUTS = 400, 6, 10


def statistics(couplings: Tensor, labels: Tensor, batch: int = 64) -> CouplingStatistics:
    found = CouplingStatistics(10)
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))]
    for part in zip(couplings.split(batch), labels.split(batch), shuffled.split(batch), strict=True):
        found.add(*part)
    return found


def random_couplings() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(IMAGES, INPUTS, OUTPUTS, generator=draw).mul(3).softmax(2), torch.arange(IMAGES) % 10


def test_statistics_are_what_they_are_defined_as() -> None:
    couplings, labels = random_couplings()
    found, c = statistics(couplings, labels), couplings.double().numpy()
    assert found.entropy() == pytest.approx(float(-(c * np.log(c)).sum(2).mean() / math.log(OUTPUTS)), rel=1e-6)
    assert found.hard() == pytest.approx(float((c.max(2) > 0.99).mean()))
    assert 0 < found.hard() < 1
    assert found.spread() == pytest.approx(float(c.std(0).mean()), rel=1e-6)
    assert found.spread_within() == pytest.approx(float(c.std(1).mean()), rel=1e-6)


def test_uniform_couplings_have_full_entropy_and_tell_nothing() -> None:
    found = statistics(torch.full((IMAGES, INPUTS, OUTPUTS), 0.1), torch.arange(IMAGES) % 10)
    assert found.entropy() == pytest.approx(1)
    assert (found.hard(), found.spread(), found.mutual_information()) == (0, 0, 0)
    assert found.spread_within() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("images", "room"), [(4000, 0.05), (200, 0.35)])
def test_couplings_that_know_the_class_tell_it_all(images: int, room: float) -> None:
    labels = torch.arange(images) % 10
    known = torch.nn.functional.one_hot((labels + 3) % 10, 10)[:, None].expand(-1, INPUTS, -1).float()
    found = statistics(known, labels)
    assert (found.entropy(), found.hard()) == (0, 1)
    assert math.log2(10) - room < found.mutual_information() <= math.log2(10)


def test_couplings_that_know_nothing_tell_nothing_however_few_the_images() -> None:
    draw = torch.Generator().manual_seed(1)
    told = []
    for _ in range(20):
        couplings = torch.rand(100, 30, OUTPUTS, generator=draw).softmax(2)
        told.append(statistics(couplings, torch.randint(10, (100,), generator=draw)).mutual_information())
    assert abs(np.mean(told)) < 0.02  # without the correction it would be about 0.5 bits


def test_couplings_that_do_not_sum_to_one_are_taken_as_shares() -> None:
    c = torch.tensor([[[0.2, 0.2, 0.1], [-1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]])
    expected = [[[0.4, 0.4, 0.2], [0, 1, 0], [1 / 3] * 3]]
    assert shares(c).flatten().tolist() == pytest.approx(np.array(expected).ravel().tolist())


def narrow(name: str, **values: object) -> Spec:
    decoder = {} if as_spec(name).reconstruction == "none" else {"decoder": [8, 8]}
    return as_spec({"base": name, **NARROW, **decoder, **values})


def looked_at(spec: Spec, count: int = 40, folder: Path | None = None, scale: float = 1.0):
    torch.manual_seed(0)
    model = build_model(spec, folder=folder).eval()
    with torch.inference_mode():
        if scale != 1:
            model.digit_caps.weight *= scale  # votes as long as a trained model's
        return model, routing_condition(model, spec, coded_digits(count))


def test_dynamic_routing_at_every_number_of_passes() -> None:
    spec = narrow("capsnet-r3-recon")
    model, found = looked_at(spec, scale=40)
    table = found.frames["iterations"].set_index("iterations")
    assert tuple(table.index) == ITERATIONS
    assert table["trained"].to_dict() == {r: int(r == 3) for r in ITERATIONS}
    assert table.loc[3, "flips"] == 0
    assert table.loc[1, "entropy"] == pytest.approx(1)
    assert (table["entropy"].diff().dropna() <= 1e-12).all()  # accumulated logits only harden
    assert table.loc[100, "entropy"] < 0.9
    assert (table["energy"].diff().dropna() >= -1e-9).all()  # F never falls
    digits = coded_digits(40)
    images = digits.images[:, None] / 255
    with torch.inference_mode():
        kept, more = (model(images, iterations=r).scores.argmax(1) for r in (3, 100))
        logits = [one.logits for one in model(images, iterations=100, trace=True).trace]
    assert table.loc[100, "flips"] == pytest.approx(100 * float((kept != more).double().mean()))
    assert table.loc[3, "error"] == pytest.approx(100 * float((kept != digits.labels).double().mean()))
    changes = found.frames["logits"].set_index("iteration")["change"]
    assert list(changes.index) == list(range(2, 101))
    assert changes[2] == pytest.approx(float(logits[1].abs().mean()), rel=1e-5)
    assert changes[7] == pytest.approx(float((logits[6] - logits[5]).abs().mean()), rel=1e-5)
    assert found.metrics["flips_r100"][0] == pytest.approx(table.loc[100, "flips"])
    assert found.metrics["coupling_entropy"][0] == pytest.approx(table.loc[3, "entropy"])
    assert found.metrics["energy"][0] == pytest.approx(table.loc[3, "energy"])
    assert table.loc[1, "energy"] < table.loc[3, "energy"] < table.loc[100, "energy"]


class Knowing(Reader):
    """Reads coded digits, and sends both of its lower capsules to the class that it read."""

    def forward(self, images: Tensor, iterations: int | None = None, trace: bool = False) -> Output:
        scores = super().forward(images).scores
        known = nn.functional.one_hot(scores.argmax(1), OUTPUTS).float()  # [B, J]
        return Output(scores, couplings=known[:, None].expand(-1, 2, -1))


def test_a_model_whose_couplings_know_the_class_tells_it() -> None:
    """What shuffled labels would tell is taken off: were they the labels themselves, nothing would be left."""
    with torch.inference_mode():
        found = routing_condition(Knowing(), narrow("capsnet-r3"), coded_digits(1000))
    told, unit = found.metrics["mutual_information"]
    assert unit == "bits"
    assert math.log2(10) - 0.1 < told <= math.log2(10)


def test_hardness_and_spread_of_couplings_are_told_under_their_names() -> None:
    """Of ten images, one of each class, a coupling is 1 once: a deviation of 0.3 over images, none within one."""
    with torch.inference_mode():
        found = routing_condition(Knowing(), narrow("capsnet-r3"), coded_digits(100))
    expected = {"hard_fraction": (100, "%"), "coupling_entropy": (0, ""), "coupling_spread": (pytest.approx(0.3), "")}
    assert {name: found.metrics[name] for name in expected} == expected
    assert found.metrics["coupling_spread_within"] == (0, "")
    table = found.frames["iterations"]
    assert set(table["hard"]) == {100}
    assert table["spread"].tolist() == pytest.approx([0.3] * len(table))


class Losing(Knowing):
    """Right, until many passes make the score of the class that it read no number."""

    def forward(self, images: Tensor, iterations: int | None = None, trace: bool = False) -> Output:
        output = super().forward(images)
        if (iterations or 0) >= 50:
            output.scores[torch.arange(len(images)), output.scores.argmax(1)] = torch.nan
        return output


def test_an_answer_with_a_score_that_is_no_number_is_never_right() -> None:
    with torch.inference_mode():
        found = routing_condition(Losing(), narrow("capsnet-r3"), coded_digits(20)).metrics
    assert (found["error_r100"], found["flips_r100"]) == ((100, "%"), (100, "%"))
    assert found["error"] == found["error_r3"] == (0, "%")


def test_the_energy_is_of_what_is_squashed_a_trained_bias_with_it() -> None:
    spec = narrow("capsnet-r3-recon", bias="official")
    torch.manual_seed(0)
    model, digits = build_model(spec).eval(), coded_digits(30)  # two batches
    with torch.inference_mode():
        bias = model.digit_caps.routing.bias.normal_()
        found = routing_condition(model, spec, digits).frames["iterations"].set_index("iterations")
        images = digits.images[:, None] / 255
        votes = model.digit_caps.votes(model.primary_capsules(images))
        for passes in (1, 3):
            expected = energy(votes, model(images, iterations=passes).couplings, bias).mean()
            assert found.loc[passes, "energy"] == pytest.approx(float(expected), rel=1e-5)


def test_a_number_of_passes_that_is_not_in_the_list_is_looked_at_too() -> None:
    _, found = looked_at(narrow("capsnet-r3-recon", iterations=4), count=10)
    assert found.frames["iterations"]["iterations"].tolist() == sorted([*ITERATIONS, 4])


@pytest.mark.parametrize(
    "name", ["capsnet-uniform", "capsnet-learned", "capsnet-self-routing", "capsnet-self-attention"]
)
def test_a_routing_of_one_pass_has_its_couplings_alone(name: str) -> None:
    _, found = looked_at(narrow(name), count=10)
    assert found.frames["iterations"]["iterations"].tolist() == [1]
    assert "logits" not in found.frames
    assert not [word for word in found.metrics if "_r" in word]
    assert {"coupling_entropy", "energy", "dead_capsules", "mutual_information"} <= found.metrics.keys()


def test_matrix_capsules_have_no_energy_and_their_own_passes() -> None:
    torch.manual_seed(0)
    spec = as_spec({"base": "em-matrix", "channels": 8, "primary_types": 2, "capsule_types": [2, 2]})
    with torch.inference_mode():
        found = routing_condition(build_model(spec).eval(), spec, coded_digits(8))
    assert {"energy", "dead_capsules"} & found.metrics.keys() == set()
    assert found.frames["iterations"]["energy"].isna().all()
    assert len(found.frames["logits"]) == 99


def test_capsules_that_never_speak_are_dead() -> None:
    spec = narrow("capsnet-r3-recon")
    torch.manual_seed(0)
    model = build_model(spec).eval()
    with torch.inference_mode():
        model.primary.weight[: spec.primary_dim] = 0  # the first of two types
        model.primary.bias[: spec.primary_dim] = 0
        found = routing_condition(model, spec, coded_digits(10))
    assert found.metrics["dead_capsules"][0] == pytest.approx(50)


def test_a_capsule_is_dead_below_a_hundredth_of_the_longest() -> None:
    spec = narrow("capsnet-r3-recon", primary_types=3, primary_squash="none")
    torch.manual_seed(0)
    model = build_model(spec).eval()
    with torch.inference_mode():
        model.primary.weight.zero_()
        model.primary.bias.zero_()
        model.primary.bias[:: spec.primary_dim] = torch.tensor([2.0, 0.021, 0.019])  # lengths of the three types
        found = routing_condition(model, spec, coded_digits(10))
    assert found.metrics["dead_capsules"][0] == pytest.approx(100 / 3)


def test_a_capsule_that_speaks_of_one_image_in_thirty_is_alive() -> None:
    """Of two types one is always 1 long, the other 0.05 where the image is white: more than a hundredth, once."""
    spec = narrow("capsnet-r3", primary_squash="none")
    torch.manual_seed(0)
    model = build_model(spec).eval()
    images = torch.zeros(30, 28, 28, dtype=torch.uint8)
    images[0] = 255
    with torch.inference_mode():
        for parameter in (*model.conv1.parameters(), *model.primary.parameters()):
            parameter.zero_()
        model.conv1.weight[0, 0, 0, 0] = 1  # the first channel is the pixel itself
        model.primary.bias[0] = 1
        model.primary.weight[spec.primary_dim, 0, 0, 0] = 0.05
        found = routing_condition(model, spec, DigitSet(images, torch.zeros(30, dtype=torch.int64)))
    assert found.metrics["dead_capsules"] == (0, "%")


OUTSIDE = '''
import torch
from capsbench.routing import Pass, Routed, length
def silent(votes, iterations=3):
    """Gives its last couplings, and no pass before."""
    c = torch.full(votes.shape[:3], 1 / votes.shape[2])
    v = (c.unsqueeze(3) * votes).sum(1) / iterations
    return Routed(v, c, length(v))
def telling(votes, iterations=3, trace=False):
    """Tells each pass: its logits are the number of the pass."""
    routed = silent(votes)
    one = routed.couplings
    passes = tuple(Pass(one * 0 + t * t, one, routed.poses) for t in range(iterations))
    return routed._replace(trace=passes if trace else None)
def broken(votes, iterations=3):
    """Overflows where it is told to make many passes."""
    routed = silent(votes)
    return routed if iterations < 50 else routed._replace(scores=routed.scores * float("nan"))
def lost(votes, iterations=3):
    """Gives couplings that are no numbers."""
    routed = silent(votes)
    return routed._replace(couplings=routed.couplings * float("nan"))
'''


def test_routings_of_one_s_own_take_part(tmp_path: Path) -> None:
    (tmp_path / "outside_routings.py").write_text(OUTSIDE)

    def look(name: str):
        spec = narrow("capsnet-r3-recon", routing=f"outside_routings:{name}")
        return looked_at(spec, count=10, folder=tmp_path)[1]

    silent, telling, broken, lost = look("silent"), look("telling"), look("broken"), look("lost")
    assert silent.metrics["coupling_entropy"][0] == pytest.approx(1)
    assert "logits" not in silent.frames
    assert len(silent.frames["iterations"]) == len(ITERATIONS)
    changes = telling.frames["logits"]
    assert changes["change"].tolist() == [(t * t - (t - 1) ** 2) for t in range(1, 100)]
    assert broken.metrics["error_r100"][0] == 100  # no answer is a wrong answer
    assert broken.metrics["flips_r100"][0] == 100
    assert broken.metrics["flips_r30"][0] == 0
    assert {lost.metrics[name][0] for name in ("coupling_entropy", "hard_fraction", "coupling_spread")} == {None}


def test_the_condition_belongs_to_mnist_and_to_what_routes() -> None:
    task, cnn = TASKS["mnist"], spec_of("cnn", channels=[2], kernels=[3])
    options = task.model_validate({"variants": ["given"]})
    assert options.conditions(narrow("capsnet-r3")) == ("test", "routing")
    assert options.conditions(cnn) == ("test",)
    assert task.model_validate({"variants": ["given"], "routing_images": 0}).conditions(narrow("capsnet-r3")) == (
        "test",
    )


def test_evaluation_looks_at_as_many_images_as_the_plan_says(tmp_path: Path) -> None:
    spec = narrow("capsnet-r1")
    torch.manual_seed(0)
    run = trained("mnist", build_model(spec), Digits(coded_digits(1), coded_digits(30)), tmp_path, routing_images=20)
    with torch.inference_mode():
        test, routing = mnist.evaluate(run)
        whole = trained("mnist", run.model, run.digits, tmp_path)
        assert [condition.images for condition in mnist.evaluate(whole)] == [30, 30]
    assert (test.name, test.images, routing.name, routing.images) == ("test", 30, "routing", 20)
    assert routing.frames["iterations"].set_index("iterations")["trained"].to_dict()[1] == 1


def test_no_image_is_looked_at_that_is_not_tested(tmp_path: Path) -> None:
    """A plan that tests the first 10 and says nothing of routing asks for all of the test set there."""
    digits = Digits(coded_digits(1), coded_digits(30))
    torch.manual_seed(0)
    run = trained("mnist", build_model(narrow("capsnet-r1")), digits, tmp_path, test_images=10, attack_images=20)
    with torch.inference_mode():
        found = {condition.name: condition.images for condition in mnist.evaluate(run)}
    assert found == {"test": 10, "routing": 10, "attacked": 10}
