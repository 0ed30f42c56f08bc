"""Data that are damaged or too few are one sentence before anything trains, whichever cell asks for them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from places import REPOSITORY, Place
from rich.console import Console
from tools import mnist_folder

from capsbench.cli.inputs import try_routings
from capsbench.cli.stages import evaluate_cells, train_cells
from capsbench.errors import CapsbenchError
from capsbench.pipeline import open_house
from capsbench.plan import House, load_variants
from capsbench.plan.tuning import Tuned

PLAN = """
name: tiny
about: Two tasks on few data.
budget: reduced
seeds: [0]
uci_digits: true
width: 0.0625
training: {steps: 2, batch: 4, precision: float32}
cost: false
tasks:
  mnist: {variants: [cnn], test_images: 20}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, REPOSITORY)


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (
            "multimnist: {variants: [multimnist-cnn], train_per_class: 2, train_pairs: 1000, test_pairs: 20}",
            "tasks.multimnist.train_pairs is 1,000, but 20 training digits make at most 360 pairs of two classes",
        ),
        (
            "multimnist: {variants: [multimnist-cnn], train_pairs: 100, test_pairs: 350, test_images: 20}",
            "multimnist/multimnist-cnn: 350 pairs of 20 digits are 18 pairs a digit",
        ),
        (
            "two_digit: {variants: [two-digit-kmeans], train_images: 60, axes: {per_class: [2, 5]}, pairs: 20}",
            "two_digit/two-digit-kmeans+n5: 5 digits a class were asked for, but class",
        ),
    ],
    ids=["training pairs", "test pairs", "a row of an axis"],
)
def test_a_later_cell_s_data_are_looked_at_before_the_first_cell_trains(place, task: str, sentence: str) -> None:
    (place.folder / "tiny.yaml").write_text(f"{PLAN}  {task}\n")
    said = place.capsbench("train", "tiny.yaml")
    assert said.code == 2, said.text
    assert said.err.startswith(f"capsbench: tiny.yaml: {sentence}")
    assert said.err.count("\n") == 1
    assert not list(place.results.rglob("*"))


def test_evaluation_leaves_out_what_is_not_trained_unless_it_promises_all(place, no_data, results, capsys) -> None:
    house, source = open_house(place.plan(seeds=[0, 1], variants="[cnn]"))
    cell = house.cells[0]
    train_cells(Console(quiet=True), house, source, [replace(cell, seeds=(1,))], "cpu", 1)
    promise = place.folder / "evaluated.json"
    with pytest.raises(CapsbenchError, match=r"^mnist/cnn seed 0 is not trained with this plan"):
        evaluate_cells(Console(quiet=True), house, source, house.cells, "cpu", 1, promise)
    assert not promise.exists()
    assert not list(results.rglob("metrics.json"))
    waits = replace(cell, seeds=(2,), tuned=Tuned(place.folder / "tuned.json", "recipe", None))
    with pytest.raises(CapsbenchError, match=r"has no learning rate yet; run `capsbench tune"):
        evaluate_cells(Console(quiet=True), house, source, [waits], "cpu", 1, None)
    evaluate_cells(Console(), house, source, [*house.cells, waits], "cpu", 1, None)
    words = " ".join(capsys.readouterr().out.split())
    assert "left out: 2 runs not trained with this plan, source and data: mnist/cnn" in words
    assert [path.parent.parent.name for path in results.rglob("test/metrics.json")] == ["seed-1"]


def test_a_cell_that_trains_alone_says_the_same(place) -> None:
    task = "multimnist: {variants: [multimnist-cnn], train_pairs: 100, test_pairs: 350, test_images: 20}"
    (place.folder / "tiny.yaml").write_text(f"{PLAN}  {task}\n")
    said = place.capsbench("train", "tiny.yaml", "--task", "multimnist")
    assert said.code == 2, said.text
    assert said.err.startswith("capsbench: tiny.yaml: multimnist/multimnist-cnn: 350 pairs of 20 digits are")
    assert place.capsbench("train", "tiny.yaml", "--task", "mnist").code == 0  # whose data are there


