"""A routing from outside that does not do what is expected of one: a sentence naming the variant, before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.models import build_model
from capsbench.models.raised import what_was_raised
from capsbench.models.trial import try_passes
from capsbench.plan import House
from capsbench.training.run import Setting, new_model

FILE = """
import torch
from torch import nn
from capsbench.routing import Routed, length, squash

def good(votes, sharpness=1.0):
    v = squash(votes.mean(1))
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))

def wrong_shape(votes):
    return good(votes)._replace(scores=votes)

def transposed(votes):
    return good(votes)._replace(couplings=votes.new_zeros(votes.shape[:3]).transpose(1, 2))

def number(votes):
    return 1.0

def nan(votes):
    return good(votes)._replace(scores=votes.sum((1, 3)) / 0)

def nan_on_black(votes):
    s = votes.mean(1)
    v = s / s.norm(dim=-1, keepdim=True)
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))

def bad_gradient(votes):
    v = squash(votes.mean(1)) + (votes.mean(1) * 0).sqrt()
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))

def no_gradient(votes):
    return good(votes.detach())

def crash(votes):
    one = votes.sum()
    return one.reshape(3, 5)

def needy(votes, strength):
    return good(votes)

class Module(nn.Module):
    def __init__(self, outputs, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(outputs, dim))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, votes):
        self.calls += 1
        return good(votes * self.gain)

class Raising(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = {}[dim]

def doubles(votes):
    return Routed(*(value.double() for value in good(votes)[:3]))

def scores_alone(votes):
    routed = good(votes)
    return routed._replace(scores=routed.scores.detach())

class Steep(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(3))

    def forward(self, votes):
        return good(votes * (1 + self.gain.square().sum().sqrt()))

class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.doubled = self.gain * 2

    def forward(self, votes):
        return good(votes * self.doubled)

class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.full((), 2.0), requires_grad=False)

    def forward(self, votes):
        return good(votes * self.gain)

class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 1)
        nn.init.constant_(self.gate.weight, 0.25)
        nn.init.constant_(self.gate.bias, 3.0)

    def forward(self, votes):
        return good(votes * self.gate(votes))
"""
PLAN = """
budget: reduced
seeds: [0]
width: 0.0625
training: {steps: 1, precision: float32}
variants:
  mine: {base: BASE, title: Mine, routing: 'OFNAME', routing_options: OPTIONS}
tasks:
  TASK: {variants: [mine]}
