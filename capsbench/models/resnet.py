"""A small modern CNN, the baseline that papers on capsules leave out: residual blocks and an average at the end."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models.output import Output, linked
from capsbench.plan.tasks import CLASSES
from capsbench.plan.variants import ResNetSpec
from capsbench.routing.squash import at_least_float32


class Block(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x)))))), He et al. 2016 (CVPR), figure 5 left; 1x1 on x where its shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        same = stride == 1 and channels == width
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width))
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, width, H / stride, W / stride]."""
        y = F.relu(self.bn1(self.conv1(x)))
        # The pixels that a 1x1 convolution with a stride reads. Given the stride, oneDNN writes past its memory in the
        # gradient of the weights of fewer than eight channels, on a CPU that has AVX2 at most (oneDNN's issue 6035).
        read = x[:, :, :: self.stride, :: self.stride]
        return F.relu(self.shortcut(read) + self.bn2(self.conv2(y)))


class ResNet(nn.Module):
    """3x3 convolution, stages of residual blocks (each but the first halves the image), global average, ten classes.

    It takes images of any size with the same weights. Batch normalisation keeps running means beside its weights; they
    are buffers: stored and restored with the weights, and not counted as parameters.
    """

    def __init__(self, spec: ResNetSpec, image_size: int = 28, folder: Path | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.image_size = image_size
        first = spec.channels[0]
        self.stem = nn.Sequential(nn.Conv2d(1, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU())
        stages = []
        for n, (channels, width) in enumerate(itertools.pairwise([first, *spec.channels])):
            strides = [1 if n == 0 else 2] + [1] * (spec.blocks - 1)
            widths = [channels, *[width] * (spec.blocks - 1)]
            stages.append(nn.Sequential(*(Block(c, width, s) for c, s in zip(widths, strides, strict=True))))
        self.stages = nn.ModuleList(stages)
        self.classes = nn.Linear(spec.channels[-1], CLASSES)

    def forward(self, images: Tensor) -> Output:
        """Logits (ten sigmoids for the margin loss) of images [B, 1, H, W] float32 in [0, 1]."""
        x = self.stem(images)  # [B, C, 28, 28]
        for stage in self.stages:
            x = stage(x)  # [B, C, 28, 28], [B, 2C, 14, 14], [B, 4C, 7, 7]
        logits = at_least_float32(self.classes(x.mean((2, 3))))  # [B, 10]
        return Output(linked(self.spec, logits))