def test_official_affnist_files_that_cannot_be_read_are_not_vouched_for(place) -> None:
    (place.folder / "data" / "affNIST").mkdir(parents=True)
    (place.folder / "data" / "MNIST").symlink_to(Path(mnist_folder()).absolute() / "MNIST")
    damaged = place.folder / "data" / "affNIST" / "test.mat"
    damaged.write_bytes(random.Random(0).randbytes(5000))
    (place.folder / "tiny.yaml").write_text(f"{PLAN}  affnist: {{variants: [cnn-valid]}}\n")
    said = place.capsbench("data", "tiny.yaml", "--done", "data.json", CAPSBENCH_DATA=str(place.folder / "data"))
    assert said.code == 2, said.text
    assert said.err.startswith(f"capsbench: {damaged} cannot be read as affNIST's MATLAB file: ")
    assert "the official files" not in said.out
    assert not (place.folder / "data.json").exists()


def test_an_option_s_value_that_does_not_fit_is_told_before_the_first_cell_trains(place) -> None:
    text = PLAN.replace("tasks:", "variants:\n  x: {base: capsnet-optimised, routing_options: {alpha: -1}}\ntasks:")
    (place.folder / "tiny.yaml").write_text(text.replace("[cnn]", "[cnn, x]"))
    said = place.capsbench("train", "tiny.yaml")
    assert said.code == 2, said.text
    assert said.err == (
        "capsbench: tiny.yaml: variant x: routing 'optimised': alpha must be a number above 0, not -1.\n"
    )
    assert not list(place.results.rglob("*"))


LATE = """
import random
import torch
from capsbench.routing import Routed, length, squash

calls = 0

def route(votes):
    global calls
    calls += torch.is_grad_enabled()
    if {condition}:
        random.choice([])  # a library's error, of the user's asking
    couplings = votes.new_full(votes.shape[:3], 0.1)
    poses = squash((couplings.unsqueeze(-1) * votes).sum(1))
    return Routed(poses, couplings, length(poses))
"""


@pytest.mark.parametrize(
    ("condition", "trained"),
    [("calls > 20", False), ("not torch.is_grad_enabled() and len(votes) > 4", True)],
    ids=["in training", "in evaluation"],
)
def test_what_a_routing_raises_after_its_trial_is_a_sentence_too(place, condition: str, trained: bool) -> None:
    (place.folder / "late.py").write_text(LATE.format(condition=condition))
    (place.folder / "tiny.yaml").write_text(PLAN.replace("[cnn]", "['late:route']").replace("steps: 2", "steps: 30"))
    said = place.capsbench("train", "tiny.yaml", "--evaluate")
    assert said.code == 2, said.text
    assert said.err == (
        "capsbench: tiny.yaml: mnist/late.route: routing 'late:route': late.py, line 12: it raised IndexError: Cannot "
        "choose from an empty sequence. It did not in its trial.\n"
    )
    assert bool(list(place.root.rglob("weights.safetensors"))) is trained


def test_a_routing_that_ends_the_process_has_not_trained(place) -> None:
    exits = LATE.replace("random.choice([])", "raise SystemExit(0)")
    (place.folder / "late.py").write_text(exits.format(condition="calls > 20"))
    (place.folder / "tiny.yaml").write_text(PLAN.replace("[cnn]", "['late:route']").replace("steps: 2", "steps: 30"))
    said = place.capsbench("train", "tiny.yaml")
    assert said.code == 2, said.text
    assert "late.py, line 12: it raised SystemExit: 0. It did not in its trial." in said.err


