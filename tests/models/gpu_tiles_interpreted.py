"""The tiles' kernels, run by Triton's interpreter on a CPU: collected by test_gpu_tiles.py in its own process.

Triton decides when it is imported whether it interprets, so TRITON_INTERPRET=1 is set before this file is read. In bf16
its products are wrong, so factors are of other types here, and tiles are small.
"""

from __future__ import annotations

import functools

import pytest
import torch
from convolved import answers, draw, error, nothing_spreads
from torch.nn import functional as F

from capsbench.models import gpu_tile_launch as launch
from capsbench.models import gpu_tiles

CPU = torch.device("cpu")
SIZES = [  # images, channels in, channels out, height, width, kernel, stride
    (5, 64, 64, 7, 6, 3, 2),  # a last column that no output sees
    (18, 128, 64, 4, 4, 2, 1),  # two blocks of images, of channels in, and two steps a tap
    (3, 64, 128, 4, 7, 2, 4),  # pixels between kernels that no output sees; two blocks of channels out
    (17, 64, 64, 6, 5, 3, 3),  # one image in the last block
]


@pytest.fixture(autouse=True)
def _small_tiles_of_exact_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"IMAGES": 16, "WIDE": (64,), "SQUARE": (64,), "PROGRAMS": 12, "ROWS": 8, "BLOCKS": 4}.items():
        monkeypatch.setattr(launch, name, value)
    monkeypatch.setattr(gpu_tiles, "KIND", torch.float32)


drawn = functools.cache(draw)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_and_gradients_are_those_of_float64(size: tuple[int, ...]) -> None:
    given, stride = list(drawn(size)), size[-1]
    given[2] = None if size[0] == 3 else given[2]
    exact = answers(F.conv2d, *(None if t is None else t.double() for t in given), stride)
    found = answers(gpu_tiles.by_gpu_tiles, *given, stride)
    for t, true in zip(found, exact, strict=True):
        assert (t.shape, t.dtype) == (true.shape, torch.float32)
        assert error(t, true) < 1e-6
    for t in found[:3]:  # y, dx, dW lie as the library's do
        assert t.is_contiguous(memory_format=torch.channels_last)


def test_sums_are_float32_and_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tiles, "KIND", torch.float16)
    x, weight, bias, of_y = drawn(SIZES[0])
    x, weight, of_y = x.half(), weight.half().float(), of_y.half()
    exact = answers(F.conv2d, *(t.double() for t in (x, weight, bias, of_y)), 2)
    y, of_x, of_weight, of_bias = answers(gpu_tiles.by_gpu_tiles, x, weight, bias, of_y, 2)
    assert [t.dtype for t in (y, of_x, of_weight, of_bias)] == [torch.float16] * 2 + [torch.float32] * 2
    for found, true in ((y, exact[0]), (of_x, exact[1])):  # half a unit in the last place, of 2^-10
        assert ((found.double() - true).abs() <= true.abs() * 2**-11 + 1e-5 * true.abs().max()).all()
    assert error(of_weight, exact[2]) < 1e-6
    assert error(of_bias, exact[3]) < 1e-6


def test_an_image_s_bits_do_not_depend_on_what_stands_beside_it() -> None:
    # Of whole numbers, whose sums are exact: NumPy, which multiplies here, sums in an order that depends on the place.
    x, weight, bias, of_y = (t.mul(8).round() for t in drawn(SIZES[3]))
    x = x.contiguous(memory_format=torch.channels_last)
    together = answers(gpu_tiles.by_gpu_tiles, x, weight, bias, of_y, 3)
    assert all(map(torch.equal, together, answers(gpu_tiles.by_gpu_tiles, x, weight, bias, of_y, 3)))
    for some in (slice(1, 3), slice(15, None)):
        y, of_x, *_ = answers(gpu_tiles.by_gpu_tiles, x[some], weight, bias, of_y[some], 3)
        assert torch.equal(y, together[0][some])
        assert torch.equal(of_x, together[1][some])


def test_what_is_no_number_stays_with_its_image() -> None:
    nothing_spreads(gpu_tiles.by_gpu_tiles, drawn(SIZES[3]), 3, (4, 16))


LAYOUTS = {
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "at an odd address": lambda x: (
        torch.cat([x.new_zeros(1), x.permute(0, 2, 3, 1).flatten()])[1:]
        .view(len(x), *x.shape[2:], -1)
        .permute(0, 3, 1, 2)
    ),
    "some channels": lambda x: torch.cat([x, x], 1).contiguous(memory_format=torch.channels_last)[:, : x.shape[1]],
    "one line for all": lambda x: x[:, :, :1].contiguous(memory_format=torch.channels_last).expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_an_expanded_gradient(layout: str) -> None:
    size = (2, 64, 64, 3, 3, 2, 1)
    x, weight, bias, _ = drawn(size)
    laid, of_y = LAYOUTS[layout](x), torch.ones(()).expand(2, 64, 2, 2)
    expected = answers(gpu_tiles.by_gpu_tiles, laid.contiguous(), weight, bias, of_y, 1)
    given = [t.detach().requires_grad_() for t in (laid, LAYOUTS["at an odd address"](weight), bias)]
    y = gpu_tiles.by_gpu_tiles(*given, 1)
    found = [y, *torch.autograd.grad(y, given, of_y)]
    assert all(map(torch.equal, found, expected))


def test_its_result_may_be_changed_in_place_and_gradients_be_left_out() -> None:
    x, weight, bias, _ = drawn((2, 64, 64, 3, 3, 2, 1))
    weight = weight.clone().requires_grad_()
    gpu_tiles.by_gpu_tiles(x, weight, bias, 1).relu_().sum().backward()
    assert weight.grad is not None
    assert weight.grad.any()


def test_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tiles, "TRIED", (3, 64, 64, 3, 4, 2, 2))
    asked = gpu_tiles.why_not.__wrapped__
    assert asked(CPU) is None
    for name, wrong in {
        "convolved": lambda x, w, *_: x.new_zeros(3, 1, 2, 64),
        "of_images": lambda g, w, dx, stride: dx.fill_(float("nan")),
        "of_weight": lambda g, x, side, stride: g.new_zeros(64, 2, 2, 64),
        "of_bias": lambda g: g.new_ones(64),
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(launch, name, wrong)
            assert asked(CPU).startswith("differs here from the library's convolution by ")
    monkeypatch.setattr(launch, "start", lambda *_, **__: 1 / 0)
    assert asked(CPU) == "does not run here (ZeroDivisionError: division by zero)"
