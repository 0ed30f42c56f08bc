"""MultiMNIST evaluation: both errors, their bins, the drawings, and what is stored."""

from __future__ import annotations

import signal
from collections.abc import Callable

import numpy as np
import pytest
import torch
from stand_ins import Reader, coded_digits, spec_of, trained
from torch import Tensor

from capsbench.data.digits import Digits
from capsbench.data.multimnist import PairSet
from capsbench.data.testing import TEST_SEED
from capsbench.errors import DataError, ResourceError
from capsbench.evaluation import multimnist
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.drawing import UNITS
from capsbench.evaluation.multimnist import evaluate
from capsbench.evaluation.parts import forget
from capsbench.models.output import Output
from capsbench.plan.tasks import MultimnistTask
from capsbench.training import scoring
from capsbench.training.probe_multimnist import make_pairs

DIGITS = Digits(coded_digits(100), coded_digits(60))
WITH_DECODER = spec_of("capsnet", reconstruction="paper")


class Oracle(Reader):
    """Knows every pair: its capsules are the digits as they stand, its decoder draws them; it can name wrong ones."""

    def __init__(self, pairs: PairSet, off: int = 0, wrong: int = 0) -> None:
        super().__init__(off, pairs=True, spec=WITH_DECODER)
        self.known, self.wrong = pairs.make(torch.arange(pairs.size)), wrong

    def forward(self, images: Tensor) -> Output:
        scores = super().forward(images).scores
        which = (images[:, None] == self.known.images).all(-1).all(-1).all(-1).int().argmax(1)  # [B]
        scores[which < self.wrong] = scores[which < self.wrong].roll(1, 1)
        poses = torch.zeros(len(images), 10, 36 * 36)
        rows = torch.arange(len(images))[:, None]
        poses[rows, self.known.labels[which]] = self.known.digits[which].flatten(2)
        return Output(scores, poses)

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        return poses[torch.arange(len(poses)), classes].view(-1, 36, 36)


class Says(Reader):
    """Gives the same two digits for everything."""

    def forward(self, images: Tensor) -> Output:
        return Output(torch.tensor([0.9, 0.8, *[0.1] * 8]).expand(len(images), -1).clone(), None)


def of(model: Reader, tmp_path, **options: object) -> Condition:
    run = trained("multimnist", model, DIGITS, tmp_path, **{"test_pairs": 80, "segmentation_pairs": 50, **options})
    with torch.inference_mode():
        (condition,) = evaluate(run)
    return condition


def pairs(**options: object) -> PairSet:
    given = MultimnistTask.model_validate({"variants": ["given"], "test_pairs": 80, **options})
    return make_pairs(given, DIGITS.test)


@pytest.mark.parametrize(("off", "expected"), [(0, 0.0), (1, 100.0)])
def test_a_model_that_is_right_and_one_that_is_wrong(tmp_path, off: int, expected: float) -> None:
    found = of(Reader(off, pairs=True), tmp_path)
    assert found.metrics["error"] == (expected, "%")
    assert set(found.metrics) == {"error", "half_credit_error"}
    assert (found.name, found.images, found.dataset) == ("test", 80, None)


def test_half_credit_is_a_figure_of_its_own(tmp_path) -> None:
    found = of(Reader(pairs=True, high=0.05), tmp_path)  # the second class is heard, the first never
    assert found.metrics["error"] == (100.0, "%")
    half, unit = found.metrics["half_credit_error"]
    assert 50 <= half < 60
    assert unit == "%"


def test_a_perfect_decoder(tmp_path) -> None:
    found = of(Oracle(pairs()), tmp_path)
    values = {name: value for name, (value, _) in found.metrics.items()}
    for mask in ("true", "predicted"):
        assert values[f"mse_{mask}"] == 0
        for measure in ("ssim", "dice", "iou", "dice_ink", "iou_ink"):
            assert values[f"{measure}_{mask}"] == pytest.approx(1)
        assert values[f"assignment_accuracy_{mask}"] == 100
    assert values["leakage"] == 0
    assert values["baseline_assignment_accuracy"] == 50
    assert 0 < values["baseline_iou_ink"] < 1
    made = pairs().make(torch.arange(50))
    assert values["baseline_mse"] == pytest.approx(float((made.images - made.digits).square().mean()))
    assert {name: unit for name, (_, unit) in found.metrics.items() if name in UNITS}.items() <= UNITS.items()


