"""Answers that are not finite are refused, not scored: the largest of NaNs is some class, as if it were an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from capsbench.errors import DataError
from capsbench.models.output import Output


@contextlib.contextmanager
def refuse_not_finite(where: str) -> Iterator[None]:
    """Within: an Output of a model in evaluation with NaN or infinity in its scores, poses or couplings is an error.

    At a number of passes that the model was not trained with, which diagnostics ask for, it need not be finite.

    Raises DataError, beginning with `where`.
    """

    def check(module: nn.Module, _: tuple[Any, ...], given: dict[str, Any], output: object) -> None:
        if module.training or not isinstance(output, Output) or given.get("iterations") is not None:
            return
        for what in ("scores", "poses", "couplings"):
            values = getattr(output, what)
            if values is not None and not bool(values.isfinite().all()):
                odd = int((~values.isfinite()).flatten(1).any(1).sum())  # [B]
                raise DataError(
                    f"{where}: the trained model's {what} are not finite for {odd} of {len(values)} images that it is "
                    "shown in evaluation, so nothing of it is scored. Mend what it computes where `self.training` is "
                    "false, or what training leads it to, and train it again."
                )

    handle = register_module_forward_hook(check, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
