"""Convolutions by tiles: right on any CPU by the kernels' plain C, and on the matrix unit where there is one."""

from __future__ import annotations

import functools

import pytest
import torch
from convolved import answers, draw, error, nothing_spreads
from tools import unavailable
from torch import Tensor
from torch.nn import functional as F

from capsbench.models import convolution, tiles
from capsbench.models.convolution import Convolution
from capsbench.models.tile_kernels import KERNELS
from capsbench.routing.compiled import CompilerError, library

PLAIN_C = "#define PORTABLE\n" + KERNELS
SIZES = [  # images, channels in, channels out, height, width, kernel, stride
    (3, 32, 32, 9, 8, 3, 2),
    (33, 64, 32, 20, 17, 9, 2),  # two blocks of images; a last line that no output sees
    (40, 32, 96, 11, 10, 4, 3),
    (35, 32, 64, 10, 9, 5, 1),
    (1, 32, 32, 5, 5, 5, 2),
    (2, 32, 32, 7, 12, 2, 4),  # pixels between kernels that no output sees
]


@pytest.fixture(params=["plain C", "matrix unit"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "matrix unit":
        if not tiles.has_unit():
            pytest.skip(f"tiling {tiles.NO_UNIT}")
        if (reason := tiles.why_not()) is not None:
            unavailable(f"tiling {reason}")
        return request.param
    try:
        library(PLAIN_C)
    except CompilerError as error:
        unavailable(f"tiling {error}")
    monkeypatch.setattr(tiles, "KERNELS", PLAIN_C)
    return request.param


@functools.cache
def drawn(size: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return draw(size, torch.bfloat16)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sums_are_float32_and_rounded_once(kernels: str, size) -> None:
    *given, stride = *drawn(size), size[-1]
    exact = answers(F.conv2d, *(t.double() for t in given), stride)
    y, of_x, of_weight, of_bias = answers(tiles.by_tiles, *given, stride)
    assert (y.dtype, of_x.dtype, of_weight.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    # the nearest bf16 to a sum that float32 holds: half a unit in the last place, of 2^-8
    for found, true in ((y, exact[0]), (of_x, exact[1])):
        assert ((found.double() - true).abs() <= true.abs() * 2**-8 + 1e-4 * true.abs().max()).all()
        assert error(found, true) < 0.002
    assert error(of_weight, exact[2]) < 1e-6
    assert error(of_bias, exact[3]) < 1e-6


@pytest.mark.parametrize("size", SIZES[2:4], ids=str)
def test_the_same_bits_with_any_number_of_threads_and_whatever_stands_beside_an_image(kernels: str, size) -> None:
    x, weight, bias, of_y = drawn(size)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = answers(tiles.by_tiles, x, weight, bias, of_y, size[-1])
        torch.set_num_threads(3)
        assert all(map(torch.equal, alone, answers(tiles.by_tiles, x, weight, bias, of_y, size[-1])))
    finally:
        torch.set_num_threads(threads)
    for some in (slice(0, 1), slice(len(x) // 2, None)):
        y, of_x, *_ = answers(tiles.by_tiles, x[some], weight, bias, of_y[some], size[-1])
        assert torch.equal(y, alone[0][some])
        assert torch.equal(of_x, alone[1][some])


def test_images_that_come_in_several_parts(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = SIZES[2]
    whole = answers(tiles.by_tiles, *drawn(size), size[-1])
    monkeypatch.setattr(tiles, "IMAGES", 32)
    parts = answers(tiles.by_tiles, *drawn(size), size[-1])
    assert torch.equal(whole[0], parts[0])
    assert torch.equal(whole[1], parts[1])
    assert error(parts[2], whole[2].double()) < 1e-6


LAYOUTS = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "images last": lambda x: x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
    "every other pixel": lambda x: x.repeat_interleave(2, 3)[..., ::2],
    "some channels": lambda x: torch.cat([x, x], 1).contiguous(memory_format=torch.channels_last)[:, : x.shape[1]],
    "one line for all": lambda x: x[:, :, :1].contiguous(memory_format=torch.channels_last).expand(x.shape),
    "one pixel for all": lambda x: x[:1, :, :1, :1].contiguous(memory_format=torch.channels_last).expand(x.shape),
}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_an_expanded_gradient(kernels: str, layout: str, kind: torch.dtype) -> None:
    size = SIZES[0]
    x, weight, bias, of_y = drawn(size)
    laid, bias = LAYOUTS[layout](x.to(kind)), torch.stack([bias, bias], 1)[:, 0]
    of_y = torch.ones(()).expand(of_y.shape)
    expected = answers(tiles.by_tiles, laid.contiguous(), weight, bias.clone(), of_y, size[-1])
    given = [t.detach().requires_grad_() for t in (laid, weight.contiguous(memory_format=torch.channels_last), bias)]
    y = tiles.by_tiles(*given, size[-1])
    found = [y, *torch.autograd.grad(y, given, of_y.to(y))]
    assert all(map(torch.equal, found, expected))
    assert found[1].dtype == kind


def test_its_result_may_be_changed_in_place(kernels: str) -> None:
    x, weight, bias, _ = drawn(SIZES[0])
    weight = weight.clone().requires_grad_()
    tiles.by_tiles(x, weight, bias, 2).relu_().float().sum().backward()
    assert weight.grad.any()


@pytest.mark.parametrize("shape", [(2, 33, 9, 9), (2, 64, 9, 9), (2, 32, 4, 9), (2, 32, 9, 4), (32, 9, 9)], ids=str)
def test_images_that_a_convolution_does_not_take_are_refused(kernels: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="tiles do not convolve"):
        tiles.by_tiles(torch.zeros(shape), torch.zeros(32, 32, 5, 5), None, 2)


def test_no_images_at_all(kernels: str) -> None:
    y, of_x, of_weight, _ = answers(
        tiles.by_tiles, torch.empty(0, 32, 9, 9), torch.ones(32, 32, 5, 5), torch.ones(32), torch.empty(0, 32, 3, 3), 2
    )
    assert (y.shape, of_x.shape) == ((0, 32, 3, 3), (0, 32, 9, 9))
    assert not of_weight.any()


def test_what_is_no_number_stays_with_its_image(kernels: str) -> None:
    nothing_spreads(tiles.by_tiles, drawn(SIZES[1]), 2, (4, 5))


def test_a_convolution_goes_by_tiles_where_told_to_and_only_in_bf16(kernels: str, monkeypatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(convolution, "by_tiles", lambda *given: taken.append(1) or tiles.by_tiles(*given))
    torch.manual_seed(0)
    layer = Convolution(32, 64, 5, stride=2, padding=2)
    plainly, x = torch.nn.Conv2d(32, 64, 5, stride=2, padding=2), torch.randn(9, 32, 12, 12)
    plainly.load_state_dict(layer.state_dict())
    layer.tiled = True
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        layer.tiled = False
        layer(x)
    assert len(taken) == 1
    assert error(y, plainly(x).double()) < 0.005
    layer.tiled = True
    layer(x)  # float32
    assert len(taken) == 1


@pytest.mark.parametrize(
    ("layer", "suits"),
    [
        ((256, 256, 9, 2), True),
        ((32, 64, 5, 3), True),
        ((48, 64, 9, 2), False),  # no whole blocks of channels
        ((32, 40, 9, 2), False),
        ((64, 64, 3, 2), False),
        ((256, 256, 5, 1), False),  # the library's own is faster
        ((1, 256, 9, 1), False),
    ],
)
def test_which_convolutions_it_is_for(layer: tuple[int, int, int, int], suits: bool) -> None:
    assert tiles.suits(Convolution(*layer)) == suits


def asked(monkeypatch: pytest.MonkeyPatch, source: str, unit: bool = True) -> str | None:
    """`why_not()` of a process with these kernels, on a CPU that says it has a unit, or not."""
    monkeypatch.setattr(tiles, "KERNELS", source)
    monkeypatch.setattr(tiles, "has_unit", lambda: unit)
    return tiles.why_not.__wrapped__()


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        library(PLAIN_C)
    except CompilerError as error:
        unavailable(f"tiling {error}")
    assert asked(monkeypatch, "", unit=False) == tiles.NO_UNIT
    assert asked(monkeypatch, PLAIN_C) == "needs a compiler that knows AMX, such as gcc 11"
    own = "int allowed(void) { return -1; }"
    assert asked(monkeypatch, PLAIN_C.replace(own, own.replace("-1", "0"))) == "is not allowed by this system"
    granted = PLAIN_C.replace(own, own.replace("-1", "1"))
    assert asked(monkeypatch, granted) is None
    assert asked(monkeypatch, "no C at all").startswith("does not compile here (")
    for right, wrong in (("j * s) * C", "j) * C"), ("i - p * s)", "i / s)"), ("tap / s) * size", "tap % s) * size")):
        assert right in granted
        assert asked(monkeypatch, granted.replace(right, wrong)).startswith("differs here from the library's")
