"""Where a measurement's figures come from: medians of given times, the batch asked for, what each call does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from capsbench.bench import grow, measure, run
from capsbench.bench.grow import BATCHES
from capsbench.bench.measure import Contender
from capsbench.bench.plain import PlainCapsNet, PlainStep
from capsbench.bench.run import PLAIN, bench, random_batch
from capsbench.errors import ResourceError
from capsbench.models.convolution import Convolution
from capsbench.models.flops import flops
from capsbench.plan import House
from capsbench.training import tiling

CPU = torch.device("cpu")
PLAN = """
budget: reduced
seeds: [0]
width: 0.125
training: {steps: 1, batch: 4}
tasks:
  mnist: {variants: [capsnet-r1]}
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """In float32 alone, so that there is one way of each."""
    for module in (grow, measure, run):
        monkeypatch.setattr(module, "precisions", lambda device: ("float32",))
    (tmp_path / "plan.yaml").write_text(PLAN)
    return House.load(tmp_path / "plan.yaml")


def test_figures_are_of_medians_of_the_batch_asked_for_and_against_the_plain_reference(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times are given: of the n-th contender three whose median is 2 n seconds, and neither first nor largest."""
    raced: list[Contender] = []

    def timed(contenders: list[Contender], rounds: int, device: torch.device, say: Any, after: Any) -> None:
        raced.extend(contenders)
        for n, contender in enumerate(contenders, start=1):
            contender.seconds = [1.0 * n, 9.0 * n, 2.0 * n]
        after(3)

    monkeypatch.setattr(run, "race", timed)
    monkeypatch.setattr(run, "copy", lambda _: Contender("copy", "copy", "float32", 0, lambda: None, moved=600))
    result = bench(house, house.cells, 3, 3, CPU, 1, lambda _: None)  # a batch that is not the plan's
    plain, plain_inference, training, inference, product, copied = raced
    assert (product.phase, copied.phase) == ("product", "copy")
    rows = {(row["name"], row["phase"]): row for row in result["rows"]}
    for n, (contender, against) in enumerate(
        ((plain, 1), (plain_inference, 2), (training, 1), (inference, 2)), start=1
    ):
        row = rows[contender.name, contender.phase]
        assert row["images_per_second"] == 3 / (2 * n)
        assert row["times_plain"] == pytest.approx(against / n)
    assert result["product_flops_per_second"] == {"float32": pytest.approx(product.flops / 10)}
    assert result["copy_bytes_per_second"] == pytest.approx(600 / 12)
    assert result["width"] == {"capsnet-r1": 0.125}
    assert all(row["peak_bytes"] > 4 * result["parameters"][row["name"]] for row in rows.values())
    given: Any = training.call
    assert [batch.shape[0] for batch in given.step.stream.batch(0)] == [3, 3, 3]
    trained: list[int] = []
    given.step, number = lambda number, rate: trained.append(number), given.number
    for _ in range(3):
        training.call()
    assert trained == [number, number + 1, number + 2]  # not the same batch, which a cache might keep


def test_a_product_and_a_copy_count_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SIDE", 32)
    for product in measure.products(CPU):
        assert product.flops == flops(product.call) == 2 * 32**3
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.zeros(10))  # in the place of 256 MiB
    assert measure.copy(CPU).moved == 2 * 10 * 4  # read and written


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_inference_is_timed_in_evaluation_mode_and_leaves_the_mode_as_it_was(precision: str, training: bool) -> None:
    """With dropout, or means of the batch, or a graph for gradients it would be another computation."""
    seen: list[tuple[bool, bool, bool]] = []

    class Asked(nn.Module):
        def forward(self, images: Tensor) -> None:
            seen.append((self.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))

    model = Asked().train(training)
    run._inference(model, torch.zeros(1), precision)()
    assert seen == [(False, False, precision == "bf16")]
    assert model.training is training


@pytest.mark.parametrize("tiled", [True, False])
def test_convolutions_are_plain_while_they_are_counted_and_as_they_train_afterwards(
    tiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "_why_not", lambda device: None)  # as on a machine whose processor has tiles
    model = nn.Sequential(Convolution(64, 64, 5, stride=2))
    model[0].tiled = tiled
    with run._plain_convolutions(model):
        assert not model[0].tiled
    assert model[0].tiled is tiled


def test_want_of_memory_is_not_taken_for_a_way_that_torch_does_not_know() -> None:
    with pytest.raises(torch.OutOfMemoryError), run._or_left_out("a way", pytest.fail):
        raise torch.OutOfMemoryError("CUDA out of memory.")


def test_the_plain_reference_s_step_is_adam_s_on_the_gradient_of_its_batch() -> None:
    model, batch = PlainCapsNet(18), random_batch(18, 2, CPU)
    twin = copy.deepcopy(model)
    step = PlainStep(model, batch)
    optimiser = torch.optim.Adam(twin.parameters(), lr=1e-3)
    for _ in range(2):
        step()
        optimiser.zero_grad()
        twin.loss(batch).backward()
        optimiser.step()
    for ours, expected in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_growth_goes_up_to_the_largest_batch_and_is_of_medians(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(contenders: list[Contender], *_: Any) -> None:
        for contender in contenders:
            contender.seconds = [1.0, 9.0, 2.0]

    monkeypatch.setattr(grow, "race", timed)
    monkeypatch.setattr(grow, "peak_bytes", lambda call, device: 7)
    monkeypatch.setattr(grow, "PIXELS", (22,))
    monkeypatch.setattr(grow, "SEEDS", (2,))
    found = grow.grow(house, house.cells[0], 3, BATCHES[1], 3, CPU, lambda _: None)
    assert {row["size"] for row in found["batch"]} == {BATCHES[0], BATCHES[1]}
    assert {row["name"] for row in found["batch"]} == {PLAIN, "capsnet-r1"}
    assert all(row["seconds"] == 2 for rows in found.values() for row in rows)
    images = {"batch": lambda size: size, "inputs": lambda _: 3, "seeds": lambda seeds: 3 * seeds}
    for what, rows in found.items():
        assert rows
        assert all(row["images_per_second"] == images[what](row["size"]) / 2 for row in rows)


@pytest.mark.parametrize(
    ("full", "sentence", "kept"),
    [
        ("batch 32", "bench --grow at batch 32: out of memory; leave out --grow.", {}),
        ("batch 64", "bench --grow at batch 64: out of memory; choose a --grow under 64.", {"batch": [32]}),
        (
            "inputs 36",
            "bench --grow at 36 input capsules, batch 3: out of memory; choose a smaller --batch.",
            {"batch": [32, 64]},
        ),
        (
            "seeds 2",
            "bench --grow with 2 seeds at once, batch 3: out of memory; choose a smaller --batch.",
            {"batch": [32, 64], "inputs": [36]},
        ),
    ],
)
def test_growth_is_kept_size_by_size_and_want_of_memory_names_the_option_that_sets_that_size(
    house: House, monkeypatch: pytest.MonkeyPatch, full: str, sentence: str, kept: dict[str, list[int]]
) -> None:
    def measured(what: str, size: int) -> list[dict[str, Any]]:
        if full == f"{what} {size}":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [{"size": size}]

    def rows(_: Any, __: Any, pixels: int, images: int, size: int, *___: Any) -> list[dict[str, Any]]:
        return measured("batch" if pixels == 28 else "inputs", size)

    monkeypatch.setattr(grow, "_rows", rows)
    monkeypatch.setattr(grow, "_seeds_at_once", lambda _, __, batch, count, *___: measured("seeds", count))
    monkeypatch.setattr(grow, "PIXELS", (22,))
    so_far: dict[str, list[int]] = {}

    def keep(found: grow.Growth) -> None:
        so_far.update({what: [row["size"] for row in rows] for what, rows in found.items() if rows})

    with pytest.raises(ResourceError) as error:
        grow.grow(house, house.cells[0], 3, 64, 3, CPU, str, keep)
    assert str(error.value) == sentence
    assert so_far == kept | ({"seeds": [1]} if full.startswith("seeds") else {})
