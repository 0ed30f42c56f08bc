"""Every shipped variant at every size it takes; what a spec says of its routing, and what it refuses."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch

import capsbench
from capsbench.data.batch import Batch
from capsbench.errors import PlanError
from capsbench.models import build_model, count_parameters
from capsbench.models.build import as_spec
from capsbench.models.capsule_layer import routing_keywords
from capsbench.plan import House, config_folder, load_variants
from capsbench.plan.routings import ROUTINGS, SWITCHES
from capsbench.plan.tasks import TASKS
from capsbench.plan.variants import CapsNetSpec, Spec
from capsbench.routing import describe, names, resolve
from capsbench.routing.checks import option_names
from capsbench.routing.energy import entropy
from capsbench.routing.parameters import parameters_of
from capsbench.training.step import Step

VARIANTS = load_variants()
ALGORITHMS = {  # of routing.md's table; `dynamic` is the reference itself
    "dynamic": ["capsnet-r3-recon"],
    "leaky": ["capsnet-leaky"],
    "uniform": ["capsnet-uniform", "capsnet-shared-uniform", "capsnet-share-all-uniform"],
    "learned": ["capsnet-learned", "capsnet-share-type-learned", "capsnet-share-all-learned"],
    "replace": ["capsnet-replace"],
    "kmeans": ["capsnet-kmeans"],
    "optimised": ["capsnet-optimised"],
    "scaled-distance": ["capsnet-scaled-distance"],
    "em-vector": ["capsnet-em-vector"],
    "self-attention": ["capsnet-self-attention", "capsnet-self-attention-average"],
    "inverted-attention": ["capsnet-inverted-attention"],
    "self-routing": ["capsnet-self-routing", "capsnet-self-routing-margin"],
}


def sizes_of(name: str) -> list[tuple[int, int]]:
    """Height and width of the images of every task that the variant fits, in training."""
    spec = VARIANTS[name]
    return sorted({t.IMAGE for t in TASKS.values() if t.model_construct(variants=[name]).unfit(spec) is None})


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains_a_step_at_every_size_it_takes(name: str) -> None:
    spec = VARIANTS[name].scaled(1 / 32)
    assert sizes_of(name)
    for height, width in sizes_of(name):
        torch.manual_seed(0)
        model = build_model(spec, height)
        images = torch.rand(4, 1, height, width)
        images[0] = 0  # a black image
        batch = Batch(images, torch.tensor([[3], [1], [4], [1]]), images)
        loss = Step(model, spec, None, 0, "float32", 1e-3).losses(batch)[0]
        loss.backward()
        assert loss.isfinite()
        for word, parameter in model.named_parameters():
            assert parameter.grad is not None, word
            assert parameter.grad.isfinite().all(), word
        assert any(parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_names_its_home_among_the_tasks_it_fits(name: str) -> None:
    assert TASKS[VARIANTS[name].home].IMAGE in sizes_of(name)


def test_every_algorithm_is_a_variant_that_differs_from_the_paper_s_in_nothing_else() -> None:
    assert set(ALGORITHMS) == set(names())
    reference = VARIANTS["capsnet-r3-recon"].model_dump()
    routed = {*CapsNetSpec.OF_THE_ROUTING, "routing", "loss"}
    for routing, variants in ALGORITHMS.items():
        spec = VARIANTS[variants[0]]
        assert spec.routing == routing
        changed = {k for k, v in spec.model_dump(exclude=set(spec.WORDS)).items() if v != reference[k]}
        assert changed <= routed, (routing, changed)
        assert {VARIANTS[variant].routing for variant in variants} == {routing}


def test_a_loss_of_its_own_comes_with_the_margin_version_where_that_is_defined() -> None:
    own = {
        name: spec.loss for name, spec in VARIANTS.items() if isinstance(spec, CapsNetSpec) and spec.loss != "margin"
    }
    assert own == {"capsnet-inverted-attention": "cross-entropy", "capsnet-self-routing": "nll"}
    assert VARIANTS["em-matrix"].loss == "spread"
    assert {VARIANTS[f"{name}-margin"].loss for name in ("capsnet-self-routing", "em-matrix")} == {"margin"}
    with pytest.raises(
        PlanError, match="inverted-attention scores with logits, since its capsules all have the same length"
    ):
        as_spec({"base": "capsnet-inverted-attention", "loss": "margin"})


def test_what_specs_know_of_a_routing_is_what_its_code_says() -> None:
    assert set(ROUTINGS) == set(names())
    for name, facts in ROUTINGS.items():
        parameters = inspect.signature(resolve(name)).parameters
        assert facts.passes == describe(name).passes, name
        assert facts.takes == SWITCHES & parameters.keys(), name
        assert facts.options == set(option_names(resolve(name))) - SWITCHES, name
        assert facts.squash == (parameters["squash"].default if "squash" in parameters else None), name
        by_input = {word: p for word, p in parameters_of(resolve(name)).items() if "inputs" in p.shape}
        assert facts.by_input == {word for word, p in by_input.items() if not p.optional}, name
        assert {word for word, p in by_input.items() if p.optional} <= {"prior"}, name  # as trained_by_input has it
        if "normaliser" in parameters:
            assert facts.normaliser == parameters["normaliser"].default, name
        else:
            assert facts.normaliser == ("leaky" if name == "leaky" else None), name


def test_another_routing_brings_its_own_passes_and_squash() -> None:
    spec = as_spec({"base": "capsnet-squash-tanh", "routing": "kmeans"})
    assert (spec.squash, spec.iterations) == ("half", 3)
    assert as_spec({"base": "capsnet-squash-tanh", "iterations": 7}).squash == "tanh"
    assert (
        as_spec({"base": "capsnet-r3-recon", "routing": "inverted-attention", "loss": "cross-entropy"}).iterations == 2
    )
    assert as_spec({"base": "capsnet-optimised", "routing": "kmeans"}).routing_options == {}
    assert as_spec({"base": "capsnet-r3-recon", "routing": "kmeans", "squash": "exp"}).squash == "exp"
    assert build_model({"base": "capsnet-r3", "routing": "kmeans"}).digit_caps.routing.options["squash"] == "half"


MISTAKES = [
    ({"routing": "dynamc"}, "there is no routing 'dynamc'; did you mean 'dynamic'?"),
    ({"routing": "a b:c"}, "there is no routing 'a b:c'; outside the package it is my_file:my_routing."),
    ({"routing": "uniform", "iterations": 3}, "routing uniform makes one pass: iterations must be 1, not 3."),
    ({"routing": "em-vector", "squash": "tanh"}, "routing em-vector takes no squash, which is 'tanh' here."),
    ({"routing": "uniform", "normaliser": "leaky"}, "routing uniform takes no normaliser, which is 'leaky' here."),
    ({"routing": "leaky", "normaliser": "softmax"}, "routing leaky takes no normaliser, which is 'softmax' here."),
    ({"routing": "learned", "detach_inner": True}, "routing learned takes no detach_inner, which is True here."),
    ({"routing": "self-routing", "bias": "official"}, "routing self-routing takes no bias, which is 'official' here."),
    ({"routing_options": {"alpa": 1}}, "routing_options: routing dynamic takes no option 'alpa'; known: prior."),
    ({"base": "capsnet-optimised", "routing_options": {"alpa": 1}}, "no option 'alpa'; did you mean 'alpha'?"),
    ({"routing": "scaled-distance", "routing_options": {"prior": True}}, "no option 'prior'; it takes none."),
    ({"routing_options": {"squash": "tanh"}}, "routing_options names squash, which belongs beside routing"),
    ({"loss": "nll"}, "loss nll takes scores that sum to 1, which self-routing produces and dynamic does not."),
    ({"base": "cnn", "loss": "nll"}, "loss is 'nll'"),
    ({"base": "em-matrix", "loss": "cross-entropy"}, "loss is 'cross-entropy'; known: margin, spread."),
    ({"base": "em-matrix", "capsule_types": [16]}, "capsule_types is [16]"),
    ({"base": "cnn", "conv_dropout": 0.25}, "conv_dropout does nothing, since it comes after each pooling, and pools"),
    ({"base": "cnn", "pools": [1, 1, 1], "conv_dropout": 0.25}, "conv_dropout does nothing"),
    ({"base": "cnn", "down_weight": 0.25}, "down_weight does nothing, since loss cross-entropy has no lambda;"),
    ({"base": "resnet-flops", "down_weight": 0.25}, "down_weight does nothing"),
    ({"base": "em-matrix", "down_weight": 0.25}, "down_weight does nothing, since loss spread has no lambda"),
    ({"base": "cnn", "dim": 8}, "dim does nothing, since without reconstruction or scores: length no class has"),
    ({"base": "cnn", "mask": "agnostic"}, "mask does nothing, since reconstruction is none"),
    ({"base": "capsnet-r3", "decoder": [8]}, "decoder does nothing, since reconstruction is none"),
    ({"reconstruction": "none", "mask": "agnostic"}, "mask does nothing, since reconstruction is none"),
    ({"iterations": 1, "detach_inner": True}, "detach_inner does nothing, since of one pass there are no others"),
    ({"base": "two-digit-dynamic", "iterations": 1, "detach_inner": True}, "detach_inner does nothing"),
    ({"base": "two-digit-average-mlp", "routing": "kmeans"}, "routing does nothing, since it is of head: capsules"),
    ({"base": "two-digit-average-mlp", "iterations": 5}, "iterations does nothing, since it is of head: capsules"),
    ({"base": "two-digit-average-mlp", "dim": 8}, "dim does nothing, since scores: classes gives each class a number"),
    ({"base": "two-digit-kmeans", "pooling": "sum"}, "pooling does nothing, since it is of head: pool"),
    ({"base": "two-digit-kmeans", "dense": [64]}, "dense does nothing, since it is of head: pool"),
    ({"base": "two-digit-kmeans", "routing": "learned"}, "routing learned trains prior for each lower capsule, so it"),
    ({"base": "two-digit-kmeans", "routing": "self-attention"}, "routing self-attention trains prior for each lower"),
    ({"base": "two-digit-kmeans", "routing": "self-routing"}, "self-routing trains gate_bias and gate_weight for each"),
    ({"base": "two-digit-kmeans", "routing_options": {"prior": 0}}, "routing kmeans trains prior for each lower"),
]


@pytest.mark.parametrize(("values", "sentence"), MISTAKES, ids=lambda value: str(value)[:50])
def test_a_choice_that_would_do_nothing_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        as_spec({"base": "capsnet-r3-recon", **values})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "idle"),
    [
        ({"base": "capsnet-agnostic", "reconstruction": "none"}, {"mask": "agnostic"}),
        ({"base": "cnn-pool", "pools": []}, {"conv_dropout": 0.25}),
        ({"base": "capsnet-detach-inner", "iterations": 1}, {"detach_inner": True}),
        ({"base": "two-digit-kmeans", "head": "pool"}, {"routing": "kmeans"}),
        ({"base": "cnn", "mask": "class", "down_weight": 0.5}, {"mask": "class"}),  # the defaults may be written out
    ],
)
def test_what_a_variant_has_of_its_base_may_be_put_out_of_work(values, idle) -> None:
    spec = as_spec(values)
    assert {key: getattr(spec, key) for key in idle} == idle
    assert idle.keys() <= spec.idle().keys()


def losses(spec: Spec) -> tuple[int, torch.Tensor]:
    """How many trained numbers the spec's model has, and its losses of one batch before any training."""
    torch.manual_seed(0)
    model = build_model(spec, 28)
    images = torch.rand(4, 1, 28, 28)
    batch = Batch(images, torch.tensor([[3], [1], [4], [1]]), images)
    torch.manual_seed(1)  # of dropout
    return count_parameters(model), Step(model, spec, None, 0, "float32", 1e-3).losses(batch)


