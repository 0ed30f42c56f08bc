"""The two-digit transfer's models (Su 2018): one trunk, then pooling and dense layers, or capsules.

All of them take images of any size: trained on one digit, 28x28, they are shown two.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models.capsule_layer import CapsuleLayer
from capsbench.models.output import Output, lengths_of, linked
from capsbench.plan.tasks import CLASSES
from capsbench.plan.variants import TwoDigitSpec
from capsbench.routing.squash import at_least_float32


class TwoDigit(nn.Module):
    """conv 64-64 3x3, 2x2 average pool, conv 128-128 3x3, no padding, ReLU; then the spec's head.

    Parameters at full width: 276,810 with average pooling and one dense layer of 128, 279,488 with capsules of 16-D.
    """

    def __init__(self, spec: TwoDigitSpec, image_size: int = 28, folder: Path | None = None) -> None:
        super().__init__()
        self.spec = spec
        a, b, c, d = spec.channels
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(1, a, 3), nn.Conv2d(a, b, 3), nn.Conv2d(b, c, 3), nn.Conv2d(c, d, 3)]
        )
        if spec.head == "capsules":
            # each place's ReLU vector is one lower capsule of d dimensions; W is shared by all places, no bias
            self.capsules = CapsuleLayer(
                types=1, places=None, child_dim=d, outputs=CLASSES, dim=spec.dim, options=spec, folder=folder
            )
        else:
            widths = [d, *spec.dense]
            self.dense = nn.ModuleList(nn.Linear(m, n) for m, n in itertools.pairwise(widths))
            self.classes = nn.Linear(widths[-1], CLASSES * (spec.dim if spec.scores == "length" else 1))
        self._initialise()

    def _initialise(self) -> None:
        """First weights as the source's library draws them: Keras' defaults, Glorot and Bengio 2010, biases 0.

        To it all of the capsules' W is one matrix from d channels to CLASSES * dim. A routing's own parameters start as
        it says.
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and not name.startswith("capsules."):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        if self.spec.head == "capsules":
            _, classes, d, dim = self.capsules.weight.shape  # W [1, J, d, D]
            limit = math.sqrt(6 / (d + classes * dim))
            nn.init.uniform_(self.capsules.weight, -limit, limit)

    def trunk(self, images: Tensor) -> Tensor:
        """Images [B, 1, 28, 28] to feature maps [B, 128, 8, 8]; 56x28 to [B, 128, 22, 8]."""
        first, second, third, fourth = self.convolutions
        x = F.relu(second(F.relu(first(images))))  # [B, 64, 24, 24]
        x = F.avg_pool2d(x, 2)  # [B, 64, 12, 12]
        return F.relu(fourth(F.relu(third(x))))  # [B, 128, 8, 8]

    def forward(self, images: Tensor, iterations: int | None = None, trace: bool = False) -> Output:
        """Ten independent yes/no scores for images [B, 1, H, W] float32 in [0, 1]."""
        x = at_least_float32(self.trunk(images))  # [B, 128, h, w]
        with torch.autocast(images.device.type, enabled=False):
            if self.spec.head == "capsules":
                routed = self.capsules(x.flatten(2).transpose(1, 2), iterations, trace)  # children [B, h*w, 128]
                return Output(routed.scores, routed.poses, routed.couplings, routed.trace)
            pool = {"average": torch.mean, "sum": torch.sum, "max": torch.amax}[self.spec.pooling]
            pooled: Tensor = pool(x, (2, 3))  # type: ignore[operator]  # [B, 128]
            for layer in self.dense:
                pooled = F.relu(layer(pooled))  # [B, 128]
            logits = self.classes(pooled)  # [B, 10], or [B, 10 * 16] with lengths
            if self.spec.scores == "length":
                return lengths_of(logits, self.spec.dim)
        return Output(linked(self.spec, logits))
