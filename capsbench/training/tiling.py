"""Whether a run in bf16 on a CPU convolves tile by tile on its matrix unit: decided once, and kept when it goes on.

Evaluation never does, since it computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from capsbench.models import tiles
from capsbench.models.convolution import Convolution


def choose_convolutions(model: nn.Module, say: Callable[[str], None]) -> dict[str, str]:
    """Set a model's convolutions to tiles where they run; what stands in a run's `resolved`.

    `{"convolutions": "tiles"}` or `{"convolutions": "plain"}` for a model that has convolutions to tile, else nothing.
    Where the kernels do not compile, or differ from the library in float64, `say` gets one sentence. That a CPU has no
    matrix unit is not worth one.
    """
    reason = tiles.why_not()
    if reason not in (None, tiles.NO_UNIT) and _tileable(model):
        say(f"Convolutions are products of patches, since tiling {reason}.")
    return set_convolutions(model, True)


def set_convolutions(model: nn.Module, tiled: bool) -> dict[str, str]:
    """Let all of a model's convolutions that suit them go by tiles, if these run here, or plainly; which it is."""
    runs = tiled and tiles.why_not() is None
    for layer in _tileable(model):
        layer.tiled = runs
    return {"convolutions": "tiles" if runs else "plain"} if _tileable(model) else {}


def keep_convolutions(model: nn.Module, began: str, say: Callable[[str], None]) -> dict[str, str]:
    """Convolutions of a run that goes on as they were, `tiles` or `plain`, or plain, which `say` gets to know."""
    found = set_convolutions(model, began == "tiles")
    if found["convolutions"] != began:
        say(
            f"This run began with convolutions by tiles and goes on with products of patches, since tiling "
            f"{tiles.why_not()}; its last bits are not those of a run that was never stopped."
        )
    return found


def _tileable(model: nn.Module) -> list[Convolution]:
    return [layer for layer in model.modules() if isinstance(layer, Convolution) and tiles.suits(layer)]
