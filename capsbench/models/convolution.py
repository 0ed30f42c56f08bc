"""The models' convolutions: torch's, computed in faster ways."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models import gpu_tiles
from capsbench.models.patches import by_products, of_patches, of_patches_with_bias
from capsbench.models.real_products import by_real_products
from capsbench.models.spectral import by_frequencies
from capsbench.models.tiles import by_tiles, suits

# From so many channels, in and out, another way beats the library's on CPUs with AVX-512 (`benchmarks/`). On a GPU it
# does from 256, and fewer were not tried.
WIDE = 128
WIDE_IN_TRAINING = 64  # for frequencies, whose gain is in the backward pass
IMAGES = 8  # of a batch: with fewer, the transform of the weights costs more than frequencies save


class Convolution(nn.Conv2d):
    """nn.Conv2d, with its parameters and its result up to rounding, but computed in another way.

    On a CPU:

    * One input channel: a product of patches [B*H*W, k*k] with the weights. The library's kernels, made for many
      channels, reach a third to a sixth of its rate. In bf16 the bias is one more weight, which saves a sum.
    * Many channels (128, 64 where gradients are asked for), 5x5 and larger, a stride of at most 2, eight images or
      more, float32: by way of the frequencies (`spectral`), in less than half of the time and to the same exactness.
    * bf16, 5x5 and larger, a stride of 2 or more: tile by tile on the matrix unit (AMX), gradients too, where a run has
      chosen that (`tiled`); else, of many channels, as products of patches. Without a stride the library's is faster.

    On a CUDA GPU:

    * One input channel whose gradient nobody asks for: a product of patches, too.
    * Many channels as above in float32: by way of the frequencies (`real_products`). cuDNN's deterministic kernels,
      without TF32, reach a fifth of the rate of a matrix product at PrimaryCaps.
    * bf16, 5x5 and larger, multiples of 64 channels, a stride of 2 or more or 128 channels: tile by tile on the tensor
      cores (`gpu_tiles`), gradients too, where a run has chosen that (`tiled`).

    Any other case, and any other device, is nn.Conv2d. Raises ValueError for dilation or groups, which no model has.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        if self.dilation != (1, 1) or self.groups != 1:
            raise ValueError("Convolution is for convolutions without dilation and groups")
        self.tiled = False  # True: in bf16 by `tiles` or `gpu_tiles`, where it suits them; equal up to rounding

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C', H', W']."""
        if x.device.type == "cuda":
            return self._on_a_gpu(x)
        if x.device.type != "cpu":
            return super().forward(x)
        if self.in_channels == 1 and torch.is_autocast_enabled("cpu") and not x.requires_grad:
            return of_patches_with_bias(self._padded(x)[:, 0], self.weight, self.bias, self.stride)
        if self.in_channels == 1:
            return of_patches(self._padded(x)[:, 0], self.weight, self.bias, self.stride)
        if torch.is_autocast_enabled("cpu"):
            return self._in_bf16(x)
        if self._frequencies_pay(x):
            y = by_frequencies(self._padded(x), self.weight, self.stride[0])
            return y if self.bias is None else y + self.bias.view(-1, 1, 1)
        return super().forward(x)

    def _on_a_gpu(self, x: Tensor) -> Tensor:
        if self.in_channels == 1 and not x.requires_grad:
            return of_patches_with_bias(self._padded(x)[:, 0], self.weight, self.bias, self.stride)
        if self._frequencies_pay(x) and not torch.is_autocast_enabled("cuda"):
            return by_real_products(self._padded(x), self.weight, self.bias, self.stride[0])
        if self.tiled and torch.is_autocast_enabled("cuda") and gpu_tiles.suits(self):
            padded = self._padded(x)
            if gpu_tiles.fits(padded, self.weight, self.stride[0]):  # else too many images, none, or too small
                return gpu_tiles.by_gpu_tiles(padded, self.weight, self.bias, self.stride[0])
        return super().forward(x)

    def _in_bf16(self, x: Tensor) -> Tensor:
        (tall, wide), (down, across) = self.kernel_size, self.stride
        if self.tiled and suits(self):
            return by_tiles(self._padded(x), self.weight, self.bias, down)
        many = min(self.in_channels, self.out_channels) >= WIDE
        if many and tall == wide >= 5 and down == across > 1:
            return by_products(self._padded(x), self.weight, self.bias, down)
        return super().forward(x)

    def _frequencies_pay(self, x: Tensor) -> bool:
        (tall, wide), (down, across) = self.kernel_size, self.stride
        least = WIDE_IN_TRAINING if torch.is_grad_enabled() else WIDE
        many = min(self.in_channels, self.out_channels) >= least and len(x) >= IMAGES
        return many and tall == wide >= 5 and down == across <= 2 and x.dtype == torch.float32

    def _padded(self, x: Tensor) -> Tensor:
        pads = self._reversed_padding_repeated_twice  # of `same` and `valid` too
        return F.pad(x, pads) if any(pads) else x
