"""The paper's convolutional baselines and others of their kind: convolutions, dense layers, classes."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models.convolution import Convolution
from capsbench.models.decoder import build_decoder, draw
from capsbench.models.output import Output, lengths_of, linked
from capsbench.plan.tasks import CLASSES
from capsbench.plan.variants import CnnSpec
from capsbench.routing.squash import at_least_float32


class Cnn(nn.Module):
    """Convolutions with ReLU and max-pooling, then dense layers with ReLU, dropout and ten classes.

    The Table 1 CNN (section 5): 5x5 convolutions of 256, 256, 128 channels, dense 328 and 192, dropout, softmax; its
    35,445,522 parameters at 28x28 tell that the convolutions keep the size (SAME padding).
    With `head: average`, ConvNet-Avg (Gu et al. 2021): a global average instead of flattening and dense layers.

    With `reconstruction`, a decoder is fed as CapsNet's is: a linear layer reads a 16-D vector for each class off the
    last features, the vectors of all but one class are masked, and the decoder draws the image from what is left. The
    classifier is the same with and without; the squared error reaches the convolutions through the shared features.

    With `scores: length` these vectors are squashed and their lengths are the scores, as DigitCaps' are; there is no
    other classifier then, and dropout is before the vectors.
    """

    def __init__(self, spec: CnnSpec, image_size: int = 28, folder: Path | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.image_size = image_size
        self.convolutions = nn.ModuleList()
        channels, side = 1, image_size
        self.pools = spec.pools or [1] * len(spec.channels)
        strides = spec.strides or [1] * len(spec.channels)
        for width, kernel, stride, pool in zip(spec.channels, spec.kernels, strides, self.pools, strict=True):
            self.convolutions.append(Convolution(channels, width, kernel, stride, padding=spec.padding))
            channels = width
            side = (side if spec.padding == "same" else (side - kernel) // stride + 1) // pool
        widths = [channels * side**2 if spec.head == "dense" else channels, *spec.dense]
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        by_length = spec.scores == "length"
        self.classes = None if by_length else nn.Linear(widths[-1], CLASSES)
        self.decoder = build_decoder(spec, CLASSES, image_size)
        with_vectors = by_length or self.decoder is not None
        self.vectors = nn.Linear(widths[-1], CLASSES * spec.dim) if with_vectors else None

    def features(self, images: Tensor) -> Tensor:
        """The layer before the classes: images [B, 1, H, W] to [B, F]."""
        x = images
        for convolution, pool in zip(self.convolutions, self.pools, strict=True):
            x = F.relu(convolution(x))  # [B, C, H, W]
            if pool > 1:
                x = F.max_pool2d(x, pool)  # [B, C, H/2, W/2]
                x = F.dropout2d(x, self.spec.conv_dropout, self.training)
        x = x.flatten(1) if self.spec.head == "dense" else x.mean((2, 3))  # [B, C*H*W] or [B, C]
        for layer in self.dense:
            x = F.relu(layer(x))  # [B, 328], [B, 192]
        return x

    def forward(self, images: Tensor) -> Output:
        """Logits (sigmoids or lengths for the margin loss) of images [B, 1, H, W] float32 in [0, 1]."""
        features = self.features(images)  # [B, F]
        dropped = F.dropout(features, self.spec.dropout, self.training)  # [B, F]
        if self.classes is None:
            assert self.vectors is not None
            return lengths_of(self.vectors(dropped), self.spec.dim)
        logits = at_least_float32(self.classes(dropped))  # [B, 10]
        poses = None
        if self.vectors is not None:
            poses = at_least_float32(self.vectors(features)).unflatten(1, (CLASSES, self.spec.dim))  # [B, 10, 16]
        return Output(linked(self.spec, logits), poses)

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        """What the decoder draws from vectors [B, 10, 16] for `classes` [B] int64: [B, H, W] float32 in (0, 1)."""
        return draw(self.decoder, poses, classes)
