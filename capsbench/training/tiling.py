"""Whether a run in bf16 convolves tile by tile, on a CPU's matrix unit or a GPU's tensor cores: decided once, and kept
when it goes on.

Evaluation never does, since it computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from capsbench.models import gpu_tiles, tiles
from capsbench.models.convolution import Convolution

PLAINLY = {"cpu": "products of patches", "cuda": "the library's"}  # what convolutions are without tiles
QUIET = (None, tiles.NO_UNIT, gpu_tiles.NO_UNIT)  # that a device has no such unit is not worth a sentence


def choose_convolutions(model: nn.Module, say: Callable[[str], None]) -> dict[str, str]:
    """Set a model's convolutions to tiles where they run; what stands in a run's `resolved`.

    `{"convolutions": "tiles"}` or `{"convolutions": "plain"}` for a model that has convolutions to tile on the device
    where it lies, else nothing. Where the kernels do not compile, or differ from the library in float64, `say` gets one
    sentence.

    Ask for a run in bf16 alone: in float32 nothing is tiled, and nothing is said of it.
    """
    if _tileable(model) and (reason := _why_not(device := _device(model))) not in QUIET:
        say(f"Convolutions are {PLAINLY[device.type]}, since tiling {reason}.")
    return set_convolutions(model, True)


def set_convolutions(model: nn.Module, tiled: bool) -> dict[str, str]:
    """Let all of a model's convolutions that suit them go by tiles, if these run here, or plainly; which it is."""
    layers = _tileable(model)
    runs = tiled and bool(layers) and _why_not(_device(model)) is None
    for layer in layers:
        layer.tiled = runs
    return {"convolutions": "tiles" if runs else "plain"} if layers else {}


def keep_convolutions(model: nn.Module, began: str, say: Callable[[str], None]) -> dict[str, str]:
    """Convolutions of a run that goes on as they were, `tiles` or `plain`, or plain, which `say` gets to know."""
    found = set_convolutions(model, began == "tiles")
    if found["convolutions"] != began:
        device = _device(model)
        say(
            f"This run began with convolutions by tiles and goes on with {PLAINLY[device.type]}, since tiling "
            f"{_why_not(device)}; its last bits are not those of a run that was never stopped."
        )
    return found


def _tileable(model: nn.Module) -> list[Convolution]:
    suits = {"cpu": tiles.suits, "cuda": gpu_tiles.suits}.get(_device(model).type)
    if suits is None:
        return []
    return [layer for layer in model.modules() if isinstance(layer, Convolution) and suits(layer)]


def _why_not(device: torch.device) -> str | None:
    return gpu_tiles.why_not(device) if device.type == "cuda" else tiles.why_not()


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
