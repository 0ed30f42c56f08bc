"""CapsNet, "Dynamic Routing Between Capsules" (arXiv 1710.09829), section 4, figures 1 and 2."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models.capsule_layer import CapsuleLayer
from capsbench.models.convolution import Convolution
from capsbench.models.decoder import build_decoder, draw
from capsbench.models.output import Output
from capsbench.plan.tasks import CLASSES
from capsbench.plan.variants import CapsNetSpec
from capsbench.routing.fused import fused_squash
from capsbench.routing.squash import at_least_float32, squash


class CapsNet(nn.Module):
    """Conv1, PrimaryCapsules, DigitCaps and, if the spec asks for reconstruction, the decoder.

    Args:
        spec: every choice, the paper's by default; image_size: height and width in pixels (28, 36 and 40 in the paper).
        folder: where a routing named `my_file:my_routing` lies.

    Shapes beside the steps are the paper's, at 28x28.
    """

    def __init__(self, spec: CapsNetSpec, image_size: int = 28, folder: Path | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.image_size = image_size
        types, d = spec.primary_types, spec.primary_dim
        self.conv1 = Convolution(1, spec.channels, spec.kernel)
        self.primary = Convolution(spec.channels, types * d, spec.kernel, stride=2)
        side = (image_size - 2 * (spec.kernel - 1) - 1) // 2 + 1  # 6
        self.digit_caps = CapsuleLayer(
            types=types, places=side**2, child_dim=d, outputs=CLASSES, dim=spec.dim, options=spec, folder=folder
        )
        self.decoder = build_decoder(spec, CLASSES, image_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the first weights from torch's generator.

        `paper`: the paper does not say; PyTorch's defaults, and W_ij ~ N(0, 0.1^2), the authors' 0.1 not truncated.
        `official`: truncated normal, 0.05 in Conv1 and 0.1 everywhere else, every bias 0.1.
        """
        if self.spec.init == "official":
            for name, parameter in self.named_parameters():
                if name.startswith("digit_caps.routing"):
                    continue  # a routing's own parameters start where it says
                if name.endswith("bias"):
                    nn.init.constant_(parameter, 0.1)
                else:
                    deviation = 0.05 if name.startswith("conv1") else 0.1
                    nn.init.trunc_normal_(parameter, std=deviation, a=-2 * deviation, b=2 * deviation)
            return
        nn.init.normal_(self.digit_caps.weight, std=0.1)

    def primary_capsules(self, images: Tensor) -> Tensor:
        """Images [B, 1, 28, 28] float32 in [0, 1] to primary capsules u [B, 1152, 8] float32."""
        x = F.relu(self.conv1(images))  # [B, 256, 20, 20]
        s = at_least_float32(self.primary(x))  # [B, 32*8, 6, 6]: no ReLU
        s = s.unflatten(1, (self.spec.primary_types, self.spec.primary_dim)).flatten(3)  # [B, 32, 8, 36]
        s = s.permute(0, 1, 3, 2).flatten(1, 2)  # [B, 32*36, 8]: a capsule is 8 channels at one place
        if self.spec.primary_scale == "official":
            bias = at_least_float32(self.primary.bias).view(-1, 1, self.spec.primary_dim)  # type: ignore[arg-type]
            bias = bias.expand(-1, s.shape[1] // self.spec.primary_types, -1).flatten(0, 1)  # [1152, 8]
            s = (s - bias) / self.spec.primary_types + bias  # the authors scale before they add the bias
        shortened = fused_squash if self.digit_caps.fused else squash
        return shortened(s, kind=self.spec.primary_squash)  # [B, 1152, 8]

    def forward(self, images: Tensor, iterations: int | None = None, trace: bool = False) -> Output:
        """Class scores and capsules of images [B, 1, H, W] float32 in [0, 1].

        Args:
            iterations: r at test time, if another than the spec's; trace: keep every routing pass.
        """
        u = self.primary_capsules(images)  # [B, 1152, 8]
        with torch.autocast(
            images.device.type, enabled=False
        ):  # routing sums stay float32 whatever the convolutions do
            routed = self.digit_caps(u, iterations, trace)  # v [B, 10, 16]
        return Output(routed.scores, routed.poses, routed.couplings, routed.trace)  # scores |v_j| [B, 10]

    def reconstruct(self, poses: Tensor, classes: Tensor) -> Tensor:
        """What the decoder draws from capsules [B, 10, 16] for `classes` [B] int64: [B, H, W] float32 in (0, 1)."""
        return draw(self.decoder, poses, classes)
