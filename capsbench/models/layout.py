"""How weights lie in memory."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def channels_last(model: Model) -> Model:
    """`model` with the channels of its convolutions innermost, as fast convolutions want them; all else as it is.

    The capsules' W, of four dimensions too, stays contiguous: its kernels read it a matrix at a time.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)
    return model
