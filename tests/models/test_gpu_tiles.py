"""Convolutions by tiles on a GPU: kernels interpreted and compiled, and when they are taken. On one: test_cuda.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from tools import unavailable
from with_triton import all_pass, compiled

from capsbench.models import gpu_tiles
from capsbench.models.convolution import Convolution

HERE = Path(__file__).parent
GPU = torch.device("cuda")


def test_kernels_give_what_the_library_gives_in_float64() -> None:
    all_pass(HERE / "gpu_tiles_interpreted.py")


@pytest.mark.slow
def test_kernels_compile_for_tensor_cores_and_hold_a_tile_in_registers() -> None:
    said = [line.split() for line in compiled(HERE / "gpu_tiles_compiled.py").splitlines()]
    assert [name for name, *_ in said].count("_forward") == 3
    for name, _, *words, registers, spilled in said:
        unit = ["wgmma", "tma"] if name in ("_forward", "_of_images", "_of_weight") else ["no-wgmma", "no-tma"]
        assert words == [*unit, "no-atomics", "no-tf32"]
        assert int(registers) <= 255
        assert int(spilled) == 0, "what a thread holds has outgrown its registers"


@pytest.mark.parametrize(
    ("layer", "suits"),
    [
        ((256, 256, 9, 2), True),
        ((64, 128, 5, 3), True),
        ((96, 64, 9, 2), False),  # no whole tiles
        ((64, 96, 9, 2), False),
        ((64, 64, 3, 2), False),
        ((256, 128, 5, 1), True),
        ((256, 64, 5, 1), False),  # not shown to be faster
        ((1, 256, 9, 2), False),
    ],
)
def test_which_convolutions_it_is_for(layer: tuple[int, int, int, int], suits: bool) -> None:
    assert gpu_tiles.suits(Convolution(*layer)) == suits


@pytest.mark.parametrize(
    "shape",
    [(2, 65, 9, 9), (2, 128, 9, 9), (2, 64, 4, 9), (2, 64, 9, 4), (64, 9, 9), (0, 64, 9, 9), (2**19, 64, 8, 8)],
    ids=str,
)
def test_images_that_tiles_do_not_take_are_refused(shape: tuple[int, ...]) -> None:
    """The last ones are too many for offsets of 32 bits."""
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    weight = torch.zeros(64, 64, 5, 5, device="meta")
    assert gpu_tiles.fits(torch.empty(2, 64, 9, 9, device="meta"), weight, 2)
    assert not gpu_tiles.fits(torch.empty(shape, device="meta"), weight, 2)
    with pytest.raises(ValueError, match="tiles do not convolve"):
        gpu_tiles.by_gpu_tiles(torch.empty(shape, device="meta"), weight, None, 2)


def test_parts_of_a_sum_are_a_matter_of_the_layer_and_number_as_measured() -> None:
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    from capsbench.models import gpu_tile_launch as launch

    assert launch._parts(36, 256, 256, 9) == 3  # PrimaryCaps at 28x28
    assert launch._parts(100, 256, 256, 9) == 1  # at 36x36
    assert launch._parts(1, 64, 64, 3) == 9  # no more than there are steps
    assert launch._parts(1, 256, 256, 9) == launch.MOST_PARTS
    assert launch._parts_of_weight(256, 256, 9) == 1  # PrimaryCaps: 324 programs
    assert launch._parts_of_weight(256, 256, 5) == launch._parts_of_weight(256, 128, 5) == 5  # the CNN: 500, 250
    assert launch._parts_of_weight(64, 64, 1) == launch.MOST_PARTS_OF_WEIGHT


def test_pixels_that_most_taps_reach_come_first() -> None:
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    from capsbench.models import gpu_tile_launch as launch

    order = launch._order(4, 5, 2, 2, 2, 2, torch.device("cpu"))
    assert order.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 4, 9, 14, 19]
    order = launch._order(3, 3, 2, 2, 2, 1, torch.device("cpu"))
    assert order.tolist() == [4, 1, 3, 5, 7, 0, 2, 6, 8]


def capable(monkeypatch: pytest.MonkeyPatch, major: int) -> str | None:
    """`why_not` of a GPU of that compute capability."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    return gpu_tiles.why_not.__wrapped__(GPU)


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tiles, "_largest_error", lambda *_: 0.002)
    assert capable(monkeypatch, 8) == gpu_tiles.NO_UNIT
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "triton", None)  # its import fails
        assert capable(monkeypatch, 9) == "needs Triton, which cannot be imported"
    if importlib.util.find_spec("triton") is None:
        unavailable("no Triton here")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "triton.tools.tensor_descriptor", None)
        assert capable(monkeypatch, 9) == "needs a newer Triton, which has tensor descriptors"
    assert capable(monkeypatch, 9) is None
    monkeypatch.setattr(gpu_tiles, "_largest_error", lambda *_: 0.3)
    assert capable(monkeypatch, 9) == "differs here from the library's convolution by 0.3"


class OnAGpu(torch.Tensor):
    """A CPU's tensor that says it lies on a GPU."""

    device = GPU  # type: ignore[assignment]


def test_a_convolution_goes_by_tiles_where_told_to_and_only_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, ...]] = []

    def recorded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: int) -> torch.Tensor:
        taken.append(tuple(x.shape))
        return torch.zeros(1)

    monkeypatch.setattr(gpu_tiles, "by_gpu_tiles", recorded)
    layer, x = Convolution(64, 64, 5, stride=2, padding=2), torch.randn(2, 64, 8, 8).as_subclass(OnAGpu)
    layer.tiled = True
    layer(x)  # float32
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    layer.tiled = False
    layer(x)
    assert taken == []
    layer.tiled = True
    layer(x)
    assert taken == [(2, 64, 12, 12)]
    layer(x[:0])  # nothing to tile
    narrow = Convolution(32, 64, 5, stride=2)
    narrow.tiled = True
    narrow(x[:, :32])
    assert len(taken) == 1