def test_a_wrong_answer_spoils_what_is_drawn_for_it_and_nothing_else(tmp_path) -> None:
    found = of(Oracle(pairs(), off=1), tmp_path)
    assert found.metrics["error"][0] == 100
    assert found.metrics["iou_ink_true"][0] == 1
    assert found.metrics["iou_ink_predicted"][0] < 0.2  # neighbouring classes: sometimes one of both is there


def test_everything_is_binned_by_overlap(tmp_path) -> None:
    frame = of(Oracle(pairs()), tmp_path).frames["overlap"]
    assert frame.loc[frame["metric"] == "error", "pairs"].sum() == 80
    assert frame.loc[frame["metric"] == "mse_true", "pairs"].sum() == 50
    assert {"error", "half_credit_error", "ssim_true", "ssim_predicted", "baseline_ssim", "leakage"} <= set(
        frame["metric"]
    )
    plain = of(Reader(pairs=True), tmp_path).frames["overlap"]
    assert set(plain["metric"]) == {"error", "half_credit_error"}


def test_an_error_is_binned_by_the_overlap_of_its_own_pair(tmp_path) -> None:
    frame = of(Oracle(pairs(), wrong=40), tmp_path).frames["overlap"]
    shifts = pairs().make(torch.arange(80)).shifts.double()
    covered = (28 - (shifts[:, 0] - shifts[:, 1]).abs()).prod(1).numpy() / 28**2
    error = np.where(np.arange(80) < 40, 100.0, 0.0)  # of the first 40 both digits are called by the next class
    rows = frame[frame["metric"] == "error"]
    assert len(rows) > 2
    for row in rows.itertuples():
        here = (covered >= row.overlap_low) & ((covered < row.overlap_high) | (row.overlap_high == 1))
        assert (row.pairs, row.value) == (here.sum(), pytest.approx(error[here].mean()))


def test_pictures_of_right_pairs_of_wrong_ones_and_of_absent_digits(tmp_path) -> None:
    stored = of(Oracle(pairs(), wrong=7), tmp_path).arrays["segmentation"]
    n = 10 + 7
    assert {name: (array.shape, array.dtype) for name, array in stored.items()} == {
        "merged": ((n, 36, 36), np.uint8), "digits": ((n, 2, 36, 36), np.uint8),
        "reconstructions": ((n, 2, 36, 36), np.uint8), "labels": ((n, 2), np.uint8), "predicted": ((n, 2), np.uint8),
        "absent": ((n, 36, 36), np.uint8), "absent_class": ((n,), np.uint8),
    }  # fmt: skip
    right = (stored["labels"] == stored["predicted"]).all(1)
    assert right.tolist() == [True] * 10 + [False] * 7
    assert np.array_equal(stored["reconstructions"][:10], stored["digits"][:10])
    assert np.array_equal(stored["merged"], stored["digits"].sum(1))  # no sum of two levels is clipped
    assert not stored["absent"].any()
    for labels, predicted, absent in zip(stored["labels"], stored["predicted"], stored["absent_class"], strict=True):
        taken = {*labels, *predicted}
        assert absent == next((labels[0] + k) % 10 for k in range(1, 10) if (labels[0] + k) % 10 not in taken)


