"""Seeds of a cell that take turns: each ends in the bits of that seed trained alone, and is stopped and saved alike."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_run import bits

from capsbench.data.digits import Digits, load_digits
from capsbench.data.source import DataSource
from capsbench.errors import ResourceError
from capsbench.plan import House
from capsbench.training import together
from capsbench.training.run import Setting
from capsbench.training.together import train_seeds

SEEDS = (0, 1, 2)
PLAN = """
budget: reduced
seeds: [0, 1, 2]
uci_digits: true
width: 0.0625
training: {steps: 24, batch: 16, rate: 2.0e-3, precision: float32}
tasks:
  mnist:
    variants: [capsnet-r3-recon, cnn, resnet-flops]
  affnist:
    variants: [capsnet-r3-recon]
    matched_at: 0.05
    held_out: 200
    probe_every: 5
    probe_images: 60
    test_images: 40
    transforms: 2
    factor_images: 20
  multimnist:
    variants: [capsnet-r3-recon]
    train_pairs: 5_000
    test_pairs: 100
    segmentation_pairs: 30
  two_digit:
    variants: [two-digit-kmeans]
    train_images: 128
    pairs: 60
    last_epochs: 2
"""
DATASET = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "d"}
RESOLVED = {"precision": "float32", "precision_timings": None}
CAPSNET = ("mnist", "capsnet-r3-recon")
CELLS = [CAPSNET, ("mnist", "cnn"), ("mnist", "resnet-flops")]
CELLS += [("multimnist", "capsnet-r3-recon"), ("two_digit", "two-digit-kmeans")]


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(DataSource("uci-digits", None, DATASET["badge"], "scikit-learn"))


class Place:
    """A cell trained into a folder of its own, with what was said and in which order the steps came."""

    def __init__(self, folder: Path, digits: Digits, task: str = "mnist", variant: str = "capsnet-r3-recon") -> None:
        folder.mkdir()
        (folder / "small.yaml").write_text(PLAN)
        house = replace(House.load(folder / "small.yaml", "uci-digits"), root=folder)
        self.said: list[str] = []
        self.setting = Setting(
            house, house.cell(task, variant), digits, DATASET, torch.device("cpu"), 1, self.said.append
        )
        self.order: list[tuple[int, int]] = []  # (seed, step)
        self.holding: set[int] = set()
        self.after: Callable[[int, int], None] = lambda seed, step: None

    def folder(self, seed: int) -> Path:
        return self.setting.house.run_folder(self.setting.cell, seed)

    @contextlib.contextmanager
    def held(self, seed: int) -> Iterator[Callable[..., None]]:
        def show(step: int, *_: object) -> None:
            assert seed in self.holding
            self.order.append((seed, step))
            self.after(seed, step)

        self.holding.add(seed)
        yield show
        self.holding.remove(seed)

    def train(self) -> dict[int, dict[str, Any]]:
        found = dict(train_seeds(self.setting, SEEDS, self.held, RESOLVED))
        assert not self.holding
        return found

    def left(self, seed: int) -> tuple[str, list[str], str]:
        """Weights, history without its last column (images a second), and curve of a run."""
        rows = (self.folder(seed) / "history.csv").read_text().splitlines()
        curve = self.folder(seed) / "curve.csv"
        return (
            bits(self.folder(seed)),
            [row.rsplit(",", 1)[0] for row in rows],
            curve.read_text() if curve.exists() else "",
        )


@pytest.fixture
def at_once(monkeypatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", str(count))


# cnn: dropout; resnet: batch normalisation's running means; affnist, two_digit: a probe along training
@pytest.mark.parametrize(
    ("task", "variant"), [*CELLS, pytest.param("affnist", "capsnet-r3-recon", marks=pytest.mark.slow)]
)
def test_seeds_at_once_end_in_the_bits_of_each_alone(tmp_path, digits, at_once, task: str, variant: str) -> None:
    alone, two, all_at_once = (Place(tmp_path / name, digits, task, variant) for name in ("alone", "two", "all"))
    manifests = alone.train()
    assert all("seeds_at_once" not in manifest["resolved"] for manifest in manifests.values())
    assert alone.order == [(seed, step + 1) for seed in SEEDS for step in range(24)]
    for place, count in ((two, 2), (all_at_once, 3)):
        at_once(count)
        manifests = place.train()
        together = [manifests[seed]["resolved"].get("seeds_at_once") for seed in SEEDS]
        assert together == ([2, 2, None] if count == 2 else [3, 3, 3])
        assert place.order[: 2 * count] == [(seed, step) for step in (1, 2) for seed in range(count)]
        assert [place.left(seed) for seed in SEEDS] == [alone.left(seed) for seed in SEEDS]
        assert json.loads((place.folder(1) / "manifest.json").read_text()) == manifests[1]
        assert not (place.folder(1) / "checkpoint").exists()
    assert bool(alone.left(0)[2]) is (task in ("affnist", "two_digit"))
    assert len({alone.left(seed)[0] for seed in SEEDS}) == 3


def test_a_signal_stops_all_of_them_saved_and_they_go_on_to_the_same_bits(tmp_path, digits, at_once) -> None:
    alone, stopped = Place(tmp_path / "alone", digits, "affnist"), Place(tmp_path / "stopped", digits, "affnist")
    alone.train()
    at_once(3)
    stopped.after = lambda seed, step: signal.raise_signal(signal.SIGTERM) if (seed, step) == (1, 11) else None
    with pytest.raises(ResourceError, match=r"seed-1: stopped by SIGTERM, saved after step 11 of 24; the same command"):
        stopped.train()
    assert [said.split("/")[-1] for said in stopped.said] == [
        "seed-0: saved after step 11 of 24.",
        "seed-2: saved after step 10 of 24.",
    ]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    stopped.after = lambda seed, step: None
    at_once(2)
    manifests = stopped.train()
    assert [manifests[seed]["resolved"]["seeds_at_once"] for seed in SEEDS] == [3, 3, 3]
    assert [manifests[seed]["resumed"] for seed in SEEDS] == [1, 1, 1]
    assert [stopped.left(seed) for seed in SEEDS] == [alone.left(seed) for seed in SEEDS]


def test_seeds_that_have_made_no_step_when_another_one_is_stopped_have_nothing_to_save(
    tmp_path, digits, at_once
) -> None:
    stopped = Place(tmp_path / "stopped", digits)
    at_once(3)
    stopped.after = lambda seed, step: signal.raise_signal(signal.SIGTERM)
    with pytest.raises(ResourceError, match="seed-0: stopped by SIGTERM, saved after step 1 of 24"):
        stopped.train()
    assert stopped.said == []
    assert [(stopped.folder(seed) / "checkpoint").exists() for seed in SEEDS] == [True, False, False]


def test_a_loss_that_is_not_finite_ends_its_run_alone(tmp_path, digits, at_once) -> None:
    alone, place = Place(tmp_path / "alone", digits), Place(tmp_path / "place", digits)
    alone.train()
    made = together.prepare

    def broken(setting, seed, resolved):
        run = made(setting, seed, resolved)
        if seed == 1:
            with torch.no_grad():
                next(run.loop.step.model.parameters()).fill_(float("nan"))
        return run

    at_once(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "prepare", broken)
        manifests = place.train()
    assert [manifests[seed]["status"] for seed in SEEDS] == ["done", "failed", "done"]
    assert manifests[1]["reason"] == "the loss is not finite between steps 1 and 1"
    assert next(iter(manifests)) == 1  # it ended first
    assert [place.left(seed) for seed in (0, 2)] == [alone.left(seed) for seed in (0, 2)]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ResourceError("the disk is full"), "the disk is full"),
        (
            torch.OutOfMemoryError("CUDA out of memory."),
            "mnist/capsnet-r3-recon seed 1: out of memory on cpu, 3 at once; the same command with "
            "CAPSBENCH_SEEDS_AT_ONCE=2 goes on from what is saved.",
        ),
    ],
)
def test_what_stops_one_is_raised_when_the_others_are_saved(tmp_path, digits, at_once, error, sentence: str) -> None:
    alone, place = Place(tmp_path / "alone", digits), Place(tmp_path / "place", digits)
    alone.train()

    def fail(seed: int, step: int) -> None:
        if (seed, step) == (1, 5):
            shutil.rmtree(place.folder(2), ignore_errors=True)
            place.folder(2).parent.mkdir(parents=True, exist_ok=True)
            place.folder(2).write_text("in the way")
            raise error

    at_once(3)
    place.after = fail
    with pytest.raises(ResourceError) as caught:
        place.train()
    assert str(caught.value) == sentence
    assert place.said[0].endswith("seed-0: saved after step 5 of 24.")
    assert "seed-2: not saved after step 4 of 24 (" in place.said[1]
    place.folder(2).unlink()
    place.after = lambda seed, step: None
    manifests = place.train()
    assert [manifests[seed]["resumed"] for seed in SEEDS] == [1, 0, 0]
    assert [place.left(seed) for seed in SEEDS] == [alone.left(seed) for seed in SEEDS]


def test_seeds_for_which_memory_does_not_suffice_wait(tmp_path, digits, at_once, monkeypatch) -> None:
    alone, place = Place(tmp_path / "alone", digits), Place(tmp_path / "place", digits)
    alone.train()
    made, asked = together.prepare, []

    def tight(setting, seed, resolved):
        asked.append(seed)
        if seed == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return made(setting, seed, resolved)

    at_once(3)
    monkeypatch.setattr(together, "prepare", tight)
    manifests = place.train()
    assert asked == [0, 1, 2, 2]  # and then, all alone, by train_run
    assert [manifests[seed]["resolved"].get("seeds_at_once") for seed in SEEDS] == [2, 2, None]
    assert [place.left(seed) for seed in SEEDS] == [alone.left(seed) for seed in SEEDS]


def test_seeds_that_disturb_each_other_train_one_after_another(tmp_path, digits, at_once, monkeypatch) -> None:
    alone, place = Place(tmp_path / "alone", digits), Place(tmp_path / "place", digits)
    alone.train()
    at_once(3)
    monkeypatch.setattr(together, "_proven", lambda turns: False)  # CPU turns have no streams to prove
    manifests = place.train()
    assert place.order == alone.order
    assert all("seeds_at_once" not in manifest["resolved"] for manifest in manifests.values())
    assert [place.left(seed) for seed in SEEDS] == [alone.left(seed) for seed in SEEDS]


@pytest.mark.slow
def test_killed_by_sigterm_as_a_process_and_gone_on_with(tiny) -> None:
    plan = tiny.plan(steps=20)
    both = {"CAPSBENCH_SEEDS_AT_ONCE": "2"}
    assert tiny.run("straight", "train", plan)[0] == 0
    code, said = tiny.signalled("stopped", 10, "SIGTERM", "train", plan, **both)
    assert code == 4
    assert "stopped by SIGTERM, saved after step" in said
    assert "Traceback" not in said
    code, said = tiny.run("stopped", "train", plan, **both)
    assert code == 0, said
    assert said.count("going on after step") == 2
    for seed in (0, 1):
        assert bits(tiny.run_folder("stopped", seed=seed)) == bits(tiny.run_folder("straight", seed=seed))
