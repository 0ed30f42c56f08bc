"""The named reference of every speed ratio: CapsNet as it is commonly re-implemented in PyTorch.

Eager, float32, all votes in memory and kept for every pass, contiguous (channels-first) tensors, torch's default Adam.
It is not made slow on purpose: one convolution makes all primary capsules, one einsum all votes, nothing is
tiled. Its mathematics is the paper's, so that with the same weights its loss and gradients are those of our CapsNet.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.data.batch import Batch


class PlainCapsNet(nn.Module):
    """The paper's CapsNet with decoder, 3 passes (section 4), for images of `image_size` pixels.

    Parameters have the names and shapes of `capsbench.models.capsnet.CapsNet`'s, so that either loads the other's.
    """

    ITERATIONS = 3

    def __init__(self, image_size: int = 28) -> None:
        super().__init__()
        side = (image_size - 16 - 1) // 2 + 1  # 6 at 28x28
        self.conv1 = nn.Conv2d(1, 256, 9)
        self.primary = nn.Conv2d(256, 256, 9, stride=2)
        self.digit_caps = nn.Module()
        self.digit_caps.weight = nn.Parameter(0.1 * torch.randn(32 * side**2, 10, 8, 16))  # W [I, J, d, D]
        self.decoder = nn.Module()
        widths = (160, 512, 1024, image_size**2)
        self.decoder.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, images: Tensor) -> Tensor:
        """Images [B, 1, H, W] to digit capsules [B, 10, 16]."""
        x = F.relu(self.conv1(images))  # [B, 256, 20, 20]
        u = self.primary(x)  # [B, 256, 6, 6]
        u = u.view(len(u), 32, 8, -1).permute(0, 1, 3, 2).reshape(len(u), -1, 8)  # [B, 1152, 8]
        u_hat = torch.einsum("bid,ijde->bije", squash(u), self.digit_caps.weight)
        b = torch.zeros(*u_hat.shape[:3], device=u_hat.device)  # [B, 1152, 10]
        for t in range(self.ITERATIONS):
            c = b.softmax(2)  # over the outputs
            v = squash((c.unsqueeze(3) * u_hat).sum(1))  # [B, 10, 16]
            if t < self.ITERATIONS - 1:
                b = b + (u_hat * v.unsqueeze(1)).sum(3)
        return v

    def loss(self, batch: Batch) -> Tensor:
        """Margin loss + 0.0005 x the summed squared error of the drawing, averaged over the batch (sections 3, 4.1)."""
        v = self(batch.images)
        lengths = v.norm(dim=2)  # [B, 10]
        here = F.one_hot(batch.labels[:, 0], 10).float()
        margin = here * F.relu(0.9 - lengths) ** 2 + 0.5 * (1 - here) * F.relu(lengths - 0.1) ** 2
        x = (v * here.unsqueeze(2)).flatten(1)  # [B, 160]: all but the true class masked
        layers = list(self.decoder.layers)  # type: ignore[arg-type]
        for layer in layers[:-1]:
            x = F.relu(layer(x))
        drawn = torch.sigmoid(layers[-1](x))
        error = (drawn - batch.digits[:, 0].flatten(1)) ** 2
        return margin.sum(1).mean() + 0.0005 * error.sum(1).mean()


def squash(s: Tensor) -> Tensor:
    """Equation 1, along the last dimension."""
    n = s.norm(dim=-1, keepdim=True)
    return n**2 / (1 + n**2) * s / (n + 1e-8)


class PlainStep:
    """A training step as such code writes it, on one batch again and again."""

    def __init__(self, model: PlainCapsNet, batch: Batch, tf32: bool = False) -> None:
        self.model, self.batch, self.tf32 = model, batch, tf32
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def __call__(self) -> None:
        """Train on the batch once more."""
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.tf32
        self.optimiser.zero_grad()
        self.model.loss(self.batch).backward()
        self.optimiser.step()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
