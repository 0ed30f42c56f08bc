"""TensorBoard events of a run, on request: the extra `tensorboard` must be installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from capsbench.errors import CapsbenchError

Write = Callable[[int, float | None, float], None]


@contextmanager
def event_writer(folder: Path | None) -> Iterator[Write]:
    """A function that writes (step, loss, images a second) to `folder`/tensorboard; without a folder it does nothing.

    Raises:
        CapsbenchError: TensorBoard is not installed.
    """
    if folder is None:
        yield lambda step, loss, speed: None
        return
    if importlib.util.find_spec("tensorboard") is None:
        raise CapsbenchError(
            "TensorBoard is not installed; say `python -m pip install tensorboard`, or leave --tensorboard."
        )
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard")) as writer:

        def write(step: int, loss: float | None, speed: float) -> None:
            if loss is not None:
                writer.add_scalar("loss", loss, step)
                writer.add_scalar("images_per_second", speed, step)

        yield write