MODEL = """
import torch
from torch import nn

class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Linear(784, 10)

    def forward(self, images):
        assert len(images) < 20, "too many"
        return self.classes(images.flatten(1))
"""
OF_A_MODEL = "variants:\n  x: {model: 'late:Late', loss: cross-entropy}\ntasks:"


def test_what_a_model_raises_after_its_trial_is_a_sentence_too(place) -> None:
    (place.folder / "late.py").write_text(MODEL)
    text = PLAN.replace("width: 0.0625\n", "").replace("tasks:", OF_A_MODEL).replace("[cnn]", "[x]")
    (place.folder / "tiny.yaml").write_text(text)
    said = place.capsbench("train", "tiny.yaml", "--evaluate")
    assert said.code == 2, said.text
    assert said.err == (
        "capsbench: tiny.yaml: mnist/x: model 'late:Late': late.py, line 11: it raised AssertionError: too many. It "
        "did not in its trial.\n"
    )
    assert list(place.root.rglob("weights.safetensors"))


def test_what_is_wrong_with_a_model_is_told_before_another_variant_trains(place) -> None:
    (place.folder / "late.py").write_text(MODEL.replace("784, 10", "784, 9"))
    text = PLAN.replace("tasks:", OF_A_MODEL).replace("[cnn]", "[cnn, x], widths: {x: 1}")
    (place.folder / "tiny.yaml").write_text(text)
    for command in ("train", "run", "work"):
        said = place.capsbench(command, "tiny.yaml")
        assert said.code == 2, said.text
        wanted = "tiny.yaml: variant x: model 'late:Late': it must return scores [3, 10], not [3, 9].\n"
        assert said.err.endswith(wanted), said.err
    assert not list(place.results.rglob("manifest.json"))


def test_variants_of_a_plan_with_such_a_model_are_listed_and_its_mistakes_told(place) -> None:
    (place.folder / "late.py").write_text(MODEL)
    text = PLAN.replace("tasks:", OF_A_MODEL).replace("[cnn]", "[cnn, x], widths: {x: 1}")
    (place.folder / "tiny.yaml").write_text(text)
    said = place.capsbench("variants", "x", "--plan", "tiny.yaml")
    assert said.code == 0, said.text
    assert said.out.endswith("and again.\n7,850 parameters on mnist (28x28)\n")  # of other sizes nobody has asked
    assert "7,850" in place.capsbench("variants", "--plan", "tiny.yaml").out
    (place.folder / "late.py").write_text(MODEL.replace("super().__init__()", "super().__init__(None)"))
    for asked in (["x"], []):
        said = place.capsbench("variants", *asked, "--plan", "tiny.yaml")
        assert said.code == 2, said.text
        assert said.err.startswith("capsbench: model 'late:Late': late.py, line 7: it raised TypeError: ")


def test_an_error_of_the_suite_s_own_keeps_its_traceback(place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.folder / "late.py").write_text(LATE.format(condition="False"))
    (place.folder / "tiny.yaml").write_text(PLAN.replace("[cnn]", "['late:route']"))
    house, source = open_house(place.folder / "tiny.yaml")

    def wrong(*_: object, **__: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("capsbench.training.together.train_seeds", wrong)
    with pytest.raises(ValueError, match="ours"):
        train_cells(Console(quiet=True), house, source, house.cells, "cpu", 1)


def test_the_suite_s_own_variants_with_options_are_not_refused(tmp_path: Path) -> None:
    named = [n for n, spec in load_variants().items() if spec.home == "mnist" and getattr(spec, "routing_options", {})]
    assert len(named) >= 4
    plan = tmp_path / "own.yaml"
    plan.write_text(
        "budget: reduced\nseeds: [0]\nwidth: 0.0625\ntraining: {steps: 2, batch: 4}\nuci_digits: true\n"
        f"tasks:\n  mnist: {{variants: [{', '.join(named)}]}}\n"
    )
    house = House.load(plan, "uci-digits")
    try_routings(Console(quiet=True), house, house.cells)
