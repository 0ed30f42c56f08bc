"""Convolution is nn.Conv2d: same parameters, same result, same gradients, whichever way it is computed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from capsbench.models import convolution, real_products, spectral
from capsbench.models.convolution import Convolution
from capsbench.models.patches import by_products, of_patches_with_bias
from capsbench.models.real_products import by_real_products

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
    (8, 10, 5, 1, "same"),
    (9, 8, 6, 2, 0),
    (8, 9, 5, 2, 2),
]
FREQUENCIES = [  # channels in, channels out, kernel, stride, padding, height, width
    (8, 9, 9, 2, 0, 20, 20),  # PrimaryCaps at 28x28
    (8, 9, 9, 2, 0, 21, 28),  # a last row that no output sees
    (9, 8, 9, 2, 0, 32, 48),  # more than one patch
    (8, 8, 5, 1, "same", 28, 28),  # the Table 1 CNN
    (8, 8, 5, 1, 0, 5, 33),
    (8, 8, 6, 1, "same", 13, 14),
    (8, 8, 7, 2, 3, 17, 12),
    (8, 8, 21, 1, 0, 28, 30),  # a kernel as large as an image
]


@pytest.fixture(autouse=True)
def eight_channels_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "WIDE", 8)
    monkeypatch.setattr(convolution, "WIDE_IN_TRAINING", 8)


def pair(channels: int, outputs: int, kernel: int, stride: int, padding: int | str) -> tuple[Convolution, nn.Conv2d]:
    torch.manual_seed(1)
    ours = Convolution(channels, outputs, kernel, stride=stride, padding=padding).double()
    theirs = nn.Conv2d(channels, outputs, kernel, stride=stride, padding=padding).double()
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    return ours, theirs


def answers(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Output and the gradients of x, weight and bias of a sum in which every output has another share."""
    x = x.clone().requires_grad_()
    y = model(x)
    shares = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(y)
    return [y.detach(), *torch.autograd.grad((y * shares).sum(), [x, *model.parameters()])]


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 7, 19])
def test_equal_to_the_librarys_forward_and_backward(case, batch: int) -> None:
    ours, theirs = pair(*case)
    x = torch.randn(batch, case[0], 20, 17, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    for mine, other in zip(answers(ours, x), answers(theirs, x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [1, 7, 35])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (9, 2), (3, 1), (4, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_by_products_equal_to_the_librarys(kernel: int, stride: int, batch: int, bias: bool) -> None:
    class Ours(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return by_products(x, self.weight, self.bias, self.stride[0], torch.float64)

    torch.manual_seed(1)
    ours = Ours(8, 12, kernel, stride, bias=bias).double()
    theirs = nn.Conv2d(8, 12, kernel, stride, bias=bias).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(batch, 8, 20, 17, dtype=torch.float64)
    for mine, other in zip(answers(ours, x), answers(theirs, x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def test_by_products_in_bf16_errs_hardly_more_than_the_library_at_the_papers_size() -> None:
    ours, theirs = (kind(128, 128, 9, stride=2) for kind in (Convolution, nn.Conv2d))
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(32, 128, 20, 20)
    exact = answers(copy.deepcopy(theirs).double(), x.double())
    with torch.autocast("cpu", torch.bfloat16):
        found, direct = answers(ours, x), answers(theirs, x)
    for mine, other, true in zip(found, direct, exact, strict=True):
        assert mine.dtype == other.dtype
        assert error(mine, true) < 1.5 * error(other, true)  # a pixel's gradient is rounded twice, not once


@pytest.mark.parametrize("case", FREQUENCIES)
@pytest.mark.parametrize("batch", [8, 19])
@pytest.mark.parametrize("at_a_time", [4, 512])
def test_by_frequencies_as_exact_as_float32_is(case, batch: int, at_a_time: int, monkeypatch) -> None:
    monkeypatch.setattr(spectral, "PATCHES", at_a_time)
    taken: list[int] = []
    monkeypatch.setattr(
        convolution, "by_frequencies", lambda *given: taken.append(1) or spectral.by_frequencies(*given)
    )
    *layer, height, width = case
    ours, exact = pair(*layer)
    x = torch.randn(batch, layer[0], height, width).contiguous(memory_format=torch.channels_last)
    expected = answers(exact, x.double())
    found = answers(ours.float(), x)
    assert taken
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        assert error(mine, other) < 1e-6


def test_by_frequencies_errs_no_more_than_the_library_at_the_papers_size() -> None:
    ours, exact = pair(64, 64, 9, 2, 0)
    x = torch.rand(16, 64, 20, 20)
    expected, found = answers(exact, x.double()), answers(ours.float(), x)
    direct = answers(exact.float(), x)
    for mine, other, theirs in zip(found, expected, direct, strict=True):
        assert error(mine, other) < max(5e-7, 2 * error(theirs, other))


def test_by_frequencies_gives_the_same_bits_twice_and_needs_no_gradient_of_x() -> None:
    ours = Convolution(8, 9, 9, stride=2)
    x = torch.randn(16, 8, 20, 20)
    first, second = answers(ours, x), answers(ours, x)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    y = ours(x)  # as a first layer: x asks for no gradient
    shares = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).float()
    assert torch.equal(torch.autograd.grad((y * shares).sum(), ours.weight)[0], first[2])


def test_matrices_first_made_in_evaluation_serve_in_training() -> None:
    ours, x = Convolution(8, 9, 9, stride=2), torch.randn(16, 8, 20, 20)
    expected = answers(ours, x)
    for made in (spectral.tiling, spectral.to_frequencies, spectral.from_frequencies):
        made.cache_clear()
    with torch.inference_mode():
        assert torch.equal(ours(x), expected[0])
    assert all(torch.equal(a, b) for a, b in zip(answers(ours, x), expected, strict=True))


class ByRealProducts(nn.Conv2d):
    """As on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H', W']."""
        x = nn.functional.pad(x, self._reversed_padding_repeated_twice)
        return by_real_products(x, self.weight, self.bias, self.stride[0])


@pytest.mark.parametrize("case", FREQUENCIES)
@pytest.mark.parametrize("at_a_time", [4, 512])
@pytest.mark.parametrize("bias", [True, False])
def test_by_real_products_equal_to_the_librarys(case, at_a_time: int, bias: bool, monkeypatch) -> None:
    monkeypatch.setattr(real_products, "PATCHES", at_a_time)
    channels, outputs, kernel, stride, padding, height, width = case
    torch.manual_seed(1)
    ours = ByRealProducts(channels, outputs, kernel, stride, padding, bias=bias).double()
    theirs = nn.Conv2d(channels, outputs, kernel, stride, padding, bias=bias).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(9, channels, height, width).contiguous(memory_format=torch.channels_last)
    expected = answers(theirs, x.double())
    for mine, other in zip(answers(ours, x.double()), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    found = answers(ours.float(), x)
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    tall, wide = expected[0].shape[2:]
    # a number of the frequencies is a sum over the pixels of a patch: the rounding of side**2 terms grows as its root
    bound = max(1e-6, real_products.tiling(tall, wide, kernel, stride, channels, outputs).side * 2**-24)
    assert all(error(mine, other) < bound for mine, other in zip(found, expected, strict=True))


def test_by_real_products_errs_no_more_than_the_library_at_the_papers_size() -> None:
    ours, exact = ByRealProducts(64, 64, 9, 2), nn.Conv2d(64, 64, 9, 2).double()
    ours.load_state_dict(exact.state_dict())
    x = torch.rand(16, 64, 20, 20)
    expected, found = answers(exact, x.double()), answers(ours, x)
    direct = answers(exact.float(), x)
    for mine, other, theirs in zip(found, expected, direct, strict=True):
        assert error(mine, other) < max(5e-7, 2 * error(theirs, other))


@pytest.mark.parametrize("asked", ["x", "weight", "bias"])
def test_by_real_products_gives_what_gradient_is_asked_for(asked: str) -> None:
    ours = ByRealProducts(8, 9, 9, 2)
    x = torch.randn(16, 8, 20, 20)
    expected = dict(zip(["y", "x", "weight", "bias"], answers(ours, x), strict=True))
    given = {"x": x, "weight": ours.weight, "bias": ours.bias}
    for name, tensor in given.items():
        tensor.requires_grad_(name == asked)
    y = ours(x)
    shares = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).float()
    assert torch.equal(torch.autograd.grad((y * shares).sum(), given[asked])[0], expected[asked])


@pytest.mark.parametrize(("kernel", "stride"), [(9, 1), (5, 2), (3, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_patches_with_the_bias_among_the_weights_equal_to_the_librarys(kernel: int, stride: int, bias: bool) -> None:
    theirs = nn.Conv2d(1, 6, kernel, stride, bias=bias).double()
    x = torch.randn(7, 1, 20, 17, dtype=torch.float64)
    ours, direct = of_patches_with_bias(x[:, 0], theirs.weight, theirs.bias, theirs.stride), theirs(x)
    torch.testing.assert_close(ours, direct, rtol=1e-12, atol=1e-12)
    toward = torch.randn_like(direct)
    for mine, other in zip(
        torch.autograd.grad(ours, list(theirs.parameters()), toward),
        torch.autograd.grad(direct, list(theirs.parameters()), toward),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_few_images_and_other_kinds_of_numbers_go_the_librarys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "by_frequencies", lambda *_: pytest.fail("not here"))
    ours, theirs = pair(8, 9, 9, 2, 0)
    x = torch.randn(convolution.IMAGES, 8, 20, 20)
    assert torch.equal(ours(x.double()), theirs(x.double()))
    assert torch.equal(ours.float()(x[1:]), theirs.float()(x[1:]))


def test_gradcheck() -> None:
    ours, _ = pair(8, 9, 3, 2, 0)
    x = torch.randn(3, 8, 7, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (x,))


@pytest.mark.parametrize("case", CASES)
def test_autocast_gives_bf16_out_and_float32_gradients(case, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(convolution, "by_products", lambda *given: taken.append(1) or by_products(*given))
    ours, theirs = pair(*case)
    ours, theirs = ours.float(), theirs.float()
    channels, _, kernel, stride, _ = case
    x = torch.randn(5, channels, 20, 20)
    with torch.autocast("cpu", torch.bfloat16):
        out, expected = ours(x), theirs(x)
    assert len(taken) == (channels >= 8 and kernel >= 5 and stride > 1)
    assert out.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected.float(), rtol=2e-2, atol=2e-2)
    out.float().square().mean().backward()
    expected.float().square().mean().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert mine.grad.dtype == torch.float32
        assert error(mine.grad, other.grad.double()) < 1e-2


def test_dilation_and_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="without dilation"):
        Convolution(1, 4, 3, dilation=2)
