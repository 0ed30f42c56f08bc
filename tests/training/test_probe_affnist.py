"""The affNIST probe: when it measures, on which images, and which affNIST it is."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from stand_ins import Reader, coded_digits
from torch import Tensor

from capsbench.data import affine, affnist_sets
from capsbench.data.affnist import ImageSet, SyntheticAffnist, training_stream
from capsbench.data.affnist_sets import Part, affnist_set, evenly, held_out_set
from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.data.testing import TEST_SEED
from capsbench.errors import DataError
from capsbench.plan.tasks import AffnistTask
from capsbench.training.probe_affnist import AffnistProbe, make_probe

WRONG_AFTER_30 = torch.where(torch.arange(60) < 30, torch.arange(60), torch.arange(60) + 1) % 10
DIGITS = Digits(coded_digits(60, WRONG_AFTER_30), coded_digits(50))


@pytest.fixture(autouse=True)
def _no_official_files(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("CAPSBENCH_DATA", raising=False)
    monkeypatch.setenv("CAPSBENCH_CACHE", str(tmp_path / "cache"))


def probe(**values: object) -> AffnistProbe:
    options = AffnistTask.model_validate({"variants": ["given"], "held_out": 30, "transforms": 4, **values})
    return make_probe(options, DIGITS, training_stream(DIGITS.train, seed=0, batch=8), 8)


class Official:
    """Stands in for the official set: 50 digits under 32 transforms each, transform by transform."""

    name = "affnist"

    def __init__(self) -> None:
        self.source = torch.arange(50).repeat(32)
        self.labels = DIGITS.test.labels[self.source]

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, start: int, stop: int) -> Tensor:
        numbers = torch.arange(start, stop)  # image i holds the number i
        pixels = torch.stack([numbers // 50, numbers % 50], 1)[:, None, None].expand(-1, 1, 40, 2).repeat(1, 1, 1, 20)
        return pixels.float() * (1 / 255)


def numbers_in(part: ImageSet) -> list[int]:
    """The numbers of the images of a part of Official."""
    pixels = (part.images(0, len(part))[:, 0, 0, :2] * 255).round().long()
    return (pixels[:, 0] * 50 + pixels[:, 1]).tolist()


def test_it_measures_every_so_many_steps_and_after_the_last() -> None:
    made = probe(probe_every=20)
    assert [step for step in range(51) if made.due(step, 50)] == [20, 40, 50]
    assert [step for step in range(41) if made.due(step, 40)] == [20, 40]


@torch.no_grad()
def test_a_model_that_is_right_and_one_that_is_wrong() -> None:
    made = probe()  # the labels of the digits that are trained on are wrong: only held-out ones may be looked at
    assert made.measure(Reader(), 20) == {"held_out_accuracy": 1.0, "affnist_accuracy": 1.0}
    assert made.measure(Reader(off=1), 20) == {"held_out_accuracy": 0.0, "affnist_accuracy": 0.0}


@torch.no_grad()
def test_each_accuracy_is_of_its_own_images() -> None:
    """A run is matched by the first and says the second: the other way round it would be matched on test data."""
    digits = Digits(DIGITS.train, coded_digits(50, (torch.arange(50) + 1) % 10))
    options = AffnistTask.model_validate({"variants": ["given"], "held_out": 30, "transforms": 4})
    made = make_probe(options, digits, training_stream(digits.train, seed=0, batch=8), 8)
    assert made.measure(Reader(), 20) == {"held_out_accuracy": 1.0, "affnist_accuracy": 0.0}
    assert (len(made.held_out), len(made.affnist)) == (30, 4 * 50)


@torch.no_grad()
def test_measuring_changes_neither_the_model_nor_the_generator() -> None:
    made, model, state = probe(), Reader(), torch.get_rng_state()
    first = made.measure(model, 20)
    assert torch.equal(state, torch.get_rng_state())
    assert made.measure(model, 40) == first


@torch.no_grad()
def test_it_looks_at_as_many_images_as_the_plan_says() -> None:
    model = Reader()
    probe(probe_images=70, test_images=40).measure(model, 20)
    assert [shape[0] for shape in model.heard] == [30, 70]
    assert {shape[1:] for shape in model.heard} == {(1, 40, 40)}


@torch.no_grad()
def test_digits_beyond_the_plan_s_number_are_not_looked_at() -> None:
    labels = torch.arange(50) % 10
    labels[20:] = (labels[20:] + 1) % 10
    options = AffnistTask.model_validate({"variants": ["given"], "held_out": 30, "transforms": 4, "test_images": 20})
    digits = Digits(DIGITS.train, coded_digits(50, labels))
    made = make_probe(options, digits, training_stream(digits.train, seed=0, batch=8), 8)
    assert made.measure(Reader(), 20) == {"held_out_accuracy": 1.0, "affnist_accuracy": 1.0}


def test_more_digits_to_hold_out_than_there_are_is_one_sentence() -> None:
    with pytest.raises(DataError, match=r"^61 digits were asked for, but there are 60; .*\.$"):
        probe(held_out=61)


def test_images_are_spread_over_digits_and_transforms() -> None:
    whole = SyntheticAffnist(DIGITS.test, per_digit=8, seed=TEST_SEED)  # digit by digit
    part = evenly(whole, 50)
    assert part.source.tolist() == list(range(50))  # each digit once
    pictures = whole.images(0, 400)
    turns = [next(k for k in range(8) if torch.equal(pictures[8 * i + k], part.images(i, i + 1)[0])) for i in range(50)]
    assert min(Counter(turns)[k] for k in range(8)) >= 5  # each transform about as often: 50 / 8
    by_transform = evenly(Official(), 320)  # transform by transform
    assert Counter(n // 50 for n in numbers_in(by_transform)) == dict.fromkeys(range(32), 10)
    assert min(Counter(by_transform.source.tolist())[digit] for digit in range(50)) >= 4


def test_a_part_holds_the_pictures_of_the_whole_kept_or_made(monkeypatch) -> None:
    whole = SyntheticAffnist(DIGITS.test, per_digit=4, seed=TEST_SEED)
    monkeypatch.setattr(affnist_sets, "CHUNK", 16)
    index = torch.tensor([0, 3, 17, 18, 90, 199])
    kept = Part(whole, index)
    monkeypatch.setattr(affnist_sets, "KEPT", 0)
    made = Part(whole, index)
    for part in (kept, made):
        assert torch.equal(torch.cat([part.images(0, 4), part.images(4, 6)]), whole.images(0, 200)[index])
        assert torch.equal(part.labels, whole.labels[index])
        assert part.name == "affnist-synth"


def test_a_set_is_never_in_memory_as_a_whole(monkeypatch) -> None:
    asked = []
    render = affine.render
    monkeypatch.setattr(affine, "render", lambda images, *rest: asked.append(len(images)) or render(images, *rest))
    monkeypatch.setattr(affnist_sets, "CHUNK", 100)
    monkeypatch.setattr(affnist_sets, "KEPT", 100)
    whole = SyntheticAffnist(DIGITS.test, per_digit=32, seed=TEST_SEED)  # 1,600 images
    with torch.no_grad():
        for count in (80, 1000, 1600):  # kept, made from chunks, and all of it
            asked.clear()
            AffnistProbe(held_out_set(DIGITS.train, 1), evenly(whole, count), 1).measure(Reader(), 1)
            assert max(asked) <= 250  # a batch on the CPU
            assert sum(asked) <= 1600


def test_the_same_set_is_made_every_time_and_by_the_test_seed() -> None:
    first, again = (affnist_set(DIGITS.test, dataset="mnist", transforms=4) for _ in range(2))
    assert isinstance(first, SyntheticAffnist)
    assert isinstance(again, SyntheticAffnist)
    assert first.digest == again.digest == SyntheticAffnist(DIGITS.test, per_digit=4, seed=TEST_SEED).digest
    fewer = affnist_set(DIGITS.test, dataset="mnist", transforms=4, count=20)
    assert torch.equal(fewer.images(0, 80), first.images(0, 80))


def test_official_files_are_taken_where_they_are_and_only_for_mnist(monkeypatch, tmp_path) -> None:
    asked: list[tuple[DigitSet, object]] = []
    monkeypatch.setattr(affnist_sets, "official_affnist", lambda *where: asked.append(where) or Official())
    whole = affnist_set(DIGITS.test, dataset="mnist", transforms=32, folder=tmp_path)
    assert isinstance(whole, Official)
    assert asked == [(DIGITS.test, tmp_path)]
    assert affnist_set(DIGITS.test, dataset="uci-digits", transforms=32, folder=tmp_path).name == "affnist-synth"
    assert len(asked) == 1


def test_a_reduced_plan_takes_the_first_digits_and_transforms_of_the_official_set(monkeypatch) -> None:
    monkeypatch.setattr(affnist_sets, "official_affnist", lambda *_: Official())
    part = affnist_set(DIGITS.test, dataset="mnist", transforms=2, count=3)
    assert numbers_in(part) == [0, 1, 2, 50, 51, 52]
    assert part.source.tolist() == [0, 1, 2, 0, 1, 2]
    assert part.name == "affnist"
    with pytest.raises(DataError, match=r"^The official affNIST has 32 transforms a digit, .* asks for 33; .*\.$"):
        affnist_set(DIGITS.test, dataset="mnist", transforms=33)


def test_the_curve_is_measured_on_the_official_files_of_the_folder_and_data_set_that_it_is_told(
    monkeypatch, tmp_path
) -> None:
    """The run's digest names the files that lie there: measured on others, its curve would be called by their name."""
    asked: list[object] = []
    monkeypatch.setattr(affnist_sets, "official_affnist", lambda _, folder: asked.append(folder) or Official())
    options = AffnistTask.model_validate({"variants": ["given"], "held_out": 30, "transforms": 32})
    stream = training_stream(DIGITS.train, seed=0, batch=8)
    names = [
        make_probe(options, DIGITS, stream, 8, dataset=dataset, folder=tmp_path).affnist.name
        for dataset in ("mnist", "kmnist")
    ]
    assert (names, asked) == (["affnist", "affnist-synth"], [tmp_path])
