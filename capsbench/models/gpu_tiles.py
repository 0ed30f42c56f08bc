"""Convolutions in bf16 on a GPU's tensor cores, tile by tile: `gpu_tile_kernels`, compiled by Triton.

Products are of bf16, their sums float32, rounded once where the result is bf16, as by the library. An image's result
does not depend on what stands beside it, and everything has the same bits each time.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

KIND = torch.bfloat16  # of what is multiplied; Triton's interpreter, which errs in bf16, is tested in float32
MULTIPLE = 64  # the least tile's side: channels come in these
WIDE = 128  # channels
NO_UNIT = "needs a GPU of compute capability 9.0 or more"
CAPABILITY = (9, 0)  # H100, H200: from there on a unit copies tiles (TMA)
TOLERANCE = 0.01  # of the trial, in norm: rounding to bf16 is 0.002
# What is tried: images, channels in and out, height, width, kernel, stride. Two blocks of images, tiles as PrimaryCaps
# has them, sums in several parts, and pixels that no output sees.
TRIED = (130, 256, 256, 8, 10, 5, 2)


@functools.cache
def why_not(device: torch.device) -> str | None:
    """What speaks against tiling on a device, or None: compiled and tried once a process."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        return NO_UNIT
    try:
        importlib.import_module("triton")
    except ImportError:
        return "needs Triton, which cannot be imported"
    try:
        importlib.import_module("triton.tools.tensor_descriptor")
    except ImportError:
        return "needs a newer Triton, which has tensor descriptors"
    try:
        worst = _largest_error(device, *TRIED)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler, its tools and the driver raise
        lines = str(error).strip().splitlines() or [""]
        return f"does not run here ({type(error).__name__}: {lines[0][:200]})"
    return None if worst <= TOLERANCE else f"differs here from the library's convolution by {worst:.1g}"


def suits(layer: nn.Conv2d) -> bool:
    """Whether tiles are made for a convolution: a matter of its sizes, of those at which they are faster or may be.

    PrimaryCaps' was timed. Without a stride, of 256 and 128 channels, sums and the images' gradient are faster; the
    weights' was slower in one part, and its parts have not been timed.
    """
    (tall, wide), (down, across) = layer.kernel_size, layer.stride
    fewest = min(layer.in_channels, layer.out_channels)
    whole = layer.in_channels % MULTIPLE == layer.out_channels % MULTIPLE == 0
    return whole and tall == wide >= 5 and down == across and (down > 1 or fewest >= WIDE)


def fits(x: Tensor, weight: Tensor, stride: int) -> bool:
    """Whether the kernels take x [B, C, H, W], padded, and weight [C', C, k, k]: whole tiles, offsets of 32 bits."""
    outputs, channels, tall, wide = weight.shape
    return (
        x.dim() == 4
        and x.shape[1] == channels
        and channels % MULTIPLE == outputs % MULTIPLE == 0
        and tall == wide <= min(x.shape[2:])
        and min(x.numel(), weight.numel()) > 0
        and _launch().numbers(x.shape, weight.shape, stride) < 2**31
    )


def by_gpu_tiles(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """A convolution without padding, on a GPU, and its gradients.

    x [B, C, H, W], weight [C', C, k, k], bias [C'], of any float types, to [B, C', H', W'] bf16, channels-last. A
    gradient has the type of what it is of; that of the weight is channels-last. Ask `why_not()` before. Raises
    ValueError for what does not fit (`fits`), and what Triton raises where kernels do not compile or run.
    """
    if not fits(x, weight, stride):
        raise ValueError(f"tiles do not convolve {tuple(x.shape)} with {tuple(weight.shape)}")
    convolved: Tensor = _ByGpuTiles.apply(x, weight, bias, stride)
    return convolved.permute(0, 3, 1, 2)


class _ByGpuTiles(torch.autograd.Function):
    """y [B, H', W', C']. What is kept for the gradient are x and the weights in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        ctx.types = x.dtype, weight.dtype, None if bias is None else bias.dtype
        x, w = _channels_inside(x), _channels_inside(weight)
        ctx.save_for_backward(x, w)
        ctx.stride = stride
        return _launch().convolved(x, w, bias, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, w = ctx.saved_tensors
        type_of_x, type_of_weight, type_of_bias = ctx.types
        for_x, for_weight, for_bias, _ = ctx.needs_input_grad
        g = _aligned(g.to(KIND).contiguous())  # [B, H', W', C']
        of_x = of_weight = of_bias = None
        if for_x:
            dx = x.new_empty(x.shape, dtype=type_of_x)
            _launch().of_images(g, w, dx, ctx.stride)
            of_x = dx.permute(0, 3, 1, 2)
        if for_weight:
            dw = _launch().of_weight(g, x, w.shape[1], ctx.stride)
            of_weight = dw.permute(0, 3, 1, 2).to(type_of_weight)
        if for_bias:
            of_bias = _launch().of_bias(g).to(type_of_bias)
        return of_x, of_weight, of_bias, None


def _launch() -> ModuleType:
    """What starts the kernels: imported where it is asked for, since it needs Triton."""
    from capsbench.models import gpu_tile_launch

    return gpu_tile_launch


def _channels_inside(x: Tensor) -> Tensor:
    """[B, C, H, W] as [B, H, W, C] of KIND, contiguous and aligned: what lies so already is not copied."""
    return _aligned(x.to(KIND).permute(0, 2, 3, 1).contiguous())


def _aligned(x: Tensor) -> Tensor:
    """x where its address is a multiple of 16 bytes, as TMA wants it."""
    return x if x.data_ptr() % 16 == 0 else x.clone()


def _largest_error(
    device: torch.device, images: int, channels: int, outputs: int, height: int, width: int, side: int, stride: int
) -> float:
    """Of a convolution and its gradients against float64, relative to each norm; infinite if not finite."""
    draw = torch.Generator().manual_seed(0)
    places = [(n - side) // stride + 1 for n in (height, width)]
    sizes = ((images, channels, height, width), (outputs, channels, side, side), (outputs,), (images, outputs, *places))
    x, weight, bias, of_y = (torch.randn(size, generator=draw).to(device) for size in sizes)

    def by_patches(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        # a product of matrices: cuDNN need not have a deterministic convolution of float64
        patches = F.unfold(x, side, stride=stride)
        return (weight.flatten(1) @ patches + bias[:, None]).unflatten(2, places)

    def answers(convolve: Callable[..., Tensor], kind: torch.dtype) -> list[Tensor]:
        given = [t.to(kind).requires_grad_() for t in (x, weight, bias)]
        y = convolve(*given, stride)
        return [y, *torch.autograd.grad((y * of_y).sum(), given)]

    pairs = zip(answers(by_gpu_tiles, torch.float32), answers(by_patches, torch.float64), strict=True)
    errors = torch.stack([(found.double() - exact).norm() / exact.norm() for found, exact in pairs])
    return float(errors.detach().max()) if errors.isfinite().all() else float("inf")
