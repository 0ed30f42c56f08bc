"""affNIST evaluation: matched from the curve, converged on every image, each factor alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from stand_ins import Reader, coded_digits, spec_of, trained
from torch import Tensor

from capsbench.data import affine, affnist_sets
from capsbench.data.affnist import FACTORS, one_factor
from capsbench.data.affnist_place import files_digest
from capsbench.data.affnist_sets import affnist_set
from capsbench.data.batch import DigitSet
from capsbench.data.digits import Digits
from capsbench.data.placed import unit
from capsbench.errors import DataError
from capsbench.evaluation.affnist import evaluate
from capsbench.evaluation.condition import Condition
from capsbench.files import write_json
from capsbench.models import build_model
from capsbench.models.output import Output
from capsbench.training import scoring

DIGITS = Digits(coded_digits(60), coded_digits(50))
OPTIONS = {"held_out": 30, "transforms": 4, "factor_images": 20, "probe_images": 70, "matched_at": 0.95}


@pytest.fixture(autouse=True)
def _no_official_files(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("CAPSBENCH_DATA", raising=False)
    monkeypatch.setenv("CAPSBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [(10, 0.90, 0.60), (20, 0.94, 0.70), (30, 0.98, 0.78), (40, 0.99, 0.79)]
    frame = pd.DataFrame(rows, columns=["step", "held_out_accuracy", "affnist_accuracy"])
    frame.to_csv(tmp_path / "curve.csv", index=False)
    return tmp_path


class UprightReader(Reader):
    """Reads only digits whose ink lies in the middle 20 x 20 pixels; of others it says something wrong."""

    def forward(self, images: Tensor) -> Output:
        scores = super().forward(images).scores
        outside = images.sum((1, 2, 3)) - images[:, :, 10:30, 10:30].sum((1, 2, 3)) > 0.01  # [B]
        return Output(torch.where(outside[:, None], scores.roll(1, 1), scores))


def of(run) -> dict[str, Condition]:
    with torch.inference_mode():
        return {condition.name: condition for condition in evaluate(run)}


def test_matched_is_read_off_the_curve(folder) -> None:
    matched = of(trained("affnist", Reader(), DIGITS, folder, **OPTIONS))["matched"]
    assert matched.status == "done"
    assert matched.metrics["accuracy"] == (pytest.approx(72.0), "%")
    assert matched.metrics["held_out_accuracy"] == (pytest.approx(95.0), "%")
    assert matched.images == 70


def test_a_curve_of_another_affnist_is_not_called_by_the_name_of_the_one_there_is(folder) -> None:
    run = trained("affnist", Reader(), DIGITS, folder, **OPTIONS)
    write_json(folder / "manifest.json", {"digests": {"test_set": "0" * 64}})  # official files, gone since
    with pytest.raises(DataError, match="measured along training on another affNIST than there is now"):
        of(run)


def test_a_run_that_never_gets_there_is_not_matched_and_says_why(folder) -> None:
    found = of(trained("affnist", Reader(), DIGITS, folder, **OPTIONS | {"matched_at": 0.9922}))
    matched = found["matched"]
    assert (matched.status, matched.metrics, matched.images) == ("not matched", {}, 70)
    assert "reached 99.00% and not 99.22%" in str(matched.reason)
    assert found["converged"].status == "done"


def test_a_last_evaluation_that_may_have_jittered_upwards_matches_nothing(folder) -> None:
    matched = of(trained("affnist", Reader(), DIGITS, folder, **OPTIONS | {"matched_at": 0.985}))["matched"]
    assert (matched.status, matched.metrics) == ("not matched", {})
    assert "got to 98.50% at its last evaluation alone" in str(matched.reason)


def test_a_level_that_the_second_of_two_evaluations_gets_to_is_not_matched_either(tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text("step,held_out_accuracy,affnist_accuracy\n10,0.90,0.60\n20,0.98,0.78\n")
    matched = of(trained("affnist", Reader(), DIGITS, tmp_path, **OPTIONS))["matched"]
    assert (matched.status, matched.metrics) == ("not matched", {})


@pytest.mark.parametrize(("off", "expected"), [(0, 100.0), (1, 0.0)])
def test_converged_is_every_image_and_the_held_out_digits(folder, off: int, expected: float) -> None:
    converged = of(trained("affnist", Reader(off), DIGITS, folder, **OPTIONS))["converged"]
    assert converged.metrics == {"accuracy": (expected, "%"), "held_out_accuracy": (expected, "%")}
    assert converged.images == 200
    stored = converged.arrays["predictions"]
    assert np.array_equal(stored["labels"], DIGITS.test.labels.numpy()[stored["bases"]])
    assert np.array_equal(stored["predicted"], (stored["labels"] + off) % 10)


def test_the_predictions_are_compact_and_name_the_digit_each_image_came_from(folder) -> None:
    run = trained("affnist", Reader(), DIGITS, folder, **OPTIONS, test_images=30)
    converged = of(run)["converged"]
    stored = converged.arrays["predictions"]
    assert {name: (array.shape, array.dtype) for name, array in stored.items()} == {
        "labels": ((120,), np.uint8), "predicted": ((120,), np.uint8), "bases": ((120,), np.uint16),
    }  # fmt: skip
    assert np.array_equal(stored["labels"], DIGITS.test.labels.numpy()[stored["bases"]])
    assert np.array_equal(stored["predicted"], stored["labels"])
    assert stored["bases"].max() == 29
    scores = converged.arrays["scores"]["score"]
    assert (scores.shape, scores.dtype) == ((120,), np.float16)
    assert np.allclose(scores, 0.9, atol=1e-3)


def test_each_factor_is_measured_alone(folder) -> None:
    frame = of(trained("affnist", UprightReader(), DIGITS, folder, **OPTIONS))["converged"].frames["factors"]
    assert list(frame.columns) == ["factor", "value", "accuracy", "images"]
    assert {f: tuple(frame.loc[frame["factor"] == f, "value"]) for f in FACTORS} == FACTORS
    assert set(frame["images"]) == {20}
    accuracy = {(r.factor, r.value): r.accuracy for r in frame.itertuples()}
    for factor, neutral in (("rotation", 0), ("shear", 0), ("scale", 1), ("translation", 0)):
        assert accuracy[factor, neutral] == 1
    assert accuracy["translation", 4] == accuracy["translation", -4] == 1  # the block ends at the middle's border
    assert accuracy["translation", 6] == accuracy["translation", -6] == 0
    assert accuracy["scale", 1.4] == 1  # 17 pixels wide


def test_digits_beyond_the_plan_s_number_are_in_nothing_that_is_measured(folder) -> None:
    """Neither in the set, of four images a digit, nor in the probes along training, nor under the factors."""
    labels = torch.arange(50) % 10
    labels[10:] = (labels[10:] + 1) % 10
    digits = Digits(coded_digits(60), coded_digits(50, labels))
    found = of(trained("affnist", Reader(), digits, folder, **OPTIONS, test_images=10))
    assert (found["matched"].images, found["converged"].images) == (40, 40)
    assert found["converged"].metrics["accuracy"] == (100.0, "%")
    factors = found["converged"].frames["factors"]
    assert set(factors["images"]) == {10}
    assert set(factors["accuracy"]) == {1.0}


def test_test_digits_are_transformed_and_training_digits_held_out(folder) -> None:
    wrong = coded_digits(60, (torch.arange(60) + 1) % 10)
    for digits, on_test, on_held_out in (
        (Digits(wrong, DIGITS.test), 1.0, 0.0),
        (Digits(DIGITS.train, wrong), 0.0, 1.0),
    ):
        converged = of(trained("affnist", Reader(), digits, folder, **OPTIONS))["converged"]
        assert converged.metrics == {"accuracy": (100 * on_test, "%"), "held_out_accuracy": (100 * on_held_out, "%")}
        assert set(converged.frames["factors"]["accuracy"]) == {on_test}


def test_each_batch_is_held_against_its_own_labels(folder, monkeypatch) -> None:
    monkeypatch.setitem(scoring.BATCH, "cpu", 7)  # classes come in tens
    converged = of(trained("affnist", Reader(), DIGITS, folder, **OPTIONS))["converged"]
    assert converged.metrics == {"accuracy": (100.0, "%"), "held_out_accuracy": (100.0, "%")}
    assert set(converged.frames["factors"]["accuracy"]) == {1.0}


def test_the_name_says_which_affnist_it_is_and_of_which_digits(folder) -> None:
    run = trained("affnist", Reader(), DIGITS, folder, **OPTIONS)
    digest = affnist_set(DIGITS.test, dataset="mnist", transforms=OPTIONS["transforms"]).digest
    for condition in of(run).values():
        assert condition.dataset == {"name": "affnist-synth", "badge": "affnist-synth", "digest": digest}
    other = type(run.cell)(**{**run.cell.__dict__, "dataset": "uci-digits"})
    for condition in of(type(run)(**{**run.__dict__, "cell": other})).values():
        assert condition.dataset["badge"] == "affnist-synth of UCI digits, not MNIST"


def test_the_set_is_made_in_batches(folder, monkeypatch) -> None:
    asked = []
    render = affine.render
    monkeypatch.setattr(affine, "render", lambda images, *rest: asked.append(len(images)) or render(images, *rest))
    of(trained("affnist", Reader(), DIGITS, folder, **OPTIONS | {"transforms": 32, "factor_images": 50}))
    assert sum(asked) >= 1600
    assert max(asked) <= 250


def test_a_decoder_s_drawings_are_kept_right_ones_first(folder) -> None:
    torch.manual_seed(0)
    spec = spec_of("capsnet", channels=4, primary_types=2, decoder=[8, 8], reconstruction="paper")
    run = trained("affnist", build_model(spec, 40), DIGITS, folder, **OPTIONS)
    stored = of(run)["converged"].arrays["reconstructions"]
    n = len(stored["labels"])
    assert stored["images"].shape == stored["reconstructions"].shape == (n, 40, 40)
    right = stored["labels"] == stored["predicted"]
    assert n <= 20
    assert (np.sort(right)[::-1] == right).all()
    assert not right.all()
    made = affnist_set(DIGITS.test, dataset="mnist", transforms=4)
    whole = (made.images(0, 200)[:, 0] * 255).round().to(torch.uint8).numpy()
    assert (whole[:, None] == stored["images"]).all((2, 3)).any(0).all()  # pictures of the set itself
    with torch.inference_mode():
        answers = run.model(unit(torch.from_numpy(stored["images"]))[:, None]).scores.argmax(1)
    assert stored["predicted"].tolist() == answers.tolist()
    assert "reconstructions" not in of(trained("affnist", Reader(), DIGITS, folder, **OPTIONS))["converged"].arrays


def test_official_files_in_the_plan_s_data_folder_are_what_is_measured_and_called_affnist(folder, monkeypatch) -> None:
    (folder / "data" / "affNIST").mkdir(parents=True)
    (folder / "data" / "affNIST" / "test.mat").write_bytes(b"official")
    asked = []

    class Official:
        name, labels, source = "affnist", DIGITS.test.labels, torch.arange(50)

        def __len__(self) -> int:
            return 50

        def images(self, start: int, stop: int) -> Tensor:
            return one_factor(DigitSet(*(part[start:stop] for part in DIGITS.test)), "rotation", 0)

    monkeypatch.setattr(affnist_sets, "official_affnist", lambda _, where: asked.append(where) or Official())
    run = replace(
        trained("affnist", Reader(), DIGITS, folder, **OPTIONS | {"transforms": 1}), data_folder=folder / "data"
    )
    write_json(folder / "manifest.json", {"digests": {"test_set": files_digest(folder / "data/affNIST/test.mat")}})
    found = of(run)
    assert asked == [folder / "data"]
    assert set(found) == {"matched", "converged"}
    assert all(condition.dataset == {"name": "affnist", "badge": "affNIST"} for condition in found.values())


def test_held_out_accuracy_is_of_as_many_digits_as_the_plan_says(folder) -> None:
    wrong_after_10 = torch.where(torch.arange(60) < 10, torch.arange(60), torch.arange(60) + 1) % 10
    digits = Digits(coded_digits(60, wrong_after_10), DIGITS.test)
    converged = of(trained("affnist", Reader(), digits, folder, **OPTIONS))["converged"]
    assert converged.metrics["held_out_accuracy"] == (pytest.approx(100 * 10 / 30), "%")
