"""What code beside a plan does only after its trial is one sentence wherever it happens, and is never scored."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import REPOSITORY, Place

from capsbench.cli.inputs import in_words_of_its_routing
from capsbench.errors import RoutingError
from capsbench.plan import House

PLAN = """
name: tiny
about: A routing of one's own.
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
training: {steps: 30, batch: 4, precision: float32}
cost: {batch: 4, repetitions: 20}
tasks:
  mnist: {variants: ['late:route'], test_images: 20}
"""
ROUTING = """
import torch
from capsbench.routing import Routed, length, squash

calls = 0

def route(votes):
    global calls
    calls += torch.is_grad_enabled()
    couplings = votes.new_full(votes.shape[:3], 0.1)
    poses = squash((couplings.unsqueeze(-1) * votes).sum(1))
    scores = length(poses)
    if calls > 20 and {condition}:
        {then}
    return Routed(poses, couplings, scores)
"""
IN_EVALUATION, IN_TRAINING = "not torch.is_grad_enabled()", "torch.is_grad_enabled()"
NAN = "float('nan')"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, REPOSITORY)


def write(place: Place, condition: str, then: str) -> None:
    (place.folder / "late.py").write_text(ROUTING.format(condition=condition, then=then))
    (place.folder / "tiny.yaml").write_text(PLAN)


@pytest.mark.parametrize(
    ("what", "then"),
    [
        ("scores", f"scores = scores * {NAN}"),
        ("poses", f"poses = poses.clone(); poses[0, 0, 0] = {NAN}"),
        ("couplings", f"couplings = couplings * {NAN}"),
    ],
)
def test_what_is_not_finite_in_evaluation_is_not_scored(place, what: str, then: str) -> None:
    write(place, IN_EVALUATION, then)
    said = place.capsbench("train", "tiny.yaml", "--evaluate")
    assert said.code == 2, said.text
    run = "runs/mnist/late.route/seed-0"
    how_many = "1 of" if what == "poses" else "20 of"
    assert f"{run}: the trained model's {what} are not finite for {how_many} 20 images that it is shown" in said.err
    assert said.err.count("\n") == 1
    assert list(place.root.rglob("weights.safetensors"))
    assert not [
        path for path in place.root.rglob("*") if path.suffix in (".npz", ".csv") and path.parent.name == "test"
    ]
    assert not list(place.root.rglob("metrics.json"))


def test_what_it_returns_in_another_shape_names_the_plan_and_the_row(place) -> None:
    write(place, IN_TRAINING, "scores = scores[:, :4]")
    said = place.capsbench("train", "tiny.yaml")
    assert said.code == 2, said.text
    assert said.err == (
        "capsbench: tiny.yaml: mnist/late.route: routing 'late:route': it must return scores of shape [4, 10], not "
        "[4, 4]. It did not in its trial.\n"
    )


@pytest.mark.parametrize("command", [["cost", "tiny.yaml"], ["bench", "tiny.yaml", "--variant", "late:route"]])
def test_what_it_raises_while_it_is_timed_is_a_sentence(place, command: list[str]) -> None:
    write(place, IN_TRAINING, "raise ValueError('not today')")
    said = place.capsbench(*command, "--threads", "1", "--device", "cpu")
    assert said.code == 2, said.text
    assert said.err.endswith(  # torch's profiler may have words of its own before
        "capsbench: tiny.yaml: mnist/late.route: routing 'late:route': late.py, line 14: it raised ValueError: not "
        "today. It did not in its trial.\n"
    )
    assert not list(place.root.rglob("*.json"))


def test_bench_tries_code_beside_the_plan_before_it_times_it(place) -> None:
    routing = ROUTING.format(condition="True", then="pass")
    (place.folder / "late.py").write_text(routing.replace("route(votes):", "route(votes, mode='soft'):"))
    odd = "variants:\n  x: {base: capsnet-r3, routing: 'late:route', routing_options: {mod: hard}}\ntasks:"
    (place.folder / "tiny.yaml").write_text(PLAN.replace("tasks:", odd).replace("['late:route']", "[x]"))
    said = place.capsbench("bench", "tiny.yaml", "--variant", "x", "--threads", "1", "--device", "cpu")
    assert said.code == 2, said.text
    assert said.err.startswith("capsbench: tiny.yaml: variant x: routing 'late:route': ")
    assert "mode" in said.err


def test_what_names_its_plan_is_not_told_twice() -> None:
    house = House.load(REPOSITORY / "examples" / "custom_routing" / "custom-routing.yaml")
    cells = [cell for cell in house.cells if cell.variant == "my_routing:cosine"]
    with pytest.raises(RoutingError) as error, in_words_of_its_routing(house, *cells):
        raise RoutingError(f"{house.path}: said already.")
    assert str(error.value) == f"{house.path}: said already."


def test_where_code_of_several_rows_is_timed_the_plan_is_named_alone() -> None:
    house = House.load(REPOSITORY / "examples" / "custom_routing" / "custom-routing.yaml")
    for tried, words in ((True, " It did not in its trial."), (False, "")):
        with pytest.raises(RoutingError) as error, in_words_of_its_routing(house, *house.cells, tried=tried):
            raise RoutingError("routing 'my_routing:cosine': odd.")
        assert str(error.value) == f"{house.path}: routing 'my_routing:cosine': odd.{words}"
