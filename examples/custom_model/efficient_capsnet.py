"""A model of one's own: Efficient-CapsNet (Mazzia, Salvetti and Chiaberge 2021, arXiv 2101.12491)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.routing import length, squash


class EfficientCapsNet(nn.Module):
    """Few convolutions, 16 primary capsules, and one pass in which votes attend to each other.

    161,824 parameters at 28x28, as published. `image_size` and `width` are the plan's; `attention` stands under
    `model_options`: without it all couplings start alike, as uniform ones do.
    """

    def __init__(self, image_size: int, width: float = 1.0, attention: bool = True) -> None:
        super().__init__()
        self.attention = attention
        a, b, capsules = (max(1, round(width * full)) for full in (32, 64, 16))
        d = 8 * capsules
        self.convs = nn.ModuleList(
            [nn.Conv2d(1, a, 5), nn.Conv2d(a, b, 3), nn.Conv2d(b, b, 3), nn.Conv2d(b, d, 3, stride=2)]
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.out_channels) for conv in self.convs)
        side = (image_size - 8 - 3) // 2 + 1  # 9 at 28x28
        self.primary = nn.Conv2d(d, d, side, groups=d)  # depthwise: a capsule's dimension is a channel, whole
        self.weight = nn.Parameter(torch.randn(capsules, 10, 8, 16) / 8**0.5)  # W [I, J, d, D]
        self.prior = nn.Parameter(torch.zeros(capsules, 10))  # B [I, J]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [B, 1, H, W] to the classes' scores [B, 10], here lengths, and poses [B, 10, 16] for the decoder."""
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(F.relu(conv(x)))  # [B, 128, 9, 9] in the end
        u = squash(self.primary(x).flatten(1).unflatten(1, (-1, 8)), kind="exp")  # [B, I, 8]
        votes = torch.einsum("bid,ijde->bije", u, self.weight)  # [B, I, J, 16]
        agreement = torch.einsum("bije,bje->bij", votes, votes.sum(1)) / 16**0.5  # with the sum of all votes for j
        couplings = (agreement if self.attention else torch.zeros_like(agreement)).softmax(2) + self.prior
        v = squash(torch.einsum("bij,bije->bje", couplings, votes), kind="exp")  # [B, J, 16]
        return length(v), v
