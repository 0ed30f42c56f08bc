"""Convolutions in bf16 on a CPU's matrix unit (AMX): `tile_kernels`, compiled where there is a C compiler.

Products are of bf16, their sums float32, rounded once where the result is bf16: no pixel is rounded twice, as by way of
patches. An image's result does not depend on what stands beside it, nor any result on the number of threads.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from capsbench.models.tile_kernels import KERNELS
from capsbench.routing.compiled import CompilerError, library, places

BLOCK = 32  # of the kernels: channels come in these, images are filled up
IMAGES = 128  # at a time: room for their tiles is made once
NO_UNIT = "needs a CPU with AMX"
ANSWERS = {  # of `allowed`
    -1: "needs a compiler that knows AMX, such as gcc 11",
    0: "is not allowed by this system",
}
TOLERANCE = 0.01  # of the trial, in norm: rounding to bf16 is 0.002


@functools.cache
def why_not() -> str | None:
    """What speaks against tiling in this process, or None: asked, compiled and tried once."""
    if not has_unit():
        return NO_UNIT
    try:
        answer = _kernels(KERNELS).allowed()
    except CompilerError as error:
        return str(error)
    if answer in ANSWERS:
        return ANSWERS[answer]
    worst = _largest_error()
    return None if worst <= TOLERANCE else f"differs here from the library's convolution by {worst:.1g}"


def has_unit() -> bool:
    """Whether the processor says that it has AMX for bf16."""
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return False


def suits(layer: nn.Conv2d) -> bool:
    """Whether tiles are made for a convolution and faster than what there is beside them: a matter of its sizes."""
    (tall, wide), (down, across) = layer.kernel_size, layer.stride
    whole = layer.in_channels % BLOCK == layer.out_channels % BLOCK == 0
    return whole and tall == wide >= 5 and down == across > 1


def by_tiles(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """A convolution without padding, on a CPU, and its gradients.

    x [B, C, H, W], weight [C', C, k, k], bias [C'], of any float types, to [B, C', H', W'] bf16, channels-last. C and
    C' are multiples of BLOCK. A gradient has the type of what it is of. Ask `why_not()` before: where kernels do not
    compile this raises CompilerError, and where the system refuses tiles it ends the process. Raises ValueError for
    other sizes.
    """
    outputs, channels, side, _ = weight.shape
    if x.dim() != 4 or x.shape[1] != channels or min(x.shape[2:]) < side or channels % BLOCK or outputs % BLOCK:
        raise ValueError(f"tiles do not convolve {tuple(x.shape)} with {tuple(weight.shape)}")
    convolved: Tensor = _ByTiles.apply(x, weight, bias, stride)
    return convolved.permute(0, 3, 1, 2)


@functools.cache
def _kernels(source: str) -> ctypes.CDLL:
    """The library, once tiles have been asked for. Raises CompilerError."""
    kernels = library(source)
    kernels.allowed()
    return kernels


class _ByTiles(torch.autograd.Function):
    """y [B, H', W', C']. What is kept for the gradient are the arguments, x in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
        ctx.types = x.dtype, weight.dtype, None if bias is None else bias.dtype
        x, rows = _side_by_side(x.bfloat16()), _rows(weight)
        side = weight.shape[2]
        tall, wide = ((n - side) // stride + 1 for n in x.shape[2:])
        start = rows.new_zeros(len(rows)) if bias is None else bias.float().contiguous()
        y = x.new_empty(len(x), tall, wide, len(rows))
        some = _filled(x)
        room = x.new_empty(some * math.prod(x.shape[1:])), x.new_empty(rows.numel())
        sums = rows.new_empty(some * tall * wide * len(rows))
        for images, out in zip(x.split(IMAGES), y.split(IMAGES), strict=True):
            of = _sizes(images, out, side, stride)
            _kernels(KERNELS).forward(of, *places(images), _strides(images), *places(rows, start, *room, sums, out))
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        type_of_x, type_of_weight, type_of_bias = ctx.types
        g = g.bfloat16().contiguous()  # [B, H', W', C']
        of_x = _gradient_of_images(g, x, weight, ctx.stride).to(type_of_x) if ctx.needs_input_grad[0] else None
        of_bias = None if type_of_bias is None else g.sum((0, 1, 2), dtype=type_of_bias)
        return of_x, _gradient_of_weight(g, x, weight, ctx.stride).to(type_of_weight), of_bias, None


def _gradient_of_images(g: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """dx, laid out as x [B, C, H, W] if possible, of g [B, H', W', C']."""
    rows, side = _rows(weight), weight.shape[2]
    dx = torch.empty_like(x)
    if dx.stride(1) != 1:  # of an x that lies over itself
        dx = torch.empty_like(x, memory_format=torch.channels_last)
    room = g.new_empty(_filled(g) * math.prod(g.shape[1:])), g.new_empty(rows.numel())
    for some, out in zip(g.split(IMAGES), dx.split(IMAGES), strict=True):
        of = _sizes(out, some, side, stride)
        _kernels(KERNELS).of_images(of, *places(some), _strides(out), *places(rows, *room, out))
    return dx


def _gradient_of_weight(g: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """dW [C', C, k, k], channels-last, of g [B, H', W', C']: float32."""
    outputs, channels, side, _ = weight.shape
    dW = weight.new_empty(outputs, side, side, channels, dtype=torch.float32)
    pixels = math.prod(-(-n // stride) * stride for n in x.shape[2:])  # as many as a multiple of the stride has
    room = x.new_empty(_filled(x) * pixels * channels), g.new_empty(_filled(g) * math.prod(g.shape[1:]))
    for n, (images, some) in enumerate(zip(x.split(IMAGES), g.split(IMAGES), strict=True)):
        of = _sizes(images, some, side, stride)
        added = ctypes.c_int(n > 0)
        _kernels(KERNELS).of_weight(of, *places(images), _strides(images), *places(some, *room), added, *places(dW))
    return dW.permute(0, 3, 1, 2)


def _side_by_side(x: Tensor) -> Tensor:
    """[B, C, H, W] whose channels lie beside each other."""
    return x if x.stride(1) == 1 else x.contiguous(memory_format=torch.channels_last)


def _rows(weight: Tensor) -> Tensor:
    """[C', k, k, C] float32, contiguous: weights that are channels-last already are not copied."""
    return weight.float().permute(0, 2, 3, 1).contiguous()


def _filled(x: Tensor) -> int:
    """Images at a time, as many as whole blocks have."""
    return -(-min(len(x), IMAGES) // BLOCK) * BLOCK


def _sizes(x: Tensor, y: Tensor, side: int, stride: int) -> ctypes.Array[ctypes.c_long]:
    """`sizes` of the kernels, of x [B, C, H, W] and y [B, H', W', C']."""
    _, tall, wide, outputs = y.shape
    return (ctypes.c_long * 9)(*x.shape, outputs, tall, wide, side, stride)


def _strides(x: Tensor) -> ctypes.Array[ctypes.c_long]:
    """Numbers from an image, a line and a pixel of x [B, C, H, W] to the next."""
    return (ctypes.c_long * 3)(*(x.stride(n) for n in (0, 2, 3)))


def _largest_error() -> float:
    """Of a small convolution and its gradients against float64, relative to each norm; infinite if not finite."""
    draw = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=draw) for size in ((35, 64, 9, 8), (32, 64, 5, 5)))
    bias, of_y = torch.randn(32, generator=draw), torch.randn(35, 32, 3, 2, generator=draw)
    ways: tuple[tuple[torch.dtype, Callable[..., Tensor]], ...]
    ways = (torch.float32, by_tiles), (torch.float64, F.conv2d)
    answers = []
    for kind, convolve in ways:
        given = [t.to(kind).requires_grad_() for t in (x, weight, bias)]
        y = convolve(*given, 2)  # a stride of 2
        answers.append([y, *torch.autograd.grad((y * of_y).sum(), given)])
    errors = torch.stack([(a.double() - b).norm() / b.norm() for a, b in zip(*answers, strict=True)])
    return float(errors.detach().max()) if errors.isfinite().all() else float("inf")