def test_pictures_are_of_the_first_ten_right_and_wrong_pairs_whatever_the_batches(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(scoring.BATCH, "cpu", 8)
    stored = of(Oracle(pairs(), wrong=12), tmp_path).arrays["segmentation"]
    first = pairs().make(torch.tensor([*range(12, 22), *range(10)]))
    assert np.array_equal(stored["digits"], (first.digits * 255).round().numpy())


def test_the_predictions_count_each_digit_s_pairs_and_the_first_scores_name_them(tmp_path, monkeypatch) -> None:
    condition = of(Reader(pairs=True), tmp_path, test_images=40)
    stored, every = condition.arrays["predictions"], condition.arrays["scores"]
    assert {name: (array.shape, array.dtype) for name, array in stored.items()} == {
        "missed": ((80,), np.uint8), "digits": ((40, 3), np.uint32),
    }  # fmt: skip
    assert {name: (array.shape, array.dtype) for name, array in every.items()} == {
        "labels": ((80, 2), np.uint8), "predicted": ((80, 2), np.uint8), "scores": ((80, 10), np.float16),
        "bases": ((80, 2), np.uint16),
    }  # fmt: skip
    assert not stored["missed"].any()
    assert np.array_equal(stored["digits"][:, 0], np.bincount(every["bases"].ravel(), minlength=40))
    assert not stored["digits"][:, 1:].any()
    assert np.array_equal(DIGITS.test.labels.numpy()[every["bases"]], every["labels"])
    assert np.array_equal(np.sort(every["predicted"]), np.sort(every["labels"]))
    monkeypatch.setattr(multimnist, "SCORED", 30)
    monkeypatch.setattr(multimnist, "NAMED", 50)
    few = of(Reader(pairs=True), tmp_path, test_images=40).arrays
    assert all(np.array_equal(few["scores"][name], every[name][:30]) for name in every)
    assert np.array_equal(few["predictions"]["missed"], stored["missed"][:50])
    assert np.array_equal(few["predictions"]["digits"], stored["digits"])  # of all pairs


def test_each_digit_s_pairs_are_counted_by_how_many_of_both_were_missed(tmp_path) -> None:
    """A model that says 0 and 1 to everything: what it misses is known from the labels."""
    run = of(Says(), tmp_path, test_images=40)
    stored, every = run.arrays["predictions"], run.arrays["scores"]
    missed = 2 - np.isin(every["labels"], [0, 1]).sum(1)
    assert set(missed) == {0, 1, 2}
    assert np.array_equal(stored["missed"], missed)
    for digit in range(40):
        pairs_of = (every["bases"] == digit).any(1)
        assert stored["digits"][digit].tolist() == np.bincount(missed[pairs_of], minlength=3).tolist()
    assert run.metrics["error"][0] == pytest.approx(100 * (missed > 0).mean())


def test_the_plan_s_placement_is_that_of_the_test_pairs_too() -> None:
    shifts = {p: pairs(placement=p).make(torch.arange(80)).shifts.abs().max().item() for p in ("paper", "official")}
    assert shifts["paper"] == 4
    assert 4 < shifts["official"] <= 6


def test_the_test_pairs_are_those_of_the_test_seed() -> None:
    """Every run is tested on the same ones, and trained on none of them."""
    expected, some = PairSet(DIGITS.test, seed=TEST_SEED, size=80), torch.arange(80)
    assert torch.equal(pairs().make(some).images, expected.make(some).images)


def test_too_few_digits_for_the_pairs_are_one_sentence() -> None:
    with pytest.raises(DataError, match=r"^[^\n]+ask for fewer pairs or use more digits\.$"):
        pairs(test_pairs=60 * 60)


@torch.inference_mode()
def test_a_real_capsnet_from_end_to_end(tmp_path) -> None:
    from capsbench.models import build_model

    torch.manual_seed(0)
    spec = spec_of("capsnet", channels=4, primary_types=2, decoder=[8, 8], reconstruction="paper")
    found = of(build_model(spec, 36), tmp_path)
    assert set(found.metrics) == {"error", "half_credit_error", *UNITS}
    assert all(np.isfinite(value) for value, _ in found.metrics.values())
    found.write(tmp_path, manifest={"run": {}, "dataset": {"name": "mnist"}, "weights": "w"}, digest="d", seconds=1.0)
    assert {path.name for path in (tmp_path / "test").iterdir()} == {
        "metrics.json", "predictions.npz", "scores.npz", "segmentation.npz", "overlap.csv",
    }  # fmt: skip


class Counting(Reader):
    """Counts the images that it is shown; sends this process a signal after `patience` batches."""

    def __init__(self, patience: int | None = None) -> None:
        super().__init__(pairs=True, high=0.05)
        self.patience = patience

    def forward(self, images: Tensor) -> Output:
        output = super().forward(images)
        if len(self.heard) == self.patience:
            signal.raise_signal(signal.SIGTERM)
        return output

    @property
    def shown(self) -> int:
        return sum(shape[0] for shape in self.heard)


def same(a: Condition, b: Condition) -> None:
    assert a.metrics == b.metrics
    assert a.frames["overlap"].equals(b.frames["overlap"])
    for stem, arrays in b.arrays.items():
        assert a.arrays[stem].keys() == arrays.keys()
        for name, array in arrays.items():
            assert a.arrays[stem][name].dtype == array.dtype
            assert np.array_equal(a.arrays[stem][name], array), (stem, name)


def test_an_evaluation_that_is_stopped_goes_on_and_ends_in_the_same_bits(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(scoring.BATCH, "cpu", 16)
    monkeypatch.setattr(multimnist, "SCORED", 40)
    (tmp_path / "a").mkdir()
    whole = of(Counting(), tmp_path / "a", test_images=40)
    with pytest.raises(ResourceError, match=r"stopped by SIGTERM, saved after 32 of 80; the same command goes on"):
        of(Counting(patience=2), tmp_path, test_images=40)
    with pytest.raises(ResourceError, match="saved after 48 of 80"):
        of(Counting(patience=1), tmp_path, test_images=40)
    last = Counting()
    same(of(last, tmp_path, test_images=40), whole)
    assert last.shown == 80 - 48
    assert (tmp_path / "checkpoint").is_dir()  # until its metrics are written
    forget(tmp_path)
    assert not (tmp_path / "checkpoint").exists()


def cut_off(content: bytearray) -> None:
    del content[-30:]


def of_no_compression(content: bytearray) -> None:
    """One bit of the archive's directory flipped, so that its first array is packed in a way that nobody knows."""
    content[content.find(b"PK\x01\x02") + 10] ^= 1


@pytest.mark.parametrize("broken", [cut_off, of_no_compression])
def test_a_kill_costs_what_came_after_the_last_part_and_a_broken_part_is_made_again(
    tmp_path, monkeypatch, broken: Callable[[bytearray], None]
) -> None:
    class Killed(Exception):
        pass

    class Dying(Counting):
        def forward(self, images: Tensor) -> Output:
            if len(self.heard) == 3:
                raise Killed
            return super().forward(images)

    monkeypatch.setitem(scoring.BATCH, "cpu", 16)
    monkeypatch.setenv("CAPSBENCH_CHECKPOINT_SECONDS", "0")
    (tmp_path / "a").mkdir()
    whole = of(Counting(), tmp_path / "a")
    with pytest.raises(Killed):
        of(Dying(), tmp_path)
    parts = sorted((tmp_path / "checkpoint").rglob("*.npz"))
    assert [path.name for path in parts] == ["000000016.npz", "000000032.npz", "000000048.npz"]
    content = bytearray(parts[1].read_bytes())
    broken(content)
    parts[1].write_bytes(content)
    last = Counting()
    same(of(last, tmp_path), whole)
    assert last.shown == 80 - 16


def test_parts_with_a_gap_are_not_joined(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(scoring.BATCH, "cpu", 16)
    monkeypatch.setenv("CAPSBENCH_CHECKPOINT_SECONDS", "0")
    (tmp_path / "a").mkdir()
    whole = of(Counting(), tmp_path / "a")
    with pytest.raises(ResourceError):
        of(Counting(patience=3), tmp_path)
    parts = sorted((tmp_path / "checkpoint").rglob("*.npz"))
    assert len(parts) == 3
    parts[1].unlink()
    last = Counting()
    same(of(last, tmp_path), whole)
    assert last.shown == 80 - 16


def test_what_another_evaluation_left_is_not_gone_on_from(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(scoring.BATCH, "cpu", 16)
    with pytest.raises(ResourceError):
        of(Counting(patience=2), tmp_path)
    other = Counting()
    of(other, tmp_path, test_images=40)
    assert other.shown == 80


def test_no_more_pairs_are_drawn_apart_than_are_tested(tmp_path) -> None:
    frame = of(Oracle(pairs()), tmp_path, segmentation_pairs=100).frames["overlap"]
    assert frame.loc[frame["metric"] == "mse_true", "pairs"].sum() == 80