def test_a_key_that_does_nothing_makes_the_same_model_and_loss() -> None:
    others = {
        "down_weight": 2.0, "decoder": [8], "mask": "agnostic", "dim": 8, "conv_dropout": 0.5, "pooling": "max",
        "dense": [4], "detach_inner": True, "routing": "leaky", "iterations": 2, "bias": "official",
        "routing_options": {"prior": True}, "squash": "tanh", "normaliser": "sigmoid",
    }  # fmt: skip
    tried = set()
    for name in ("cnn", "capsnet-r1", "resnet-flops", "em-matrix", "two-digit-kmeans", "two-digit-average-mlp"):
        spec = VARIANTS[name].scaled(1 / 16)
        count, loss = losses(spec)
        for key in spec.idle().keys() & others.keys():
            other_count, other_loss = losses(spec.model_copy(update={key: others[key]}))
            assert other_count == count, (name, key)
            # one pass with detach_inner goes by other code, which rounds otherwise
            torch.testing.assert_close(other_loss, loss, rtol=1e-5, atol=0, msg=f"{name} {key}")
            tried.add(key)
    assert tried == set(others)


def scores(values: dict[str, object]) -> torch.Tensor:
    torch.manual_seed(0)
    model = build_model({"channels": 16, "primary_types": 2, "decoder": [8, 16], **values})
    return model(torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))).scores


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"base": "capsnet-leaky"}, {"base": "capsnet-r3-recon", "normaliser": "leaky"}, True),
        ({"base": "capsnet-uniform"}, {"base": "capsnet-r1-recon"}, True),
        ({"base": "capsnet-learned"}, {"base": "capsnet-r1-recon"}, True),  # at the start: its prior is zero
        ({"base": "capsnet-prior"}, {"base": "capsnet-r3-recon"}, True),  # likewise
        ({"base": "capsnet-optimised", "routing_options": {"alpha": 1.0}}, {"base": "capsnet-kmeans"}, True),
        ({"base": "capsnet-optimised"}, {"base": "capsnet-kmeans"}, False),
        ({"base": "capsnet-replace"}, {"base": "capsnet-r3-recon"}, False),
        ({"base": "capsnet-sigmoid"}, {"base": "capsnet-r3-recon"}, False),
        ({"base": "capsnet-squash-last"}, {"base": "capsnet-r3-recon"}, False),
        ({"base": "capsnet-squash-half", "primary_squash": "hinton"}, {"base": "capsnet-r3-recon"}, False),
        ({"base": "capsnet-r3-recon", "iterations": 10}, {"base": "capsnet-r3-recon", "iterations": 5}, False),
    ],
)
def test_variants_that_are_equal_by_definition_and_others_that_are_not(one, other, equal: bool) -> None:
    assert torch.allclose(scores(one), scores(other), rtol=1e-5 if equal else 1e-6, atol=0) is equal


