"""The layer: trained parameters, neutral starts, precision, and code from outside the package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch
from routing_cases import ALL, ITERATIVE, ONE_PASS, generator, random_parameters, votes_and_children
from torch import nn

import capsbench.routing
from capsbench.routing import build_routing, describe, names, resolve, route
from capsbench.routing.registry import ALGORITHMS

SIZES = {"inputs": 7, "outputs": 4, "dim": 5, "child_dim": 6}

PARAMETERS = {  # of the table in the facts, at I = 7, J = 4, D = 5, d = 6
    "learned": 7 * 4,
    "scaled-distance": 4 * 5,
    "em-vector": 4 + 4,
    "self-attention": 7 * 4,
    "inverted-attention": 2 * 5 + 5,
    "self-routing": 7 * 4 * (6 + 1),
}


def layer_of(name, **options):
    return build_routing(name, **SIZES, **options).double()


@pytest.mark.parametrize("name", ALL)
def test_a_new_layer_routes_as_route_does(name):
    votes, children = votes_and_children()
    layer = layer_of(name)
    assert sum(p.numel() for p in layer.parameters()) == PARAMETERS.get(name, 0)
    routed = layer(votes, children, iterations=3, trace=True)
    expected = route(name, votes, 3, children=children, trace=True)
    torch.testing.assert_close(routed[:2], expected[:2], rtol=0, atol=1e-15)
    assert len(routed.trace) == len(expected.trace)
    if name == "inverted-attention":  # its head starts at zero
        assert (routed.scores == 0).all()
    else:
        torch.testing.assert_close(routed.scores, expected.scores, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_used_and_trained(name):
    votes, children = votes_and_children()
    values = random_parameters(name, votes, children)
    layer = layer_of(name, **{word: True for word, p in describe(name).parameters.items() if p.optional})
    assert set(dict(layer.named_parameters())) == set(values)
    layer.load_state_dict(values)
    routed = layer(votes, children, iterations=3)
    torch.testing.assert_close(routed[:3], route(name, votes, 3, children=children, **values)[:3])
    (routed.poses.square().sum() + routed.scores.square().sum()).backward()
    for word, parameter in layer.named_parameters():
        assert parameter.grad.abs().max() > 0, word


def test_optional_parameters_start_where_they_are_told():
    layer = build_routing("dynamic", **SIZES, bias=0.1, prior=True)
    assert torch.equal(layer.bias.detach(), torch.full((4, 5), 0.1))
    assert torch.equal(layer.prior.detach(), torch.zeros(7, 4))
    assert not list(build_routing("dynamic", **SIZES, bias=False, prior=None).parameters())
    votes, _ = votes_and_children()
    bias = torch.full((4, 5), 0.1, dtype=torch.float64)
    torch.testing.assert_close(route("dynamic", votes, bias=0.1).poses, route("dynamic", votes, bias=bias).poses)


def test_iterations_default_to_the_algorithm_s_own():
    votes, children = votes_and_children()
    own = dict.fromkeys(ONE_PASS, 1) | dict.fromkeys(ITERATIVE, 3) | {"inverted-attention": 2}
    for name in ALL:
        assert len(layer_of(name)(votes, children, trace=True).trace) == describe(name).passes == own[name]


def test_shared_transforms_take_any_number_of_inputs():
    layer = build_routing("dynamic", inputs=None, outputs=4, dim=5, child_dim=6, bias=True).double()
    for inputs in (3, 11):
        votes, children = votes_and_children(inputs=inputs)
        assert layer(votes, children).couplings.shape == (3, inputs, 4)


def test_autocast_and_half_precision_route_in_float32():
    votes, children = (x.float() for x in votes_and_children(inputs=50))
    for name in ALL:
        values = {word: value * 0.3 for word, value in random_parameters(name, votes, children).items()}
        expected = route(name, votes, children=children, **values)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under_autocast = route(name, votes, children=children, **values)
        for one, other in zip(under_autocast[:3], expected[:3], strict=True):
            assert torch.equal(one, other), name
        half = route(name, votes.bfloat16(), children=children.bfloat16(), **values)
        assert half.poses.dtype == torch.float32
        torch.testing.assert_close(half.poses, expected.poses, atol=0.2, rtol=0.2)


def test_the_same_bits_twice():
    votes, children = (x.float() for x in votes_and_children(batch=9, inputs=200))
    for name in ALL:
        first, second = (route(name, votes, children=children) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first[:3], second[:3], strict=True)), name


def test_every_name_is_one_file_of_that_name():
    assert set(names()) == set(ALGORITHMS)
    assert len(names()) == 12
    for name, target in ALGORITHMS.items():
        word = name.replace("-", "_")
        assert target == f"capsbench.routing.{word}:{word}"
        function = resolve(name)
        assert function.__module__ == f"capsbench.routing.{word}"


def test_no_algorithm_nor_the_table_is_imported_by_the_layer():
    """Digests follow the import statements: a new algorithm must not make every trained run stale."""
    folder = Path(capsbench.routing.__file__).parent
    forbidden = {"registry", *(name.replace("-", "_") for name in names())}
    seen, waiting = set(), ["__init__"]
    while waiting:
        stem = waiting.pop()
        seen.add(stem)
        for node in ast.walk(ast.parse((folder / f"{stem}.py").read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            stems = [m.removeprefix("capsbench.routing.") for m in modules if m.startswith("capsbench.routing.")]
            waiting += [s for s in stems if (folder / f"{s}.py").is_file() and s not in seen]
    assert {"layer", "resolve", "squash"} <= seen
    assert not seen & forbidden


def test_describe_says_what_the_table_says():
    for name in ALL:
        described = describe(name)
        assert described.title.endswith(".")
        assert described.source
        assert not described.source.endswith(".")
    assert describe("dynamic").source == "Sabour, Frosst and Hinton 2017, procedure 1"
    assert describe("em-vector").parameters.keys() == {"beta_a", "beta_u"}
    assert describe("em-vector").options == ()
    assert describe("optimised").options == ("alpha", "detach_inner", "normaliser", "squash")


OUTSIDE = '''
import torch
from torch import nn
from capsbench.routing import Parameter, Routed, length, squash, trained

def my_routing(votes, iterations=3, *, sharpness=1.0):
    """Routing of one's own."""
    c = (sharpness * votes.sum(-1)).softmax(2)
    poses = squash(torch.einsum("bij,bijd->bjd", c, votes))
    return Routed(poses, c, length(poses))

