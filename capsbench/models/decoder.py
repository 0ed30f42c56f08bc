"""The decoder of section 4.1, figure 2: it draws a digit from the capsule of one class."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models.output import one_hot
from capsbench.plan.variants import DecoderOptions
from capsbench.routing.squash import at_least_float32


class Decoder(nn.Module):
    """Fully connected layers, ReLU between them and a sigmoid at the end.

    Args:
        classes: number of output capsules K; dim: their dimension D; hidden: widths of the hidden layers.
        image_size: height and width of the picture it draws, in pixels.
        mask: `class` keeps the capsule of the class in its place and sets the others to 0 (the paper);
            `agnostic` hands the capsule over alone, so that the decoder cannot see which class it is.
    """

    def __init__(self, classes: int, dim: int, hidden: Sequence[int], image_size: int, mask: str = "class") -> None:
        super().__init__()
        self.mask = mask
        self.image_size = image_size
        widths = [classes * dim if mask == "class" else dim, *hidden, image_size**2]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Draw one class of each image.

        Args:
            poses: [B, K, D] float32 output capsules; classes: [B] int64, the class to draw.

        Returns:
            [B, H, W] float32 in (0, 1).
        """
        chosen = one_hot(classes, poses.shape[1]).to(poses.dtype).unsqueeze(2)  # [B, K, 1]
        masked = poses * chosen  # [B, K, D]
        x = masked.flatten(1) if self.mask == "class" else masked.sum(1)  # [B, K*D] or [B, D]
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))  # [B, 512], [B, 1024]
        return torch.sigmoid(self.layers[-1](x)).unflatten(1, (self.image_size, self.image_size))  # [B, H, W]


def build_decoder(options: DecoderOptions, classes: int, image_size: int) -> Decoder | None:
    """The decoder that a spec asks for, or None."""
    if options.reconstruction == "none":
        return None
    return Decoder(classes, options.dim, options.decoder, image_size, options.mask)


def draw(decoder: Decoder | None, poses: Tensor, classes: Tensor) -> Tensor:
    """What a model's decoder draws, at least in float32, under autocast too. Raises TypeError if the model has none."""
    if decoder is None:
        raise TypeError("this model has no decoder: its spec says reconstruction: none")
    with torch.autocast(poses.device.type, enabled=False):
        drawn: Tensor = decoder(at_least_float32(poses), classes)
    return drawn
