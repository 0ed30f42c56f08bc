"""PatchConv2d is nn.Conv2d: same parameters, same result, same gradients, whichever way it is computed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from capsbench.models import patches
from capsbench.models.patches import PatchConv2d

CASES = [  # channels in, channels out, kernel, stride, padding
    (1, 6, 9, 1, 0),
    (1, 6, 5, 2, 2),
    (1, 4, 3, 1, 1),
    (1, 4, 5, 1, "same"),
    (1, 4, 4, 1, "same"),  # an even kernel is padded unevenly
    (8, 9, 3, 2, "valid"),
    (8, 12, 9, 2, 0),
    (12, 8, 3, 1, 0),
    (8, 8, 3, 1, 1),  # not one of ours: the library's
]


@pytest.fixture(autouse=True)
def wide_means_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "WIDE", 8)


def pair(channels: int, outputs: int, kernel: int, stride: int, padding: int | str) -> tuple[PatchConv2d, nn.Conv2d]:
    torch.manual_seed(1)
    ours = PatchConv2d(channels, outputs, kernel, stride=stride, padding=padding).double()
    theirs = nn.Conv2d(channels, outputs, kernel, stride=stride, padding=padding).double()
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    return ours, theirs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 7, 19])
def test_equal_to_the_librarys_forward_and_backward(case, batch: int) -> None:
    ours, theirs = pair(*case)
    x = torch.randn(batch, case[0], 20, 17, dtype=torch.float64)
    x = x.contiguous(memory_format=torch.channels_last)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = ours(a), theirs(b)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    weights = torch.randn_like(expected)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-10)


def test_gradcheck() -> None:
    ours, _ = pair(8, 9, 3, 2, 0)
    x = torch.randn(3, 8, 7, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))


@pytest.mark.parametrize("case", CASES)
def test_autocast_gives_bf16_out_and_float32_gradients(case) -> None:
    ours, theirs = pair(*case)
    ours, theirs = ours.float(), theirs.float()
    x = torch.randn(5, case[0], 20, 20)
    with torch.autocast("cpu", torch.bfloat16):
        out, expected = ours(x), theirs(x)
    assert out.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected.float(), rtol=2e-2, atol=2e-2)
    out.float().square().mean().backward()
    expected.float().square().mean().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert mine.grad.dtype == torch.float32
        difference = (mine.grad - other.grad).norm() / other.grad.norm()
        assert difference < 1e-2


def test_the_result_lies_channels_last() -> None:
    ours, _ = pair(1, 6, 9, 1, 0)
    out = ours(torch.randn(2, 1, 28, 28, dtype=torch.float64))
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_dilation_is_refused() -> None:
    with pytest.raises(ValueError, match="dilation"):
        PatchConv2d(1, 4, 3, dilation=2)
