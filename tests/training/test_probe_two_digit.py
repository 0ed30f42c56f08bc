"""The two-digit probe: when it measures, what it measures, and what it refuses before training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from stand_ins import Reader, coded_digits, spec_of

from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.data.source import DataSource
from capsbench.data.testing import TEST_SEED
from capsbench.data.two_digit import SqueezedPairs, TwoDigitPairs, training_stream
from capsbench.errors import DataError
from capsbench.plan import House, load_variants
from capsbench.plan.tasks import TwoDigitTask
from capsbench.training.probe_two_digit import AXES, TwoDigitProbe, make_pairs, make_probe, scored_pairs, takes_any_size
from capsbench.training.run import Setting, train_run
from capsbench.training.step import Step

DIGITS = Digits(coded_digits(100), coded_digits(60))


def options(**values: object) -> TwoDigitTask:
    return TwoDigitTask.model_validate({"variants": ["given"], "pairs": 80, **values})


def probe(values: TwoDigitTask, digits: Digits = DIGITS, batch: int = 32) -> TwoDigitProbe:
    return make_probe(values, digits, training_stream(digits.train, seed=0, batch=batch), batch)


@pytest.mark.parametrize(
    ("steps", "last", "expected"),
    [
        (10, 2, [7, 10]),  # 3 epochs of 100 in batches of 32 end after 4, 7 and 10 steps
        (10, 1, [10]),
        (10, 5, [4, 7, 10]),  # fewer epochs than asked for
        (8, 2, [7, 8]),  # it ends inside the third epoch
        (2, 2, [2]),  # half an epoch
        (4, 5, [4]),
    ],
)
def test_it_measures_at_the_ends_of_the_last_epochs(steps: int, last: int, expected: list[int]) -> None:
    made = probe(options(last_epochs=last))
    assert [step for step in range(steps + 1) if made.due(step, steps)] == expected


def test_an_epoch_that_fills_its_batches_ends_where_the_next_begins() -> None:
    made = TwoDigitProbe({}, size=96, batch=32, last=2)
    assert [step for step in range(13) if made.due(step, 12)] == [9, 12]
    assert [made.measure(Reader(), step)["epoch"] for step in (3, 9, 12)] == [1.0, 3.0, 4.0]


def test_the_epoch_of_a_row_is_whole_where_an_epoch_ends() -> None:
    made = TwoDigitProbe({}, size=100, batch=32, last=2)
    assert [made.measure(Reader(), step)["epoch"] for step in (4, 7, 10, 8)] == [1.0, 2.0, 3.0, 2.56]


@torch.no_grad()
def test_a_model_that_is_right_and_one_that_is_wrong() -> None:
    made = probe(options())
    right, wrong = made.measure(Reader(pairs=True), 4), made.measure(Reader(off=1, pairs=True), 4)
    names = {f"{c}.{m}" for c in ("56x28", "28x56") for m in ("top2_accuracy", "both_above_half_accuracy")}
    assert right == {"epoch": 1.0} | dict.fromkeys(names, 1.0)
    assert wrong == {"epoch": 1.0} | dict.fromkeys(names, 0.0)


@torch.no_grad()
def test_a_faint_second_digit_counts_for_one_rule_alone() -> None:
    row = probe(options()).measure(Reader(pairs=True, high=0.45), 4)  # the higher score is then 0.6, the second 0.45
    assert (row["56x28.top2_accuracy"], row["56x28.both_above_half_accuracy"]) == (1.0, 0.0)


@torch.no_grad()
def test_scores_with_a_link_of_their_own_are_held_against_one_half_as_probabilities() -> None:
    logits = Reader(pairs=True, spec=spec_of("two-digit", head="pool", loss="sigmoid-cross-entropy"), high=0.45)
    row = probe(options()).measure(logits, 4)  # the second digit's logit is 0.45, its probability 0.61
    assert row["56x28.both_above_half_accuracy"] == 1.0


@torch.no_grad()
def test_only_a_model_of_a_fixed_size_gets_its_pairs_resized() -> None:
    free, fixed = Reader(), Reader(spec=spec_of("capsnet"))
    for model in (free, fixed):
        probe(options()).measure(model, 4)
    assert [shape[1:] for shape in free.heard] == [(1, 56, 28), (1, 28, 56)]
    assert [shape[1:] for shape in fixed.heard] == [(1, 28, 28), (1, 28, 28)]


@torch.no_grad()
def test_a_plan_that_squeezes_shows_every_model_what_one_of_a_fixed_size_sees() -> None:
    whole, squeezed = (make_pairs(options(squeezed=asked), DIGITS.test) for asked in (False, True))
    free, fixed = Reader(), Reader(spec=spec_of("capsnet"))
    for condition, pairs in squeezed.items():
        (seen, _), *_ = scored_pairs(free, pairs)
        (of_fixed, _), *_ = scored_pairs(fixed, whole[condition])
        (again, _), *_ = scored_pairs(fixed, pairs)  # squeezing what is squeezed changes nothing
        assert seen.images.shape[1:] == (1, 28, 28)
        for other in (of_fixed, again):
            assert all(torch.equal(a, b) for a, b in zip(seen, other, strict=True))


def test_the_pairs_are_made_of_the_test_digits_that_the_plan_names() -> None:
    pairs = make_pairs(options(test_images=30), DIGITS.test)
    bases = {name: of.make(torch.arange(80)).bases for name, of in pairs.items()}
    assert int(bases["56x28"].max()) == 29
    assert torch.equal(bases["56x28"], bases["28x56"])  # the same digits in both layouts


@pytest.mark.parametrize("squeezed", [False, True])
def test_the_pairs_are_those_of_the_test_seed(squeezed: bool) -> None:
    """Every run is tested on the same ones, and no trial of a tuning on any of them."""
    kind, some = SqueezedPairs if squeezed else TwoDigitPairs, torch.arange(80)
    for condition, pairs in make_pairs(options(squeezed=squeezed), DIGITS.test).items():
        expected = kind(DIGITS.test, seed=TEST_SEED, size=80, axis=AXES[condition])
        assert torch.equal(pairs.make(some).images, expected.make(some).images)


def test_too_few_digits_for_the_pairs_are_one_sentence() -> None:
    one_class = DigitSet(DIGITS.test.images, torch.zeros(60, dtype=torch.int64))
    for values, digits in ((options(pairs=60 * 60), DIGITS), (options(), Digits(DIGITS.train, one_class))):
        with pytest.raises(DataError, match=r"^[^\n]+(fewer pairs or use more digits|use more digits)\.$"):
            probe(values, digits)


def test_that_sentence_comes_before_the_first_step(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "few.yaml"
    plan.write_text(
        "budget: reduced\nseeds: [0]\ntraining: {steps: 2, precision: float32}\ntasks:\n"
        "  two_digit: {variants: [two-digit-average-mlp], pairs: 5000}\n"
    )
    house = House.load(plan)
    source = DataSource("mnist", None, "MNIST", "none")
    setting = Setting(
        house, house.cells[0], DIGITS, {"name": "mnist", "badge": source.badge, "digest": "d"},
        torch.device("cpu"), 1, lambda _: None,
    )  # fmt: skip
    monkeypatch.setattr(Step, "__call__", lambda *_: pytest.fail("a step was trained"))
    with pytest.raises(DataError, match="fewer pairs or use more digits"):
        train_run(setting, 0, lambda *_: None)


def test_what_a_spec_says_of_other_sizes_is_what_the_probe_goes_by() -> None:
    specs = load_variants().values()
    assert [spec.takes_any_size() for spec in specs] == [takes_any_size(spec) for spec in specs]
    assert {spec.takes_any_size() for spec in specs} == {True, False}
