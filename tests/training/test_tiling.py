"""A run in bf16 takes tiles where they run, says where they should but do not, and goes on as it began."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tools import unavailable

from capsbench.data.digits import Digits, load_digits
from capsbench.data.source import DataSource
from capsbench.models import build_model, gpu_tiles, tiles
from capsbench.models.convolution import Convolution
from capsbench.plan import House, load_variants
from capsbench.plan.variants import CapsNetSpec
from capsbench.training import checkpoint, tiling
from capsbench.training.run import Setting, prepare
from capsbench.training.tiling import choose_convolutions, set_convolutions

PLAN = """
budget: reduced
seeds: [0]
uci_digits: true
width: 0.125
training: {steps: 11, batch: 16, precision: bf16}
tasks:
  mnist: {variants: [capsnet-r3-recon]}
"""
DATASET = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "d"}
NO_COMPILER = "does not compile here (cc: no)"


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(DataSource("uci-digits", None, DATASET["badge"], "scikit-learn"))


@pytest.fixture
def setting(tmp_path: Path, results: Path, digits: Digits) -> Setting:
    (tmp_path / "small.yaml").write_text(PLAN)
    house = House.load(tmp_path / "small.yaml", "uci-digits")
    return Setting(house, house.cells[0], digits, DATASET, torch.device("cpu"), 1, lambda _: None)


def tiled(model: torch.nn.Module) -> list[bool]:
    return [layer.tiled for layer in model.modules() if isinstance(layer, Convolution)]


@pytest.mark.parametrize(
    ("reason", "way", "said"),
    [
        (None, "tiles", []),
        (tiles.NO_UNIT, "plain", []),
        (NO_COMPILER, "plain", [f"Convolutions are products of patches, since tiling {NO_COMPILER}."]),
    ],
)
def test_chosen_where_they_run_and_said_where_they_should(monkeypatch, reason, way: str, said: list[str]) -> None:
    monkeypatch.setattr(tiles, "why_not", lambda: reason)
    heard: list[str] = []
    model = build_model(CapsNetSpec(model="capsnet", channels=32, primary_types=4))
    assert choose_convolutions(model, heard.append) == {"convolutions": way}
    assert tiled(model) == [False, way == "tiles"]  # conv1, PrimaryCaps
    assert heard == said
    assert set_convolutions(model, False) == {"convolutions": "plain"}
    assert tiled(model) == [False, False]


def gpu(monkeypatch: pytest.MonkeyPatch, reason: str | None) -> None:
    """Models, which lie on the CPU, lie on a GPU for whoever chooses; `reason` speaks against tiling there."""
    monkeypatch.setattr(tiling, "_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(gpu_tiles, "why_not", lambda device: reason)


@pytest.mark.parametrize(
    ("reason", "way", "said"),
    [
        (None, "tiles", []),
        (gpu_tiles.NO_UNIT, "plain", []),
        ("needs Triton", "plain", ["Convolutions are the library's, since tiling needs Triton."]),
    ],
)
def test_on_a_gpu_chosen_where_they_run_and_said_where_they_should(monkeypatch, reason, way: str, said) -> None:
    gpu(monkeypatch, reason)
    heard: list[str] = []
    model = build_model(CapsNetSpec(model="capsnet", channels=64, primary_types=8))
    assert choose_convolutions(model, heard.append) == {"convolutions": way}
    assert tiled(model) == [False, way == "tiles"]  # conv1, PrimaryCaps
    assert heard == said
    assert set_convolutions(model, False) == {"convolutions": "plain"}
    assert tiled(model) == [False, False]
    # tiles on a CPU are smaller
    narrow = build_model(CapsNetSpec(model="capsnet", channels=32, primary_types=4))
    assert choose_convolutions(narrow, pytest.fail) == {}


@pytest.mark.parametrize("kind", ["meta", "mps"])
def test_nothing_is_chosen_on_another_device(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(tiling, "_device", lambda _: torch.device(kind))
    assert choose_convolutions(build_model(load_variants()["capsnet-r3-recon"]), pytest.fail) == {}


def test_nothing_is_chosen_for_a_model_without_strided_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "why_not", lambda: NO_COMPILER)
    heard: list[str] = []
    cnn = build_model(load_variants()["cnn"])
    assert choose_convolutions(cnn, heard.append) == {}
    assert set_convolutions(cnn, True) == {}
    assert heard == []


@pytest.mark.parametrize("began", ["tiles", "plain"])
@pytest.mark.parametrize("here", ["tiles", "plain"])
def test_a_run_goes_on_as_it_began_where_that_is_possible(setting, monkeypatch, began: str, here: str) -> None:
    monkeypatch.setattr(tiles, "why_not", lambda: None if here == "tiles" else tiles.NO_UNIT)
    meta = {"precision": "bf16", "convolutions": began, "threads": 1}
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *_: SimpleNamespace(meta=meta))
    heard: list[str] = []
    run = prepare(dataclasses.replace(setting, say=heard.append), 0)
    way = "tiles" if began == here == "tiles" else "plain"
    assert [said for said in heard if "tiling" in said] == (
        [
            "This run began with convolutions by tiles and goes on with products of patches, since tiling needs a CPU "
            "with AMX; its last bits are not those of a run that was never stopped."
        ]
        if (began, here) == ("tiles", "plain")
        else []
    )
    assert run.resolved["convolutions"] == way
    assert tiled(run.loop.step.model) == [False, way == "tiles"]


def other(setting: Setting, *replaced: tuple[str, str], **keywords: Any) -> Setting:
    """A setting whose plan has other words."""
    text = PLAN
    for words in replaced:
        text = text.replace(*words)
    setting.house.path.write_text(text)
    house = House.load(setting.house.path, "uci-digits")
    return dataclasses.replace(setting, house=house, cell=house.cells[0], **keywords)


@pytest.mark.parametrize("began", ["tiles", "plain"])
@pytest.mark.parametrize("here", ["tiles", "plain"])
def test_a_run_on_a_gpu_goes_on_as_it_began_where_that_is_possible(setting, monkeypatch, began: str, here: str) -> None:
    gpu(monkeypatch, None if here == "tiles" else gpu_tiles.NO_UNIT)
    meta = {"precision": "bf16", "convolutions": began, "threads": 1}
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *_: SimpleNamespace(meta=meta))
    heard: list[str] = []
    run = prepare(other(setting, ("0.125", "0.25"), say=heard.append), 0)
    way = "tiles" if began == here == "tiles" else "plain"
    assert [said for said in heard if "tiling" in said] == (
        [
            "This run began with convolutions by tiles and goes on with the library's, since tiling needs a GPU of "
            "compute capability 9.0 or more; its last bits are not those of a run that was never stopped."
        ]
        if (began, here) == ("tiles", "plain")
        else []
    )
    assert run.resolved["convolutions"] == way
    assert tiled(run.loop.step.model) == [False, way == "tiles"]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
@pytest.mark.parametrize("meta", [None, {"precision": "float32", "threads": 1}], ids=["new", "resumed"])
def test_a_run_in_float32_says_nothing_of_them(setting: Setting, monkeypatch, where: str, meta) -> None:
    """Nor does one that measured bf16 to be faster now, but goes on in float32."""
    if where == "cuda":
        gpu(monkeypatch, None)
    measured = ("bf16" if meta else "float32", None)
    monkeypatch.setattr("capsbench.training.run.choose_precision", lambda *_: measured)
    if meta:
        monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *_: SimpleNamespace(meta=meta))
    run = prepare(other(setting, ("0.125", "0.25"), ("bf16", "float32")), 0)
    assert set(run.resolved) == {"precision", "precision_timings", "threads", "device"}
    assert tiled(run.loop.step.model) == [False, False]


def test_a_step_by_tiles_ends_near_the_step_without(setting: Setting) -> None:
    if not tiles.has_unit():
        pytest.skip(f"tiling {tiles.NO_UNIT}")
    if (reason := tiles.why_not()) is not None:
        unavailable(f"tiling {reason}")
    gradients = []
    for way in (True, False):
        step = prepare(setting, 0).loop.step
        assert tiled(step.model) == [False, True]
        set_convolutions(step.model, way)
        step(0, 1e-3)
        gradients.append([p.grad.clone() for p in step.model.parameters()])
    for found, other in zip(*gradients, strict=True):
        assert (found - other).norm() < 0.05 * other.norm()
        assert found.shape == other.shape
    assert not all(map(torch.equal, *gradients))
