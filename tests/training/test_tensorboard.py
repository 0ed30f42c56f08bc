"""What TensorBoard is told of a run. The writer is a mock, so that it need not be installed here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsbench.errors import CapsbenchError
from capsbench.training.tensorboard import event_writer

told: list[tuple[str, float, int]] = []


class MockOfAWriter:
    """Remembers what it is told, and that it was closed."""

    def __init__(self, folder: str) -> None:
        told[:] = [(folder, 0.0, 0)]

    def __enter__(self) -> MockOfAWriter:
        return self

    def __exit__(self, *_: object) -> None:
        told.append(("closed", 0.0, 0))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        told.append((name, value, step))


def test_loss_and_images_a_second_are_written_at_the_steps_whose_loss_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=MockOfAWriter))
    with event_writer(tmp_path) as write:
        write(1, None, 80.0)
        write(2, 0.5, 90.0)
    assert told == [
        (str(tmp_path / "tensorboard"), 0.0, 0),
        ("loss", 0.5, 2),
        ("images_per_second", 90.0, 2),
        ("closed", 0.0, 0),
    ]


def test_without_tensorboard_it_is_one_sentence_and_only_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with event_writer(None) as write:
        write(1, 0.5, 80.0)
    with pytest.raises(CapsbenchError, match=r"^TensorBoard is not installed; say"), event_writer(tmp_path):
        pytest.fail("it was written")
    assert not list(tmp_path.iterdir())