def test_what_a_routing_is_told_is_read_from_its_code(monkeypatch) -> None:
    specs = [spec for spec in VARIANTS.values() if isinstance(spec, CapsNetSpec)]
    assert {spec.routing for spec in specs} == set(ROUTINGS)
    told = [routing_keywords(spec) for spec in specs]
    for spec, keywords in zip(specs, told, strict=True):
        assert keywords.keys() & {"squash", "normaliser"} == ROUTINGS[spec.routing].takes & {"squash", "normaliser"}
    monkeypatch.setattr("capsbench.plan.routings.ROUTINGS", {})
    monkeypatch.setattr("capsbench.plan.routed.ROUTINGS", {})
    assert [routing_keywords(spec) for spec in specs] == told


def test_no_code_that_makes_weights_reads_the_plan_s_table_of_routings() -> None:
    # capsbench.plan stands outside the digest of a run's source: a table there must not decide a number
    package = Path(capsbench.__file__).parent
    for stage in ("data", "routing", "models", "training"):
        for path in (package / stage).rglob("*.py"):
            tree = ast.walk(ast.parse(path.read_text()))
            assert "ROUTINGS" not in {getattr(node, "id", getattr(node, "attr", None)) for node in tree}, path


@pytest.mark.parametrize(("name", "least"), [("capsnet-self-attention", 0.999), ("capsnet-self-attention-average", 1)])
def test_self_attention_over_1152_inputs_does_not_begin_saturated(name: str, least: float) -> None:
    """Published for 16 inputs: over so many the sum of votes still leaves couplings soft, and the mean equal."""
    torch.manual_seed(0)
    model = build_model(name, 28).eval()
    with torch.inference_mode():
        couplings = model(torch.rand(4, 1, 28, 28)).couplings
    assert couplings.shape == (4, 1152, 10)
    assert entropy(couplings, normalised=True).mean() >= least - 1e-6


@pytest.mark.parametrize(
    ("task", "name", "least", "most"),
    [
        ("affnist", "cnn-valid", 0.999, 1.001),
        ("affnist", "cnn-pool", 0.998, 1.001),
        ("affnist", "convnet-avg", 0.20, 0.21),  # it has no dense layer to choose
        ("multimnist", "multimnist-cnn", 0.999, 1.001),
    ],
)
def test_the_night_s_cnns_have_to_capsnet_the_parameters_that_they_have_at_full_width(
    task: str, name: str, least: float, most: float
) -> None:
    """config/overnight.yaml: a width scales no dense layer, so its plan chooses them."""
    house = House.load(config_folder() / "overnight.yaml")
    size = TASKS[task].IMAGE[0]
    eighth = next(label for label in house.plan.tasks.given()[task].variants if label.startswith(name))

    def to_capsnet(spec: Spec | str, capsnet: Spec | str) -> float:
        with torch.device("meta"):
            one, other = (count_parameters(build_model(each, size)) for each in (spec, capsnet))
        return one / other

    ours = to_capsnet(house.cell(task, eighth).spec, house.cell(task, "capsnet-r3-recon").spec)
    assert least <= ours / to_capsnet(name, "capsnet-r3-recon") <= most
