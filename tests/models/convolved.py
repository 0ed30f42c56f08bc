"""What a convolution by tiles is held against, on a CPU and on a GPU: draws, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def draw(size: tuple[int, ...], kind: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, W, bias and a gradient of y, float32, all but the bias numbers of `kind`.

    size: images, channels in, channels out, height, width, kernel, stride.
    """
    images, channels, outputs, height, width, side, stride = size
    drawn = torch.Generator().manual_seed(sum(size))
    tall, wide = (height - side) // stride + 1, (width - side) // stride + 1
    sizes = (images, channels, height, width), (outputs, channels, side, side), (images, outputs, tall, wide)
    x, weight, of_y = (torch.randn(of, generator=drawn).to(kind).float() for of in sizes)
    return x, weight / 8, torch.randn(outputs, generator=drawn), of_y


def answers(
    convolve: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, of_y: Tensor, stride: int
) -> list[Tensor]:
    """y and the gradients of x, W and bias."""
    given = [t.clone().requires_grad_() for t in (x, weight, bias) if t is not None]
    y = convolve(*given, *([None] if bias is None else []), stride)
    return [y.detach(), *torch.autograd.grad(y, given, of_y.to(y))]


def error(found: Tensor, exact: Tensor) -> float:
    """In norm, relative to the exact."""
    return float((found.detach().double() - exact.detach()).norm() / exact.detach().norm())


def nothing_spreads(
    convolve: Callable[..., Tensor], given: tuple[Tensor, ...], stride: int, images: tuple[int, int]
) -> None:
    """NaN in one image and infinity in another stay with these two."""
    x, weight, bias, _ = given
    x = x.clone()
    nan, infinite = images
    x[nan, 3, 2, 2], x[infinite, 0, 0, 0] = float("nan"), float("inf")
    y = convolve(x, weight, bias, stride)
    assert y[nan, :, 0, 0].isnan().all()
    assert not y[infinite, :, 0, 0].isfinite().any()
    assert y[~torch.isin(torch.arange(len(x)), torch.tensor(images))].isfinite().all()