"""


def model_of(
    folder: Path,
    name: str,
    options: str = "{}",
    base: str = "capsnet-r3",
    task: str = "mnist",
    of: str = "trial_file:",
) -> torch.nn.Module:
    text = PLAN.replace("OFNAME", of + name).replace("OPTIONS", options).replace("BASE", base).replace("TASK", task)
    return first_model_of(folder, text)


def first_model_of(folder: Path, plan: str) -> torch.nn.Module:
    (folder / "trial_file.py").write_text(FILE)
    (folder / "plan.yaml").write_text(plan)
    house = House.load(folder / "plan.yaml")
    setting = Setting(house, house.cells[0], None, {}, torch.device("cpu"), 1, print)  # type: ignore[arg-type]
    return new_model(setting, 0)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("wrong_shape", "{}", "it must return scores of shape [3, 10], not [3, 72, 10, 16]."),
        ("transposed", "{}", "it must return couplings of shape [3, 72, 10], not [3, 10, 72]."),
        ("number", "{}", "it must return capsbench.routing.Routed(poses, couplings, scores), but float has no tensor"),
        ("nan", "{}", "it returned scores with values that are not finite, although its votes are finite."),
        ("bad_gradient", "{}", "the gradient that comes back through it is not finite."),
        ("no_gradient", "{}", "no gradient comes back through it, so that no W can be learned."),
        (
            "crash",
            "{}",
            "trial_file.py, line 36: it raised RuntimeError: shape '[3, 5]' is invalid for input of size 1.",
        ),
        ("Raising", "{}", "trial_file.py, line 54: it raised KeyError: 16."),
        ("doubles", "{}", "it must return poses of torch.float32, as its votes are, not torch.float64."),
        ("scores_alone", "{}", "no gradient comes back through its scores, which the loss is of."),
        ("Steep", "{}", "the gradient of a parameter of its own is not finite."),
        ("Kept", "{}", "it raised RuntimeError: Only Tensors created explicitly by the user"),
        ("good", "{sharpnes: 2}", "it takes no option 'sharpnes'; did you mean 'sharpness'?"),
        ("needy", "{}", "it needs the option 'strength'."),
    ],
)
def test_what_is_wrong_is_said_before_training(name: str, options: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RoutingError) as caught:
        model_of(tmp_path, name, options)
    text = str(caught.value)
    assert text.startswith(f"variant mine: routing 'trial_file:{name}': ")
    assert sentence in text
    assert "\n" not in text


def test_a_variant_that_is_nothing_but_its_routing_is_not_named_twice(tmp_path: Path) -> None:
    plan = PLAN.replace(
        "variants:\n  mine: {base: BASE, title: Mine, routing: 'OFNAME', routing_options: OPTIONS}\n", ""
    )
    with pytest.raises(RoutingError, match=r"^routing 'trial_file:nan': it returned scores with values"):
        first_model_of(tmp_path, plan.replace("TASK", "mnist").replace("[mine]", "['trial_file:nan']"))


@pytest.mark.parametrize(
    ("name", "base", "hinted"),
    [("trial_file:Raising", "", True), ("trial_file:nan", "", False), ("mine", "capsnet-r3", False)],
)
def test_a_bare_class_that_is_no_routing_may_be_a_model(name: str, base: str, hinted: bool, tmp_path: Path) -> None:
    mine = f"  mine: {{base: {base}, title: Mine, routing: 'trial_file:Raising'}}\n" if base else "  {}\n"
    head, _, tail = PLAN.partition("variants:\n")
    plan = f"{head}variants:\n{mine}tasks:{tail.partition('tasks:')[2]}"
    with pytest.raises(RoutingError) as caught:
        first_model_of(tmp_path, plan.replace("TASK", "mnist").replace("[mine]", f"['{name}']"))
    hint = "(A whole model is named by `model: trial_file:Raising` in a variant of the plan.)"
    assert str(caught.value).endswith(hint) == hinted
    assert ("whole model" in str(caught.value)) == hinted


def test_a_black_image_is_among_those_that_are_tried(tmp_path: Path) -> None:
    """The two-digit trunk, whose biases begin at zero, has no vector at all for one."""
    with pytest.raises(RoutingError, match="returned poses with values that are not finite, although its votes are"):
        model_of(tmp_path, "nan_on_black", base="two-digit-kmeans", task="two_digit")


@pytest.mark.parametrize(("base", "task"), [("capsnet-r3", "mnist"), ("two-digit-kmeans", "two_digit")])
def test_a_routing_s_own_layers_start_as_it_says(base: str, task: str, tmp_path: Path) -> None:
    state = model_of(tmp_path, "Gate", base=base, task=task).state_dict()
    (weight,) = (value for name, value in state.items() if name.endswith("gate.weight"))
    (bias,) = (value for name, value in state.items() if name.endswith("gate.bias"))
    assert weight.eq(0.25).all()
    assert bias.eq(3.0).all()


def test_what_a_routing_of_the_package_refuses_names_the_variant_too(tmp_path: Path) -> None:
    with pytest.raises(RoutingError, match=r"^variant mine: routing 'optimised': prior must be a tensor"):
        model_of(tmp_path, "optimised", "{prior: word}", of="")


def test_a_parameter_that_does_not_learn_is_no_fault(tmp_path: Path) -> None:
    assert model_of(tmp_path, "Frozen").digit_caps.routing.routing.gain == 2


@pytest.mark.parametrize("name", ["good", "Module"])
def test_the_trial_leaves_no_trace(name: str, tmp_path: Path) -> None:
    model = model_of(tmp_path, name)
    again = build_model({"base": "capsnet-r3", "routing": f"trial_file:{name}"}, 28, tmp_path)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.digit_caps.check_values
    assert model.training
    assert {n: p.shape for n, p in again.named_parameters()}.keys() == dict(model.named_parameters()).keys()
    if name == "Module":
        assert model.digit_caps.routing.routing.calls == 0
        assert model.digit_caps.routing.routing.gain.shape == (10, 16)


def test_passes_are_tried_as_the_evaluation_asks_for_them(tmp_path: Path) -> None:
    """In evaluation mode, and with a trace at the last number alone: what else a routing refuses is no fault."""
    model = build_model({"base": "capsnet-r3", "channels": 8, "primary_types": 2}).train()
    asked: list[tuple[bool, int, bool]] = []
    model.digit_caps.routing.register_forward_pre_hook(
        lambda routing, _, words: asked.append((routing.training, words["iterations"], words["trace"])),
        with_kwargs=True,
    )
    try_passes(model, 28, tmp_path, [1, 2])
    assert asked == [(False, 1, False), (False, 2, True)]


def test_the_line_that_is_named_is_the_user_s_last_and_no_library_s_in_the_same_folder(tmp_path: Path) -> None:
    library = tmp_path / ".venv" / "lib" / "site-packages" / "library.py"
    inside: dict[str, Any] = {}
    exec(compile("def fails():\n    raise ValueError('why')", str(library), "exec"), inside)
    with pytest.raises(ValueError, match="why") as caught:
        exec(compile("\n\nfails()", str(tmp_path / "mine.py"), "exec"), inside)
    assert what_was_raised(caught.value, tmp_path) == "mine.py, line 3: it raised ValueError: why."
