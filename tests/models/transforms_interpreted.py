"""The transforms' kernels, run by Triton's interpreter on a CPU: collected by test_transforms.py in its own process.

Triton decides when it is imported whether it interprets, so TRITON_INTERPRET=1 is set before this file is read.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from capsbench.models import transform_launch, transforms
from capsbench.models.real_products import by_real_products
from capsbench.models.spectral import Tiling

SIZES = [  # side, taps, outputs a side
    (10, 5, 6),
    pytest.param(11, 5, 7, marks=pytest.mark.slow),
    (5, 3, 3),
    (4, 2, 3),
    (3, 1, 3),
    (2, 2, 1),
]


@pytest.mark.parametrize(("side", "taps", "out"), SIZES)
def test_every_kernel_gives_what_the_matrix_gives(side: int, taps: int, out: int) -> None:
    for kind, size in ((transforms.PATCH, side), (transforms.WEIGHT, taps), (transforms.OUTPUT, out)):
        for back in (False, True):
            difference = transforms._largest_difference(kind, back, side, size, 1, 3, torch.device("cpu"))
            assert difference < 1e-6


def answers(x: Tensor, weight: Tensor, bias: Tensor, stride: int, way) -> list[Tensor]:
    given = [x.clone().requires_grad_(), weight.clone().requires_grad_(), bias.clone().requires_grad_()]
    y = way(*given, stride)
    shares = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(y)
    return [y.detach(), *torch.autograd.grad((y * shares).sum(), given)]


def the_matrices_only_where_kernels_are_tried(product):
    """In float64, beside which kernels are tried; in float32 it would be what is done in their place."""

    def only(matrix: Tensor, x: Tensor) -> Tensor:
        assert x.dtype == torch.float64
        return product(matrix, x)

    return only


def library(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    return nn.functional.conv2d(x, weight, bias, stride)


CASES = [  # images, channels, outputs, kernel, stride, height, width
    pytest.param((1, 3, 2, 9, 2, 20, 20), marks=pytest.mark.slow),  # PrimaryCaps' patch
    pytest.param((1, 2, 3, 5, 1, 13, 20), marks=pytest.mark.slow),  # patches that overlap, and one over the edge
    pytest.param((1, 3, 2, 3, 2, 13, 14), marks=pytest.mark.slow),  # pixels that no output sees
    (1, 2, 1, 2, 1, 8, 12),  # patches that overlap
    (2, 130, 1, 2, 1, 3, 3),  # more channels than a program has
]


@pytest.mark.parametrize("case", CASES)
def test_a_convolution_by_kernels_is_as_exact_as_float32(case, monkeypatch: pytest.MonkeyPatch) -> None:
    images, channels, outputs, kernel, stride, height, width = case
    monkeypatch.setattr(
        "capsbench.models.real_products.tiling",
        lambda h, w, kernel, stride, *_: Tiling(
            stride,
            math.ceil(kernel / stride),
            6 + math.ceil(kernel / stride) - 1,
            6,
            (math.ceil(h / 6), math.ceil(w / 6)),
        ),
    )
    monkeypatch.setattr(transforms, "_product", the_matrices_only_where_kernels_are_tried(transforms._product))
    torch.manual_seed(1)
    x = torch.randn(images, channels, height, width).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(outputs, channels, kernel, kernel), torch.randn(outputs)
    found = answers(x, weight, bias, stride, by_real_products)
    exact = answers(x.double(), weight.double(), bias.double(), stride, library)
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    for mine, other in zip(found, exact, strict=True):
        assert mine.dtype == torch.float32
        assert float((mine.double() - other).norm() / other.norm()) < 1e-6


@pytest.mark.slow
def test_kernels_that_fail_or_differ_are_said_and_the_matrices_do(monkeypatch: pytest.MonkeyPatch) -> None:
    x, tiles = torch.randn(2, 3, 20, 20), Tiling(2, 5, 10, 6, (1, 1))
    right = transforms.of_image(x, tiles)
    for broken, why in (
        (lambda *_: 1 / 0, "do not run here .ZeroDivisionError: division by zero"),
        (lambda x, *_: x.new_zeros(2, 148, 12), "differ here from float64 by 1 of the largest entry"),
        (lambda x, *_: x.new_full((2, 148, 12), float("nan")), "differ here from float64 by nan"),
    ):
        transforms._proven.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(transform_launch, "to_frequencies", broken)
            with pytest.warns(UserWarning, match=f"^Convolutions' transforms are products of matrices, since .* {why}"):
                found = transforms.of_image(x, tiles)
        assert (found - right).abs().max() < 1e-4
    transforms._proven.cache_clear()
