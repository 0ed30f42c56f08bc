"""A mistake becomes one sentence that names the routing and what was expected."""

from __future__ import annotations

import re
import sys

import pytest
import torch
from test_routing_layer import OUTSIDE, SIZES

from capsbench.errors import RoutingError
from capsbench.routing import Parameter, build_routing, resolve, route, trained
from capsbench.routing.em_matrix import em_matrix

VOTES = torch.randn(3, 7, 4, 5, generator=torch.Generator().manual_seed(0))
CHILDREN = torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(1))


def sentence(call, *args, **keywords) -> str:
    with pytest.raises(RoutingError) as caught:
        call(*args, **keywords)
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("dynamic", {"normalizer": "leaky"}, "it takes no option 'normalizer'; did you mean 'normaliser'?"),
        ("uniform", {"normaliser": "leaky"}, "it takes no option 'normaliser'; known: bias, squash."),
        ("dynamic", {"normaliser": "softmx"}, "normaliser 'softmx' is not known; did you mean 'softmax'?"),
        ("leaky", {"squash": "tan"}, "squash kind 'tan' is not known; did you mean 'tanh'?"),
        ("optimised", {"alpha": 0}, "alpha must be a number above 0, not 0."),
        ("optimised", {"alpha": "1"}, "alpha must be a number above 0, not '1'."),
        ("dynamic", {"bias": torch.zeros(5, 4)}, "bias must have the shape [outputs 4, dim 5], not [5, 4]."),
        ("dynamic", {"bias": "yes"}, "bias must be a tensor [outputs 4, dim 5], a number or true, not 'yes'."),
        ("learned", {"prior": torch.zeros(4, 7)}, "prior must have the shape [inputs 7, outputs 4], not [4, 7]."),
        ("em-vector", {}, "the length of a lower capsule is its activation: give children=[B, I, d]."),
        ("self-routing", {}, "it gates the lower capsules, so it needs them: give children=[B, I, d]."),
        ("dynamic", {"iterations": 0}, "iterations must be a whole number, at least 1, not 0."),
        ("uniform", {"iterations": -1}, "iterations must be a whole number, at least 1, not -1."),
        ("dynamic", {"iterations": 2.0}, "iterations must be a whole number, at least 1, not 2.0."),
        ("dynamic", {"votes": VOTES[0]}, "votes must be floating point [B, I, J, D], not torch.float32 [7, 4, 5]."),
        (
            "em-vector",
            {"children": CHILDREN[:2]},
            "children must be [B, I, d] with the votes' [B, I] = [3, 7], not [2, 7, 6].",
        ),
        (
            "dynamic",
            {"votes": VOTES * float("nan")},
            "it returned poses with values that are not finite, as its votes do.",
        ),
    ],
)
def test_a_mistake_in_a_call(name, options, expected):
    assert sentence(route, name, **({"votes": VOTES} | options)) == f"routing {name!r}: {expected}"


def test_a_value_is_checked_on_demand_only():
    assert route("dynamic", VOTES * float("nan"), check_values=False).poses.isnan().any()
    layer = build_routing("dynamic", **SIZES)
    assert layer(VOTES * float("nan")).poses.isnan().any()
    assert "not finite" in sentence(layer, VOTES * float("nan"), check_values=True)


def test_a_mistake_in_a_layer():
    assert sentence(build_routing, "kmeans", **SIZES, alpha=2) == (
        "routing 'kmeans': it takes no option 'alpha'; known: bias, detach_inner, normaliser, prior, squash."
    )
    assert sentence(build_routing, "learned", **(SIZES | {"inputs": None})) == (
        "routing 'learned': parameter 'prior' needs a fixed number of inputs, which this layer does not have."
    )
    assert "not known; did you mean 'tanh'" in sentence(build_routing("dynamic", **SIZES, squash="tan"), VOTES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dynamc", "is neither a registered name nor of the form my_file:my_routing; did you mean 'dynamic'?"),
        ("a b:c", "is neither a registered name nor of the form my_file:my_routing."),
        ("../x:y", "is neither a registered name nor of the form my_file:my_routing."),
        ("x:y:z", "is neither a registered name nor of the form my_file:my_routing."),
        ("outside_routing:", "is neither a registered name nor of the form my_file:my_routing."),
        ("no_such_file:mine", "there is no module 'no_such_file'"),
        ("outside_routing:my_routin", "outside_routing has no 'my_routin'; did you mean 'my_routing'?"),
        ("outside_routing:number", "must be a function or a subclass of torch.nn.Module, not 3."),
        ("broken_routing:mine", "importing broken_routing failed with SyntaxError: "),
        ("raising_routing:mine", "importing raising_routing failed with ValueError: what a day."),
        ("needing_routing:mine", "needing_routing needs the module 'no_such_module', which is not there."),
        ("random:mine", "there is another module named random; give the file another name."),
        ("numpy:mine", "there is another module named numpy; give the file another name."),
    ],
)
def test_a_name_that_leads_nowhere(name, expected, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "outside_routing", raising=False)
    files = {
        "outside_routing": OUTSIDE,
        "broken_routing": "def mine(votes:\n",
        "raising_routing": "raise ValueError('what a day')\n",
        "needing_routing": "import no_such_module\n",
        "random": "def mine(votes):\n    return votes\n",
        "numpy": "def mine(votes):\n    return votes\n",
    }
    for stem, text in files.items():
        (tmp_path / f"{stem}.py").write_text(text)
    text = sentence(resolve, name, tmp_path)
    assert text.startswith(f"routing {name!r}")
    assert expected in text
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("wrong_shape", {}, "it must return scores of shape [3, 4], not [3, 7, 4, 5]."),
        ("no_routing", {}, "must return capsbench.routing.Routed(poses, couplings, scores), but Tensor has no tensor"),
        ("not_a_number", {}, "returned poses with values that are not finite, although its votes are finite."),
        ("my_routing", {"sharpnes": 1}, "it takes no option 'sharpnes'; did you mean 'sharpness'?"),
        ("no_routing", {"sharpness": 1}, "it takes no option 'sharpness'; it takes none."),
        ("needy", {}, "it needs the option 'strength'."),
        ("Module", {"begin": 1}, "it takes no option 'begin'; known: start."),
    ],
)
def test_a_routing_from_outside_that_does_not_fit(name, options, expected, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "outside_routing", raising=False)
    (tmp_path / "outside_routing.py").write_text(OUTSIDE)
    text = sentence(route, f"outside_routing:{name}", VOTES, children=CHILDREN, folder=tmp_path, **options)
    assert text.startswith(f"routing 'outside_routing:{name}': ")
    assert expected in text


def test_shapes_of_em_matrix():
    votes = torch.randn(2, 3, 4, 16)
    activations = torch.rand(2, 3)
    assert "votes must be [B, I, J, 16]" in sentence(em_matrix, votes[..., :15], activations)
    assert "activations must be [B, I] = [2, 3], not [3, 2]." in sentence(em_matrix, votes, activations.T)
    assert "iterations must be" in sentence(em_matrix, votes, activations, iterations=0)


def test_a_parameter_of_an_unknown_size():
    with pytest.raises(RoutingError, match=re.escape("has the unknown size 'output'; did you mean 'outputs'?")):
        trained(bias=Parameter(("output",)))