@trained(weight=Parameter(("outputs",), start=1.0))
def weighted(votes, *, weight=None):
    routed = my_routing(votes)
    return routed if weight is None else routed._replace(scores=routed.scores * weight)

class Module(nn.Module):
    """A module of one's own."""
    def __init__(self, outputs, dim, start=0.0):
        super().__init__()
        self.shift = nn.Parameter(torch.full((outputs, dim), start))
    def forward(self, votes, children=None):
        routed = my_routing(votes)
        assert children is not None
        return routed._replace(poses=routed.poses + self.shift)

def wrong_shape(votes):
    return my_routing(votes)._replace(scores=votes)
def no_routing(votes):
    return votes
def not_a_number(votes):
    return my_routing(votes * float("nan"))
def needy(votes, *, strength):
    return my_routing(votes)
number = 3
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "outside_routing.py").write_text(OUTSIDE)
    monkeypatch.delitem(sys.modules, "outside_routing", raising=False)
    return tmp_path


def test_a_routing_from_outside(folder):
    votes, children = votes_and_children()
    routed = route("outside_routing:my_routing", votes, 3, children=children, folder=folder, trace=True, sharpness=2.0)
    torch.testing.assert_close(routed.couplings, (2 * votes.sum(-1)).softmax(2))
    assert routed.trace is None
    assert sys.path.count(str(folder)) == 0
    described = describe("outside_routing:my_routing", folder)
    assert described[1:4] == ("Routing of one's own.", "outside_routing.py", 3)
    assert described.options == ("sharpness",)
    layer = build_routing("outside_routing:my_routing", **SIZES, folder=folder, sharpness=2.0)
    torch.testing.assert_close(layer(votes, children)[:3], routed[:3])


def test_a_routing_on_python_s_path(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    votes, _ = votes_and_children()
    assert route("outside_routing:my_routing", votes).poses.shape == (3, 4, 5)


def test_a_trained_routing_from_outside(folder):
    votes, children = votes_and_children()
    layer = build_routing("outside_routing:weighted", **SIZES, folder=folder).double()
    assert torch.equal(layer.weight.detach(), torch.ones(4, dtype=torch.float64))
    layer(votes, children).scores.sum().backward()
    assert layer.weight.grad.abs().min() > 0


def test_a_module_from_outside(folder):
    votes, children = votes_and_children()
    layer = build_routing("outside_routing:Module", **SIZES, folder=folder, start=0.5).double()
    assert isinstance(layer.routing, nn.Module)
    plain = route("outside_routing:my_routing", votes, folder=folder).poses
    torch.testing.assert_close(layer(votes, children, iterations=2).poses, plain + 0.5)
    routed = route("outside_routing:Module", votes, children=children, folder=folder, start=0.5)
    torch.testing.assert_close(routed.poses, plain + 0.5)
    assert describe("outside_routing:Module", folder).title == "A module of one's own."
    assert describe("outside_routing:Module", folder).options == ("start",)


def test_a_module_with_a_function_of_its_name(folder):
    package = folder / "outside_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text("from outside_routing import my_routing as mine\n")
    votes, _ = votes_and_children()
    expected = route("outside_routing:my_routing", votes, folder=folder).poses
    torch.testing.assert_close(route("outside_package:mine", votes, folder=folder).poses, expected)


def test_two_plans_with_a_file_of_the_same_name(tmp_path):
    votes, _ = votes_and_children()
    poses = []
    for factor in (1, 2):
        folder = tmp_path / str(factor)
        folder.mkdir()
        (folder / "twice_named.py").write_text(
            f"from capsbench.routing import route\ndef mine(votes):\n    return route('uniform', {factor} * votes)\n"
        )
        poses.append(route("twice_named:mine", votes, folder=folder).poses)
    assert not torch.allclose(*poses)


def test_custom_routing_sees_the_whole_batch(folder, monkeypatch):
    monkeypatch.setattr("capsbench.routing.layer.CHUNK_BYTES", 1)
    (folder / "across_batch.py").write_text(
        "from capsbench.routing import route\ndef mine(votes):\n    return route('uniform', votes - votes.mean(0))\n"
    )
    votes = torch.randn(6, 3, 2, 4, generator=generator())
    expected = route("uniform", votes - votes.mean(0)).poses
    torch.testing.assert_close(route("across_batch:mine", votes, folder=folder).poses, expected)
