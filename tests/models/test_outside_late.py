"""What a second look finds in code from outside: state that is not stored, seeds, a second step, one image alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from capsbench.errors import RoutingError
from capsbench.models import build_model
from capsbench.models.build import as_spec
from capsbench.models.repeatable import build_and_try_twice
from capsbench.plan.variants import Spec

ROUTINGS = """
import numpy
import torch
from torch import nn
from capsbench.routing import Routed, length, squash

class Good(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.gain = nn.Parameter(1 + 0.1 * torch.randn(outputs))

    def forward(self, votes):
        v = squash((votes * self.gain[:, None]).mean(1))
        return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))

class Seeds(Good):
    def __init__(self, outputs):
        torch.manual_seed(1)
        super().__init__(outputs)

class OwnGenerator(Good):
    def __init__(self, outputs):
        super().__init__(outputs)
        drawn = torch.randn(outputs, generator=torch.Generator().manual_seed(3))
        self.gain = nn.Parameter(1 + 0.1 * drawn)

class Numpy(Good):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.gain = nn.Parameter(torch.tensor(1 + 0.1 * numpy.random.randn(outputs), dtype=torch.float32))

class Tied(Good):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.again = self.gain

class Extra(Good):
    def get_extra_state(self):
        return {"a": 1}

    def set_extra_state(self, state):
        pass

class KeepsGraph(Good):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.register_buffer("mean", torch.zeros(outputs))

    def forward(self, votes):
        routed = super().forward(votes)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * routed.scores.mean(0)
        return Routed(routed.poses, routed.couplings, routed.scores * (1 - 0.1 * self.mean))

class Gate(Good):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, votes):
        return super().forward(votes - self.gate * votes.mean(0))

class ShutGate(Gate):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.gate.requires_grad_(False)

def squeezes(votes):
    v = squash(votes.mean(1)).squeeze()
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), torch.einsum("bjd,bjd->bj", v, v).add(1e-9).sqrt())
"""
AGAIN = "tried again, shown one image alone or built anew with the same weights, "


def model(name: str, **options: object) -> Spec:
    values = {"model": f"late_models:{name}", "loss": "cross-entropy", "reconstruction": "none"}
    return as_spec({**values, "title": name, "source": "ours", "model_options": options})


def routing(name: str) -> Spec:
    return as_spec({"base": "capsnet-r3", "routing": f"late:{name}", "channels": 16, "primary_types": 2})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("late_models.py"), tmp_path)
    (tmp_path / "late.py").write_text(ROUTINGS)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("StartsAnew", "in evaluation, another model with its weights and buffers gives other scores"),
        ("MaskOfFirst", "in evaluation, another model with its weights and buffers gives other scores"),
        ("KeepsGraph", "at a second step of training: it raised RuntimeError: Trying to backward through the graph"),
        ("NotAlone", f"{AGAIN}late_models.py, line 63: it raised ValueError: Expected more than 1 value per channel"),
        ("Complex128", "its state has turn of torch.complex128, which a file of weights cannot hold."),
    ],
)
def test_what_is_wrong_with_a_model_is_said(folder: Path, name: str, words: str) -> None:
    with pytest.raises(RoutingError) as error:
        build_and_try_twice(model(name), 28, folder)
    assert str(error.value).startswith(f"model 'late_models:{name}'")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_that_stores_that_it_has_started_is_no_fault(folder: Path) -> None:
    build_and_try_twice(model("StartsAnew", remembers=True), 28, folder)


def test_a_gate_that_never_opens_is_no_fault(folder: Path) -> None:
    build_and_try_twice(routing("ShutGate"), 28, folder)


def test_an_error_s_words_are_cut(folder: Path) -> None:
    with pytest.raises(RoutingError) as error:
        build_and_try_twice(model("Long"), 28, folder)
    assert "it raised ValueError: word word" in str(error.value)
    assert str(error.value).endswith(" [...].")
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Seeds", "it sets torch's seed, which is each run's own; leave it alone."),
        ("OwnGenerator", "it starts with the same weights whatever torch's seed is"),
        ("Numpy", "built twice from one seed of torch it starts with other weights the second time"),
        ("Tied", "gain and again lie in the same memory, which a file of weights cannot hold"),
        ("Extra", "its state has _extra_state, no tensor, which a file of weights cannot hold."),
        ("KeepsGraph", "at a second step of training: it raised RuntimeError: Trying to backward through the graph"),
        ("Gate", "in evaluation an image's scores depend on the other images of its batch"),
        ("squeezes", f"{AGAIN}late.py, line 70: it raised RuntimeError: einsum()"),
    ],
)
def test_what_is_wrong_with_a_routing_is_said(folder: Path, name: str, words: str) -> None:
    with pytest.raises(RoutingError) as error:
        build_and_try_twice(routing(name), 28, folder)
    assert str(error.value).startswith(f"routing 'late:{name}'")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_routing_whose_weights_follow_the_seed_is_no_fault(folder: Path) -> None:
    tried = build_and_try_twice(routing("Good"), 28, folder)
    assert tried.state_dict().keys() == build_model(routing("Good"), 28, folder).state_dict().keys()
